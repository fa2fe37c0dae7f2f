"""Tests of the stacks of Python functions that the JVM calls, with a real process and a real socket."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_events.records.types import Inspection, PythonFrame, QueryThread
from spark_events.sidecar import python_stacks

#: Test double of the PySpark function through which the JVM calls ``foreachBatch``.
_CALL = compile("def call(function):\n    function()\n", "/lib/pyspark/sql/utils.py", "exec")
_SERVER = """
import sys
from spark_events.sidecar import python_stacks
def book():
    print("ready", flush=True)
    sys.stdin.readline()
python_stacks.serve()
exec(compile("def call(function):\\n    function()\\n", "/lib/pyspark/sql/utils.py", "exec"))
call(book)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for temporary files of this process and its child processes."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a process whose main thread runs a function that the JVM calls."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    if process.poll() is None:
        process.communicate("\n", timeout=60)


def test_the_functions_that_the_jvm_calls() -> None:
    """The result covers only threads in a function that the JVM calls, and omits the caller's frames."""
    names: dict[str, Callable[[Callable[[], None]], None]] = {}
    exec(_CALL, names)
    entered, leave = threading.Event(), threading.Event()

    def book() -> None:
        entered.set()
        leave.wait(60)

    thread = threading.Thread(target=names["call"], args=(book,))
    thread.start()
    entered.wait(60)
    (frames,) = python_stacks.stacks()
    leave.set()
    thread.join()
    assert frames[-1].function == "book"
    assert frames[-1].file == __file__


def test_another_process_answers(server: subprocess.Popen[str]) -> None:
    """A process sends its stacks to another process on request. The process id selects the socket."""
    (frames,) = python_stacks.ask(server.pid)
    assert [frame.function for frame in frames] == ["book"]
    assert isinstance(frames[0], PythonFrame)


def test_a_process_that_does_not_answer(folder: Path) -> None:
    """A process without a socket yields no stacks. If other users can access the folder, no socket is created."""
    assert python_stacks.ask(os.getpid()) == []
    private = folder / f"spark-events-{os.getuid()}"
    private.mkdir(mode=0o777)
    private.chmod(0o777)
    python_stacks.serve()
    assert list(private.iterdir()) == []


def test_the_socket_is_removed_at_the_exit(server: subprocess.Popen[str], folder: Path) -> None:
    (path,) = folder.glob("spark-events-*/*.sock")
    server.communicate("\n", timeout=60)
    assert not path.exists()


def test_the_server_pauses_after_an_error() -> None:
    """If no connection can be accepted, as with too many open files, the server pauses between its attempts."""

    class Stop(Exception):
        """End of the test."""

    class Server:
        def accept(self) -> None:
            raise OSError(24, "Too many open files")

    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise Stop

    with pytest.raises(Stop):
        python_stacks._answer(Server(), pause)  # type: ignore[arg-type]
    assert pauses == [0.5] * 3


def test_only_queries_in_python_are_amended() -> None:
    """The sidecar requests stacks only if a query waits for Python, and then only once."""
    asked: list[int] = []

    def of() -> list[list[PythonFrame]]:
        asked.append(1)
        return [[PythonFrame("/jobs/payments.py", 16, "book")]]

    jvm = QueryThread(run_id="r1", frames=["org.apache.spark.A.b(A.scala:1)"])
    python = QueryThread(run_id="r2", frames=["py4j.reflection.PythonProxyHandler.invoke(P.java:1)"])
    record = Inspection(asked=1, overdue="", queries=[jvm])
    assert python_stacks.amend(record, of) is record
    amended = python_stacks.amend(Inspection(asked=1, overdue="", queries=[jvm, python, python]), of)
    assert [len(query.python) for query in amended.queries] == [0, 1, 1]
    assert asked == [1]
