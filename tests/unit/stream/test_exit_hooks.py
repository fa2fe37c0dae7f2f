"""Tests of failures while Python's exit reports to the JVM; tests with Spark cover the reports."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from spark_events.sidecar import python_exceptions
from spark_events.stream.exit_hooks import _Program


class Gateway:
    """Test double of PySpark's gateway. Each call of the shim raises the error."""

    def __init__(self, error: Exception | None = None, proc: subprocess.Popen[bytes] | None = None) -> None:
        self.proc = proc
        program = SimpleNamespace(ends=self._ends)
        self.jvm = SimpleNamespace(
            io=SimpleNamespace(sparkevents=SimpleNamespace(listener=SimpleNamespace(PythonProgram=program)))
        )
        self._error = error

    def _ends(self, account: str) -> None:
        if self._error is not None:
            raise self._error


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that, like a hanging JVM, keeps running although its standard input is closed."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def use(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> _Program:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    return _Program()


def test_an_older_python_can_load_the_recorder() -> None:
    """The program of `spark-events run` may have Python 3.8, and lack this package."""
    files = [Path(python_exceptions.__file__), Path(python_exceptions.__file__).parent / "site" / "sitecustomize.py"]
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
        heads = [one for one in ast.walk(tree) if isinstance(one, (ast.Import, ast.ImportFrom))]
        names = {getattr(one, "module", None) or one.names[0].name for one in heads}
        assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("error", "level"), [(TypeError("no such method"), "WARNING"), (Py4JNetworkError("the JVM has exited"), None)]
)
def test_a_report_that_the_jvm_does_not_take_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception, level: str | None
) -> None:
    """A failed report is a warning, because the outcome may be unknown, unless the JVM has already exited."""
    use(Gateway(error), monkeypatch)._report()
    assert [record.levelname for record in caplog.records] == ([] if level is None else [level])
    assert all("the application's outcome may be unknown: TypeError" in line for line in caplog.messages)


def test_a_jvm_that_exits_too_late_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, jvm: subprocess.Popen[bytes]
) -> None:
    """In a container, Python's exit logs that it does not wait longer for the JVM."""
    program: Any = use(Gateway(proc=jvm), monkeypatch)
    program.patience = 0.01
    monkeypatch.setattr(os, "getppid", lambda: 1)
    program._await_jvm()
    assert "the JVM has not exited within 0.01 s, so its last events may be missing" in caplog.text
