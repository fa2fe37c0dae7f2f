"""Tests of sidecars that crash repeatedly or never become ready: the job continues, and one message is logged."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from spark.harness import Lab, Run, two_lines
from spark.sidecar_double import make, records, starts

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.faults, pytest.mark.timeout(1800)]

GIVEN_UP = "no more events will be reported"
ASYNC = {"events.dispatcher.type": "async-queued"}


def without_further_restarts(lab: Lab, name: str, how: str, **settings: str) -> Run:
    """Run a job whose sidecars fail until no restart remains."""
    lines = {**two_lines(), **make(lab.folder / name, how), **settings}
    run = lab.start("ending.py", "wait", defaults=lines)
    run.wait_for("the end of the restarts", lambda: GIVEN_UP in run.log)
    run.command("stop")
    run.wait()
    return run


def poisoned(lab: Lab) -> Run:
    """Run a job in which every sidecar dies at the same record."""
    return without_further_restarts(lab, "poisoned", "dies of jobs", **ASYNC, **{"events.sidecar.restarts.max": "3"})


def poisoned_once(lab: Lab) -> Run:
    """Run a job in which the sidecar dies and no restart is allowed."""
    return without_further_restarts(lab, "once", "dies of jobs", **{"spark.events.sidecar.restarts.max": "0"})


def poisoned_in_the_drain(lab: Lab) -> Run:
    """Run a job that ends before its third sidecar receives the record at which two sidecars died."""
    folder = lab.folder / "drain"
    return lab.run("ending.py", defaults={**two_lines(), **make(folder, "dies twice of jobs")})


def starting_badly(lab: Lab) -> Run:
    """Run a job in which all sidecars except two fail to start, or are killed during their start."""
    folder = lab.folder / "badly"
    return lab.run("ending.py", defaults={**two_lines(), **make(folder, "starts badly")})


def never_starting_again(lab: Lab) -> Run:
    """Run a job whose first sidecar dies during its start, and whose second dies later. No further sidecar starts."""
    return without_further_restarts(
        lab, "broken", "starts badly for ever", **ASYNC, **{"events.sidecar.restarts.max": "3"}
    )


def hanging(lab: Lab) -> tuple[Run, float]:
    """Run a job whose sidecar hangs, and return how long the application takes to exit."""
    lines = {**two_lines(), **make(lab.folder / "hanging", "hangs"), "events.shutdown.timeout": "1s"}
    run = lab.start("ending.py", defaults={**lines, **ASYNC})
    run.wait_until_announced("counted")
    counted = time.monotonic()
    run.wait()
    return run, time.monotonic() - counted


def hanging_for_a_while(lab: Lab) -> Run:
    """Run a job in which the sidecar's start timeout expires while the job runs."""
    lines = {**two_lines(), **make(lab.folder / "late", "hangs"), "events.sidecar.start-timeout": "500ms"}
    run = lab.start("ending.py", "wait", defaults={**lines, **ASYNC})
    run.wait_for("the end of the patience", lambda: run.own_messages)
    assert run.sidecars() == []
    run.command("stop")
    run.wait()
    return run


FAULTS: dict[str, Callable[[Lab], Run]] = {
    "poisoned": poisoned,
    "poisoned-once": poisoned_once,
    "poisoned-in-the-drain": poisoned_in_the_drain,
    "starting-badly": starting_badly,
    "never-starting-again": never_starting_again,
    "hanging-for-a-while": hanging_for_a_while,
}


@pytest.fixture(scope="module")
def hung(lab: Lab) -> Future[tuple[Run, float]]:
    """Return a run whose sidecar was still starting when the application ended."""
    return lab.background(hanging, lab)


@pytest.fixture(scope="module")
def runs(lab: Lab, hung: Future[tuple[Run, float]]) -> dict[str, Future[Run]]:
    """Run all jobs except the job of :func:`hung`."""
    return {name: lab.background(start, lab) for name, start in FAULTS.items()}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_job_succeeds(runs: dict[str, Future[Run]], fault: str) -> None:
    """A job succeeds even if its sidecars die or hang."""
    run = runs[fault].result()
    assert run.process.returncode == 0, run.tail()


@pytest.mark.parametrize(("fault", "most"), [("poisoned", 3), ("poisoned-once", 0)])
def test_restarts_are_limited(lab: Lab, runs: dict[str, Future[Run]], fault: str, most: int) -> None:
    """A sidecar that always dies at the same record is restarted until the limit of restarts is reached."""
    run = runs[fault].result()
    folder = lab.folder / fault.removeprefix("poisoned-")
    assert starts(folder) == most + 1
    errors = [message for message in run.own_messages if " ERROR " in message]
    assert len(errors) == 1
    assert GIVEN_UP in errors[0]
    assert f"events.sidecar.restarts.max = {most}" in errors[0]


def test_pauses_between_restarts_double(runs: dict[str, Future[Run]]) -> None:
    """Each restart of a sidecar is logged, and each pause is twice as long as the previous pause."""
    run = runs["poisoned"].result()
    pauses = [int(pause) for pause in re.findall(r"restarting it in (\d+) ms", run.log)]
    assert pauses == [100, 200, 400]


@pytest.mark.parametrize("fault", ["poisoned", "poisoned-once", "never-starting-again"])
def test_lost_records_are_counted_at_the_end(runs: dict[str, Future[Run]], fault: str) -> None:
    """The driver's last message contains the number of lost records by kind."""
    run = runs[fault].result()
    assert "Lost records that no event reports" in run.own_messages[-1]
    # Without a sidecar, the application's end is also lost.
    assert "application_end=1" in run.own_messages[-1]


def test_the_last_records_survive_deaths_in_the_drain(lab: Lab, runs: dict[str, Future[Run]]) -> None:
    """After the application's end, sidecars restart without a pause, and the last sidecar receives every record."""
    run = runs["poisoned-in-the-drain"].result()
    folder = lab.folder / "drain"
    assert starts(folder) == 3
    assert records(folder)[-1]["kind"] == "goodbye"
    assert records(folder)[-2]["kind"] == "application_end"
    assert not [message for message in run.own_messages if " ERROR " in message]


def test_a_sidecar_killed_during_its_start_is_restarted(lab: Lab, runs: dict[str, Future[Run]]) -> None:
    """If a later sidecar fails to start, it is also replaced, and the last sidecar receives every record."""
    run = runs["starting-badly"].result()
    folder = lab.folder / "badly"
    assert starts(folder) == 5
    kinds = [record["kind"] for record in records(folder) if record["kind"] != "sql_execution_start"]
    # The last sidecar receives the acknowledged records as restore state, and then the record at which the second
    # sidecar died.
    assert kinds[:4] == ["application_start", "job_start", "restored", "job_start"]
    assert kinds[-2:] == ["application_end", "goodbye"]
    what = [re.sub(r"; restarting it in .*", "", one.partition("the sidecar ")[2]) for one in run.own_messages]
    assert [re.sub(r"\(/.*: process", "(…: process", one) for one in what] == [
        "did not start (process ended before it was ready, exit code 137 (signal 9))",
        "ended (exit code 9)",
        "did not start (…: process ended before it was ready, exit code 1)",
        "did not start (process ended before it was ready, exit code 137 (signal 9))",
    ]


def test_failed_starts_are_limited(lab: Lab, runs: dict[str, Future[Run]]) -> None:
    """Failed starts and later deaths count against the same limit."""
    run = runs["never-starting-again"].result()
    assert starts(lab.folder / "broken") == 4
    (error,) = [message for message in run.own_messages if " ERROR " in message]
    assert GIVEN_UP in error
    assert "events.sidecar.restarts.max = 3" in error
    assert "the last one did not start (" in error


def test_a_sidecar_that_never_starts_does_not_delay_the_end(hung: Future[tuple[Run, float]]) -> None:
    """At the application's end, the driver waits for the shutdown timeout, here 1 s, and then kills the sidecar."""
    run, took = hung.result()
    assert run.process.returncode == 0, run.tail()
    # Most of the 15 s are for Spark's shutdown on a busy machine. Waiting for the start timeout would take 30 s.
    assert took < 15
    (message,) = run.own_messages
    assert "The application ended before the sidecar was ready" in message


def test_a_hanging_start_is_logged_once(runs: dict[str, Future[Run]]) -> None:
    """After the start timeout, the sidecar is killed, and the log names the setting."""
    (message,) = runs["hanging-for-a-while"].result().own_messages
    assert "no answer within 500 ms (spark.events.sidecar.start-timeout)" in message
    assert "the job continues without them" in message
