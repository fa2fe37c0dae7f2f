"""Tests of the exit status of the driver's Python, which the sidecar reads from the kernel.

The tests use real processes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from process_status import EXIT_STATUS_IS_READABLE

from spark_events.records.types import ApplicationEnd
from spark_events.sidecar.python_program import PythonProgram

pytestmark = pytest.mark.skipif(not EXIT_STATUS_IS_READABLE, reason="Linux tells it since 6.15")

#: Code of a driver that starts a program and the sidecar, and waits until the program exits.
_UNDER_DRIVER = """
import os, subprocess, sys
program = subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, "PYSPARK_GATEWAY_PORT": "1"})
print("started", flush=True)
program.wait()
sys.stdin.read()
"""


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Iterator[tuple[PythonProgram, subprocess.Popen[str]]]:
    """Start a driver whose program waits for a line, and then runs the code of the test."""
    code = f"import os, sys; sys.stdin.readline(); {request.param}"
    driver = subprocess.Popen(
        [sys.executable, "-c", _UNDER_DRIVER, code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert driver.stdout is not None
    driver.stdout.readline()
    program = PythonProgram.of(driver.pid)
    while program is None:
        # The program's environment becomes visible only after exec.
        program = PythonProgram.of(driver.pid)
    yield program, driver
    driver.communicate(timeout=60)


def amended(run: tuple[PythonProgram, subprocess.Popen[str]], ending: str) -> ApplicationEnd:
    program, driver = run
    assert driver.stdin is not None
    driver.stdin.write("\n")
    end = ApplicationEnd(time=1, ending=ending)
    amended = program.amend(end)
    while amended is end:
        # On a busy machine, the program takes some time to exit.
        amended = program.amend(end)
    assert isinstance(amended, ApplicationEnd)
    return amended


@pytest.mark.parametrize(
    ("run", "code"),
    [("sys.exit(3)", 3), ("os._exit(7)", 7), (f"os.kill(os.getpid(), {signal.SIGSEGV})", 128 + signal.SIGSEGV)],
    indirect=["run"],
)
def test_a_program_of_spark_submit(run: tuple[PythonProgram, subprocess.Popen[str]], code: int) -> None:
    """The exit code of a program equals spark-submit's exit code; for a killed program, it equals Java's code."""
    assert amended(run, "PROGRAM_FAILED").program_exit_code == code


@pytest.mark.parametrize("run", ["sys.exit(0)"], indirect=True)
def test_known_outcomes_and_exit_codes_are_kept(run: tuple[PythonProgram, subprocess.Popen[str]]) -> None:
    """If the JVM knows the outcome, the sidecar neither reads nor waits for the exit status of the Python process."""
    program, driver = run
    for end in (
        ApplicationEnd(time=1, ending="STOPPED"),
        ApplicationEnd(time=1, ending="GATEWAY_CLOSED", program_exit_code=3),
    ):
        assert program.amend(end) is end
    assert driver.poll() is None


def test_a_driver_without_python_has_no_program() -> None:
    """A driver without Python has no program: either the program is in Scala, or its Python has exited."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as driver:
        assert PythonProgram.of(driver.pid) is None
        driver.communicate(b"\n")
