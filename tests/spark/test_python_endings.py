"""Tests of failing Python programs: outcome, exit code and exception, with and without exit hooks."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from process_status import EXIT_STATUS_IS_READABLE
from spark.harness import PATIENT, Lab, Run, file_reporter, two_lines

from spark_events.jars import jar_path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LINES = {**two_lines(), **PATIENT, **file_reporter(Path("{folder}/events.jsonl"), "async-queued")}
SUBMIT, PYTHON = "spark-submit", sys.executable


class Failing(NamedTuple):
    """Failure of a program: its exit code, and the expected status, severity, reason and exception."""

    start: Callable[[Lab], Run]
    code: int
    status: str
    severity: str
    reason: str
    exception: str | None = None
    error_type: str | None = None


def alone(how: str, program: str) -> Callable[[Lab], Run]:
    return lambda lab: lab.run("ending.py", how, program=[program], defaults=LINES)


def hooked(how: str, program: str, way: str = "configure") -> Callable[[Lab], Run]:
    # With spark-submit, the JVM starts before the program can configure the class path.
    path = {} if program == PYTHON else {"spark.driver.extraClassPath": str(jar_path())}
    return lambda lab: lab.run("ending_hooked.py", way, how, program=[program], defaults=path)


FAILED = ("FAILED", "INFO", "PROGRAM_FAILED")
KILLED = ("ENDED", "WARN", "PYTHON_DIED")
WITHOUT_HOOKS = {
    "stop-then-exit-3": Failing(alone("stop-then-exit-3", SUBMIT), 3, *FAILED),
    "with": Failing(alone("with", SUBMIT), 1, *FAILED),
    "missing-table": Failing(alone("missing-table", SUBMIT), 1, *FAILED),
    "plain-raise": Failing(alone("raise", PYTHON), 1, *FAILED),
    "plain-segfault": Failing(alone("segfault", PYTHON), -signal.SIGSEGV, *KILLED),
}
#: Programs whose reported outcome depends on the version of spark-submit. test_endings runs others on all versions.
ON_EVERY_SPARK = {"stop-then-exit-3"}
WITH_HOOKS = {
    "raise": Failing(hooked("raise", PYTHON), 1, *FAILED, "ValueError"),
    "exit-3": Failing(hooked("exit-3", PYTHON), 3, *FAILED),
    "stop-raise": Failing(hooked("stop-raise", PYTHON), 1, *FAILED, "ValueError"),
    "stream-raise": Failing(hooked("raise", PYTHON, "start"), 1, *FAILED, "ValueError"),
    "kill": Failing(hooked("kill", PYTHON), -signal.SIGKILL, *KILLED),
    "submit-raise": Failing(hooked("stop-raise", SUBMIT), 1, *FAILED, "ValueError"),
    "table": Failing(
        hooked("table", SUBMIT),
        1,
        *FAILED,
        "pyspark.errors.exceptions.captured.AnalysisException",
        "TABLE_OR_VIEW_NOT_FOUND",
    ),
}
GOOD = {"stop": hooked("stop", PYTHON), "caught": hooked("caught-stop", PYTHON)}


@pytest.fixture(scope="module")
def runs(lab: Lab, request: pytest.FixtureRequest) -> dict[str, Future[Run]]:
    """Run the programs of the selected tests, two at a time."""
    starts = {name: failing.start for name, failing in {**WITHOUT_HOOKS, **WITH_HOOKS}.items()}
    every = {**starts, **GOOD, "out-of-memory": alone("out-of-memory", SUBMIT)}
    tests = " ".join(item.name for item in request.session.items if item.path == request.path)
    return {
        name: lab.background(start, lab)
        for name, start in every.items()
        if f"[{name}]" in tests or name == "out-of-memory"
    }


def ended(run: Run) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the application's last status event and its failure events.

    Earlier status events may vary: a stream that starts late adds a start event.
    """
    *_, event = run.named("JobStatusChangeEvent", spark_entity="application")
    return event, run.named("JobFailureEvent", spark_entity="application")


def check(run: Run, failing: Failing, knows_code: bool) -> None:
    assert run.process.returncode == failing.code, run.tail()
    event, failures = ended(run)
    attributes = event["attributes"]
    assert (attributes["spark.status.new"], event["severity"]) == (failing.status, failing.severity), run.tail()
    assert attributes["spark.app.end_reason"] == failing.reason
    if failing.code > 0:
        assert attributes.get("spark.app.exit_code") == (failing.code if knows_code else None)
    assert len(failures) == (failing.status == "FAILED" or "spark.app.exit_signal" in attributes)
    for failure in failures:
        if failing.exception:
            assert failure["attributes"]["exception.type"] == failing.exception
        if failing.exception == "ValueError":
            assert failure["attributes"]["exception.message"] == "no price for order 7"
            assert failure["attributes"]["failure.location"].endswith("in fail")
        if failing.error_type:
            assert failure["attributes"]["error.type"] == failing.error_type


@pytest.mark.parametrize(
    "how", [how if how in ON_EVERY_SPARK else pytest.param(how, marks=pytest.mark.any_spark) for how in WITHOUT_HOOKS]
)
def test_a_program_without_hooks(runs: dict[str, Future[Run]], how: str) -> None:
    """Without exit hooks, spark-submit provides a failed program's outcome, and the kernel provides its exit code."""
    if how.startswith("plain") and not EXIT_STATUS_IS_READABLE:
        pytest.skip("only the parent can read an exit status on this kernel (needs Linux 6.15)")
    check(runs[how].result(), WITHOUT_HOOKS[how], EXIT_STATUS_IS_READABLE)


@pytest.mark.any_spark
@pytest.mark.parametrize("how", WITH_HOOKS)
def test_a_program_with_hooks(runs: dict[str, Future[Run]], how: str) -> None:
    """With exit hooks, the events of a failed program contain the exception and the exit code on any kernel."""
    check(runs[how].result(), WITH_HOOKS[how], True)


def test_a_driver_that_spark_exits_after_an_out_of_memory_error(runs: dict[str, Future[Run]]) -> None:
    """A driver that Spark terminates with exit code 52 after an OutOfMemoryError is FAILED, with the label SYSTEM."""
    run = runs["out-of-memory"].result()
    assert run.process.returncode == 52, run.tail()
    event, (failure,) = ended(run)
    assert (event["attributes"]["spark.status.new"], event["attributes"]["spark.app.end_reason"]) == (
        "FAILED",
        "SPARK_EXITED",
    )
    assert failure["attributes"]["exception.type"] == "java.lang.OutOfMemoryError"
    assert failure["attributes"]["failure.label.type"] == "SYSTEM"


@pytest.mark.any_spark
@pytest.mark.parametrize("how", GOOD)
def test_a_program_with_hooks_that_succeeds(runs: dict[str, Future[Run]], how: str) -> None:
    """Exit hooks do not change the exit code of a successful program, and they ignore a caught SystemExit."""
    run = runs[how].result()
    assert run.process.returncode == 0
    event, failures = ended(run)
    assert (event["attributes"]["spark.status.new"], failures) == ("FINISHED", [])
    assert run.own_messages == []
