"""Test that a word of the glossary has one meaning in the names of Python and of Java."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import ROOT

import spark_events

pytestmark = pytest.mark.no_cover

PACKAGE = Path(spark_events.__file__).parent
SHIM = ROOT / "jvm-shim" / "src" / "main" / "java" / "io" / "sparkevents"
#: For each word: the files, or beginnings of their paths, whose names use the word with the glossary's meaning.
MEANT = {
    "deadline": (
        "translate/deadlines/",
        "translate/endings.py",
        "translate/incidents/incidents.py",
        "translate/possible_events.py",
        "translate/summaries/application.py",
        "translate/timed_parts.py",
        "translate/translation_config.py",
        "translate/translator.py",
    ),
    "lease": ("enrichment/",),
    "limiter": ("enrichment/",),
    "round": ("enrichment/",),
    "session": (
        # a SparkSession, or a client's session of the Thrift or the Spark Connect server
        "enrichment/api/",
        "enrichment/driver/",
        "errors.py",
        "listener/ProgressTracking.java",
        "listener/StatementRecords.java",
        "records/event_log/logged_statements.py",
        "records/event_log/shapes.py",
        "records/types.py",
        "stream/shim.py",
        "stream/start.py",
        "translate/clients.py",
        "translate/executions.py",
        "translate/job_tags.py",
        "translate/queries.py",
        "translate/statements.py",
    ),
    "share": ("enrichment/",),
    "window": (
        "enrichment/",
        # of time, in the setting spark.events.sidecar.restarts.window
        "config/Settings.java",
        "dispatch/pipeline_plan.py",
        "sidecar/Restarts.java",
        "sidecar/Supervisor.java",
    ),
    "worker": (
        # a process of Spark
        "enrichment/driver/rate.py",
        "translate/recommendations.py",
        "translate/root_causes.py",
        "translate/user_code.py",
    ),
}
#: Terms of two words, of which the second alone would be wrong; and a class of Hive.
TERMS = re.compile(r"driver_?session|SessionState", re.IGNORECASE)
_COMMENT_OR_TEXT = re.compile(r"""/\*.*?\*/|//[^\n]*|^import [^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+'""", re.S | re.M)


def words_of(name: str) -> set[str]:
    """Return the words of a name in snake case or camel case, without a plural's s."""
    parts = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", TERMS.sub("_", name))
    return {part.lower().removesuffix("s") for part in parts}


def python_names(source: str) -> Iterator[str]:
    """Yield the names that a module defines: of classes, functions, arguments, variables and attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def java_names(source: str) -> Iterator[str]:
    """Yield the names that a class uses, except in comments, texts and imports."""
    yield from re.findall(r"\b[A-Za-z_]\w*", _COMMENT_OR_TEXT.sub(" ", source))


def misused(path: str, source: str) -> set[str]:
    """Return the names in a file that use a word of the glossary for something else."""
    names = [Path(path).stem, *(java_names(source) if path.endswith(".java") else python_names(source))]
    foreign = {word for word, files in MEANT.items() if not path.startswith(files)}
    return {name for name in names if words_of(name) & foreign}


def test_each_word_has_one_meaning() -> None:
    """A deadline is Spark's and a timeout ours, a session is Spark's, a worker is a process on an executor."""
    found = {
        path: names
        for root in (PACKAGE, SHIM)
        for file in sorted(root.rglob("*.py" if root is PACKAGE else "*.java"))
        if (path := file.relative_to(root).as_posix()) and (names := misused(path, file.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize("word", sorted(MEANT))
def test_the_glossary_has_the_word(word: str) -> None:
    assert re.search(rf"\*\*{word}( process)?\*\*", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("path", "source", "names"),
    [
        ("dispatch/a.py", "class Worker: ...", {"Worker"}),
        ("dispatch/a.py", "def stop(deadline): ...", {"deadline"}),
        ("dispatch/a.py", "self._next_deadline = 1", {"_next_deadline"}),
        ("dispatch/a.py", "_REPORT_SHARE = 0.1\nshares = 2", {"_REPORT_SHARE", "shares"}),
        ("dispatch/a.py", "driver_session = DriverSession()\nround(1)", set()),
        ("sidecar/session_watch.py", "", {"session_watch"}),
        ("enrichment/engine/a.py", "deadline = share = worker = 1", {"deadline", "worker"}),
        ("translate/deadlines/a.py", "deadline = 1", set()),
        ("queue/A.java", "Deadline deadline = new Deadline(); // a worker", {"Deadline", "deadline"}),
        ("listener/A.java", 'class Session { String a = "session"; SessionState b; }', {"Session"}),
    ],
)
def test_the_check_finds_other_uses(path: str, source: str, names: set[str]) -> None:
    """Control: the names that earlier versions had are found, and the glossary's own terms are not."""
    assert misused(path, source) == names
