"""The corpus of failures from public reports, in two halves that share no project.

Rules are written for the development half: ``failures.jsonl``, ``reports.tsv`` and ``kinds.tsv``. The labels of the
blind half, ``blind.tsv``, were committed by somebody who had not read the rules, before the rules first saw a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from spark_events.failures.classes import CLASSES, UNKNOWN
from spark_events.translate.failures import Diagnostics

ROOT = Path(__file__).parent.parent
_SEEN = ROOT / "tests" / "unit" / "translate" / "fixtures" / "failures.jsonl"
_REPORTS = ROOT / "tests" / "unit" / "failures"
_RETRY = {"true": True, "false": False, "": None}
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
    """One failure: its project, class and advice assigned by hand, and the text as an event would contain it."""

    project: str
    failure_class: str
    retry: bool | None
    text: str
    is_blind: bool = False


class Verdict(NamedTuple):
    """A class and the advice on a rerun."""

    failure_class: str
    retry: bool | None


class Figures(NamedTuple):
    """Figures of a class: members, share of the given verdicts that are right, share of the members found."""

    number: int
    precision: float | None
    coverage: float | None


def reports() -> Iterator[Report]:
    """Return all failures of the corpus."""
    for line in _SEEN.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        project = "/".join(one["source"].split("/")[3:5]) or one["source"]
        yield Report(project, one["class"], _retry_of(one["class"]), one["text"])
    for source, failure_class, language, error in [*_rows("reports.tsv"), *_rows("kinds.tsv")]:
        # A lost executor is another process than the driver; the other reports are from local and remote executors.
        executor = "2" if error.startswith("ExecutorLostFailure") else "driver"
        text = _TASK.format(executor, _PYTHON.format(error) if language == "python" else error)
        yield Report(source.partition("#")[0], failure_class, _retry_of(failure_class), text)
    for source, failure_class, retry, _, language, error in _rows("blind.tsv"):
        yield Report(source.partition("#")[0], failure_class, _RETRY[retry], _as_reported(language, error), True)


def _rows(name: str) -> Iterator[list[str]]:
    for line in (_REPORTS / name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            *columns, error = line.split("\t")
            yield [*columns, error.replace("\\n", "\n").replace("\\t", "\t")]


def _retry_of(failure_class: str) -> bool | None:
    return CLASSES[failure_class].retry if failure_class in CLASSES else None


def _as_reported(language: str, error: str) -> str:
    """Return the text that Spark's listener would get: of a Py4J error its Java exception, of a task the job's."""
    if error.startswith(("ExecutorLostFailure", "FetchFailed(")):
        return _TASK.format("2", error)
    error = re.sub(r"\A(py4j\.protocol\.Py4JJavaError: )?An error occurred while calling .*\n+: ", "", error)
    if language == "java" or error.startswith(("org.apache.", "java.")):
        return error
    if error.startswith("Traceback (most recent call last):"):
        return _TASK.format("driver", f"org.apache.spark.api.python.PythonException: {error}\n")
    return _TASK.format("driver", _PYTHON.format(error))


def verdicts(chosen: Iterable[Report]) -> list[Verdict]:
    """Return what the rules say of each failure."""
    result = []
    for one in chosen:
        found = Diagnostics().of_text(one.text).attributes
        retry = found.get("failure.retry_useful")
        result.append(Verdict(str(found["failure.class"]), None if retry is None else bool(retry)))
    return result


def first_verdicts() -> list[Verdict]:
    """Return what the rules said of the blind half when they first saw it, in the order of ``blind.tsv``."""
    return [Verdict(failure_class, _RETRY[retry]) for _, failure_class, retry in _rows("blind_first_verdicts.tsv")]


def figures(chosen: Iterable[Report], said: Iterable[Verdict]) -> dict[str, Figures]:
    """Return the figures by class, and those of ``failure.retry_useful``."""
    pairs = list(zip(chosen, said, strict=True))
    classes = [(one.failure_class, verdict.failure_class) for one, verdict in pairs]
    result = {}
    for name in CLASSES:
        right = classes.count((name, name))
        members = sum(given == name for given, _ in classes)
        given = sum(verdict == name for _, verdict in classes)
        if members or given:
            result[name] = Figures(members, right / given if given else None, right / members if members else None)
    told = [pair for pair in classes if pair[1] != UNKNOWN]
    known = sum(label != UNKNOWN for label, _ in classes)
    right = sum(label == verdict for label, verdict in told)
    result["all classes"] = Figures(known, right / len(told), right / known)
    advised = [(one.retry, verdict.retry) for one, verdict in pairs if verdict.retry is not None]
    correct = sum(right == said for right, said in advised)
    result["failure.retry_useful"] = Figures(known, correct / len(advised), correct / known)
    return result


def table(**runs: dict[str, Figures]) -> str:
    """Return figures of the same failures as a Markdown table, with precision and coverage of each run."""
    titles = "".join(f" precision, {run} | coverage, {run} |" for run in runs)
    lines = [f"| verdict | failures |{titles}", "|---|---|" + "---|---|" * len(runs)]
    for name in [*CLASSES, "all classes", "failure.retry_useful"]:
        found = [of.get(name, Figures(0, None, None)) for of in runs.values()]
        if any(one != Figures(0, None, None) for one in found):
            values = (value for one in found for value in (one.precision, one.coverage))
            shown = " | ".join("–" if value is None else f"{value:.2f}" for value in values)
            lines.append(f"| {name} | {max(one.number for one in found)} | {shown} |")
    return "\n".join(lines)
