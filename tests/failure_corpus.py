"""The corpus of failures from public reports, in two halves by project.

Rules are written for the first half only: the texts of ``failures.jsonl``, which earlier rules have seen, and a quarter
of the projects of ``reports.tsv``. The figures in docs/events.md come from the second half.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from spark_events.failures.classes import CLASSES, UNKNOWN
from spark_events.translate.failures import Diagnostics

ROOT = Path(__file__).parent.parent
_SEEN = ROOT / "tests" / "unit" / "translate" / "fixtures" / "failures.jsonl"
_REPORTS = ROOT / "tests" / "unit" / "failures" / "reports.tsv"
_TASK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most "
    "recent failure: Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.9 executor {}): {}\n\nDriver stacktrace:\n"
    "\tat org.apache.spark.scheduler.DAGScheduler.x(DAGScheduler.scala:1)\n"
)
_PYTHON = (
    'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "/app/job.py", line 12, '
    'in f\n    client.call(row)\n  File "/opt/venv/lib/python3.11/site-packages/client/api.py", line 3, in call\n'
    "    raise error\n{}\n"
)


class Report(NamedTuple):
    """One failure: its project, the class assigned by hand, and the text as an event would contain it."""

    project: str
    failure_class: str
    text: str
    is_second: bool


class Figures(NamedTuple):
    """Figures of a class: members, share of the given verdicts that are right, share of the members found."""

    number: int
    precision: float | None
    coverage: float | None


def reports() -> Iterator[Report]:
    """Return all failures of the corpus."""
    seen = [json.loads(line) for line in _SEEN.read_text(encoding="utf-8").splitlines()]
    projects = set()
    for one in seen:
        project = "/".join(one["source"].split("/")[3:5]) or one["source"]
        projects.add(project)
        yield Report(project, one["class"], one["text"], False)
    for line in _REPORTS.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            source, failure_class, language, error = line.split("\t")
            project, error = source.partition("#")[0], error.replace("\\n", "\n")
            # A lost executor is another process than the driver; the other reports are from local and remote executors.
            executor = "2" if error.startswith("ExecutorLostFailure") else "driver"
            text = _TASK.format(executor, _PYTHON.format(error) if language == "python" else error)
            in_first = project in projects or hashlib.sha256(project.encode()).digest()[0] % 4 == 0
            yield Report(project, failure_class, text, not in_first)


def figures(chosen: Iterable[Report]) -> dict[str, Figures]:
    """Return the figures by class, and those of ``failure.retry_useful``."""
    chosen = list(chosen)
    found = [Diagnostics().of_text(one.text).attributes for one in chosen]
    pairs = [(one.failure_class, str(each["failure.class"])) for one, each in zip(chosen, found, strict=True)]
    result = {}
    for name in CLASSES:
        right = pairs.count((name, name))
        members = sum(given == name for given, _ in pairs)
        given = sum(verdict == name for _, verdict in pairs)
        if members or given:
            result[name] = Figures(members, right / given if given else None, right / members if members else None)
    verdicts = [pair for pair in pairs if pair[1] != UNKNOWN]
    known = sum(given != UNKNOWN for given, _ in pairs)
    right = sum(given == verdict for given, verdict in verdicts)
    result["all classes"] = Figures(known, right / len(verdicts), right / known)
    told = [(one.failure_class, each.get("failure.retry_useful")) for one, each in zip(chosen, found, strict=True)]
    advised = [(CLASSES[name].retry if name in CLASSES else None, said) for name, said in told if said is not None]
    correct = sum(right == said for right, said in advised)
    result["failure.retry_useful"] = Figures(known, correct / len(advised), correct / known)
    return result


def table(of: dict[str, Figures]) -> str:
    """Return the figures as the Markdown table of docs/events.md."""
    lines = ["| verdict | failures | precision | coverage |", "|---|---|---|---|"]
    for name, one in of.items():
        shown = ("–" if value is None else f"{value:.2f}" for value in (one.precision, one.coverage))
        lines.append(f"| {name} | {one.number} | {' | '.join(shown)} |")
    return "\n".join(lines)
