"""Tests of sidecars that crash repeatedly or never become ready: the job continues, and one message is logged."""

from __future__ import annotations

import re
import time
from concurrent.futures import Future

import pytest
from spark.harness import Lab, Run, parts, two_lines
from spark.sidecar_double import make, records, starts

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.faults, pytest.mark.timeout(1800)]

GIVEN_UP = "no more events will be reported"
ASYNC = {"events.dispatcher.type": "async-queued"}


LIMIT = "events.sidecar.restarts.max"
#: Behavior of the sidecars of each application, and the application's settings.
FAULTS: dict[str, tuple[str, dict[str, str]]] = {
    # Every sidecar dies at the same record.
    "poisoned": ("dies of jobs", {**ASYNC, LIMIT: "3"}),
    # The sidecar dies, and no restart is allowed.
    "poisoned-once": ("dies of jobs", {LIMIT: "0"}),
    # The first sidecar dies during its start, and the second dies later. No further sidecar starts.
    "never-starting-again": ("starts badly for ever", {**ASYNC, LIMIT: "3"}),
    # The sidecar's start timeout expires while the application runs.
    "hanging-for-a-while": ("hangs", {**ASYNC, "events.sidecar.start-timeout": "500ms"}),
    # The sidecar is still starting when the application ends.
    "hanging": ("hangs", {**ASYNC, "events.shutdown.timeout": "1s"}),
    # The application ends before its third sidecar receives the record at which two sidecars died.
    "poisoned-in-the-drain": ("dies twice of jobs", {}),
    # All sidecars except two fail to start, or are killed during their start.
    "starting-badly": ("starts badly", {}),
}
#: Applications that run until the driver starts no further sidecar.
GIVING_UP = ("poisoned", "poisoned-once", "never-starting-again")
#: Applications of one process. Of these, only the last has a sidecar at its end: the driver drains the queue of such an
#: application when the JVM exits.
SHARED = (*GIVING_UP, "hanging-for-a-while", "hanging")


def settings_of(lab: Lab, fault: str) -> dict[str, str]:
    how, settings = FAULTS[fault]
    return {**make(lab.folder / fault, how), **settings}


def stop_without_further_restarts(run: Run) -> None:
    """Wait until no restart of the application's sidecar remains, and let the application end."""
    run.wait_until_announced("counted")
    run.wait_for("the end of the restarts", lambda: GIVEN_UP in run.log)
    run.command("stop")


def run_shared(lab: Lab) -> tuple[Run, float]:
    """Run the applications of one process, and return how long the process runs after the last application's job."""
    applications = parts({fault: settings_of(lab, fault) for fault in SHARED})
    job = lab.start("applications.py", applications, *GIVING_UP, "hanging-for-a-while", defaults=two_lines())
    for fault in GIVING_UP:
        stop_without_further_restarts(job.part(fault))
    run = job.part("hanging-for-a-while")
    run.wait_until_announced("counted")
    run.wait_for("the end of the patience", lambda: run.own_messages)
    assert run.sidecars() == []
    run.command("stop")
    job.part("hanging").wait_until_announced("counted")
    counted = time.monotonic()
    job.wait()
    return job, time.monotonic() - counted


@pytest.fixture(scope="module")
def shared(lab: Lab) -> Future[tuple[Run, float]]:
    """Return the process with several applications."""
    return lab.background(run_shared, lab)


@pytest.fixture(scope="module")
def runs(lab: Lab, shared: Future[tuple[Run, float]]) -> dict[str, Run]:
    """Return all finished applications."""
    alone = {
        fault: lab.background(lab.run, "ending.py", defaults={**two_lines(), **settings_of(lab, fault)})
        for fault in FAULTS
        if fault not in SHARED
    }
    job, _ = shared.result()
    return {
        **{fault: job.part(fault) for fault in SHARED},
        **{fault: future.result() for fault, future in alone.items()},
    }


@pytest.mark.parametrize("fault", FAULTS)
def test_the_job_succeeds(runs: dict[str, Run], fault: str) -> None:
    run = runs[fault]
    assert run.process.returncode == 0, run.tail()
    assert fault not in SHARED or (run.folder / "stopped").exists()


@pytest.mark.parametrize(("fault", "most"), [("poisoned", 3), ("poisoned-once", 0)])
def test_restarts_are_limited(lab: Lab, runs: dict[str, Run], fault: str, most: int) -> None:
    """A sidecar that always dies at the same record is restarted until the limit of restarts is reached."""
    run = runs[fault]
    assert starts(lab.folder / fault) == most + 1
    errors = [message for message in run.own_messages if " ERROR " in message]
    assert len(errors) == 1
    assert GIVEN_UP in errors[0]
    assert f"events.sidecar.restarts.max = {most}" in errors[0]


def test_pauses_between_restarts_double(runs: dict[str, Run]) -> None:
    """Each restart of a sidecar is logged, and each pause is twice as long as the previous pause."""
    run = runs["poisoned"]
    pauses = [int(pause) for pause in re.findall(r"restarting it in (\d+) ms", run.log)]
    assert pauses == [100, 200, 400]


@pytest.mark.parametrize("fault", ["poisoned", "poisoned-once", "never-starting-again"])
def test_lost_records_are_counted_at_the_end(runs: dict[str, Run], fault: str) -> None:
    """The driver's last message contains the number of lost records by kind."""
    run = runs[fault]
    assert "Lost records that no event reports" in run.own_messages[-1]
    # Without a sidecar, the application's end is also lost.
    assert "application_end=1" in run.own_messages[-1]


def test_the_last_records_survive_deaths_in_the_drain(lab: Lab, runs: dict[str, Run]) -> None:
    """After the application's end, sidecars restart without a pause, and the last sidecar receives every record."""
    run = runs["poisoned-in-the-drain"]
    folder = lab.folder / "poisoned-in-the-drain"
    assert starts(folder) == 3
    assert records(folder)[-1]["kind"] == "goodbye"
    assert records(folder)[-2]["kind"] == "application_end"
    assert not [message for message in run.own_messages if " ERROR " in message]


def test_a_sidecar_killed_during_its_start_is_restarted(lab: Lab, runs: dict[str, Run]) -> None:
    """If a later sidecar fails to start, it is also replaced, and the last sidecar receives every record."""
    run = runs["starting-badly"]
    folder = lab.folder / "starting-badly"
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


def test_failed_starts_are_limited(lab: Lab, runs: dict[str, Run]) -> None:
    """Failed starts and later deaths count against the same limit."""
    run = runs["never-starting-again"]
    assert starts(lab.folder / "never-starting-again") == 4
    (error,) = [message for message in run.own_messages if " ERROR " in message]
    assert GIVEN_UP in error
    assert "events.sidecar.restarts.max = 3" in error
    assert "the last one did not start (" in error


def test_a_sidecar_that_never_starts_does_not_delay_the_end(
    shared: Future[tuple[Run, float]], runs: dict[str, Run]
) -> None:
    """At the application's end, the driver waits for the shutdown timeout, here 1 s, and then kills the sidecar."""
    run, took = runs["hanging"], shared.result()[1]
    assert run.process.returncode == 0, run.tail()
    # Most of the 15 s are for Spark's shutdown on a busy machine. Waiting for the start timeout would take 30 s.
    assert took < 15
    (message,) = run.own_messages
    assert "The application ended before the sidecar was ready" in message


def test_a_hanging_start_is_logged_once(runs: dict[str, Run]) -> None:
    """After the start timeout, the sidecar is killed, and the log names the setting."""
    (message,) = runs["hanging-for-a-while"].own_messages
    assert "no answer within 500 ms (spark.events.sidecar.start-timeout)" in message
    assert "the job continues without them" in message
