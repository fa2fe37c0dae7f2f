"""Tests of delivery guarantees with real applications: over several runs, during jobs, and for several endings."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fakes import counters_of
from spark.harness import PATIENT, REPORTERS, Lab, Run, pyspark_home, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

PROBES = {"PYTHONPATH": str(REPORTERS)}
TERMINAL = Path(__file__).with_name("terminal.py")
#: Delay of the slow reporter, and timeout of the hanging reporter. Both far exceed the delays of a slow machine.
SLOW_SECONDS, TIMEOUT_SECONDS = 4.0, 10.0
GOOD_JOBS = 10


# --- at-least-once, over two runs ---------------------------------------------------------------


def spooled(folder: Path) -> dict[str, str]:
    """Return settings with a spool in ``folder``, and a destination that fails while ``folder/away`` exists."""
    return {
        **two_lines(),
        "events.dispatcher.type": "async-queued",
        "events.reporters": "audit",
        "events.reporter.audit.type": "probes:AwayFile",
        "events.reporter.audit.path": str(folder / "events.jsonl"),
        "events.reporter.audit.folder": str(folder),
        "events.reporter.audit.delivery.guarantee": "at-least-once",
        "events.reporter.audit.spool.directory": str(folder / "spool"),
    }


def two_runs(lab: Lab) -> tuple[list[dict[str, Any]], Run, Path]:
    """Return two runs: the first is killed while its destination fails; the second has a working destination."""
    folder = lab.folder / "two-runs"
    folder.mkdir()
    (folder / "away").touch()
    first = lab.start("ending.py", "wait", defaults=spooled(folder), env=PROBES)
    first.wait_until_announced("counted")
    # Wait until the sidecar is ready, even if the job has already ended: the sidecar spools no event earlier.
    first.wait_for("an event to be tried", (folder / "tried").exists)
    first.signal(first.driver(), signal.SIGKILL)
    first.wait()
    assert not (folder / "events.jsonl").exists() or not first.events(folder / "events.jsonl")
    (folder / "away").unlink()
    second = lab.run("ending.py", "stop", defaults={**spooled(folder), **PATIENT}, env=PROBES)
    return second.events(folder / "events.jsonl"), second, folder


@pytest.fixture(scope="module")
def killed(lab: Lab) -> Future[tuple[list[dict[str, Any]], Run, Path]]:
    """Return two runs of one application, of which the first is killed."""
    return lab.background(two_runs, lab)


# --- guaranteed ---------------------------------------------------------------------------------


def guaranteed(lab: Lab, duration: str, **settings: str) -> Run:
    """Run a job with a slow guaranteed reporter for failures and a reporter for all events."""
    lines = {
        **two_lines(),
        "events.dispatcher.type": "async-queued",
        **PATIENT,
        "events.reporters": "all, pager",
        "events.reporter.all.type": "probes:Timed",
        "events.reporter.all.path": "{folder}/all.jsonl",
        "events.reporter.pager.type": "probes:Timed",
        "events.reporter.pager.path": "{folder}/pager.jsonl",
        "events.reporter.pager.takes": duration,
        "events.reporter.pager.timeout": "10min",
        "events.reporter.pager.filter.includes": "*:JobFailureEvent",
        "events.reporter.pager.delivery.guarantee": "guaranteed",
        **settings,
    }
    return lab.run("failing.py", str(GOOD_JOBS), defaults=lines, env=PROBES)


def answered(run: Run, reporter: str) -> list[dict[str, Any]]:
    return run.events(run.folder / f"{reporter}.jsonl")


@pytest.fixture(scope="module")
def slow(lab: Lab) -> Future[Run]:
    """Return a run with a slow guaranteed reporter."""
    return lab.background(guaranteed, lab, f"{SLOW_SECONDS * 1000:.0f}ms")


@pytest.fixture(scope="module")
def hung(lab: Lab) -> Future[Run]:
    """Return a run with a guaranteed reporter that never returns."""
    # The application ends while Spark waits for the reporter. The wait may take up to half of the shutdown timeout.
    shutdown = 2 * TIMEOUT_SECONDS + 2
    times = {"events.dispatcher.sync.timeout": f"{TIMEOUT_SECONDS:.0f}s", "events.shutdown.timeout": f"{shutdown:.0f}s"}
    return lab.background(guaranteed, lab, "1h", **times)


# --- endings ------------------------------------------------------------------------------------


def lines_of(lab: Lab, name: str) -> dict[str, str]:
    folder = lab.folder / name
    folder.mkdir()
    return {**spooled(folder), **PATIENT, "events.reporter.audit.path": "{folder}/events.jsonl"}


def stopped(lab: Lab) -> Run:
    return lab.run("ending.py", "stop", defaults=lines_of(lab, "stopped"), env=PROBES)


def terminated(lab: Lab) -> Run:
    run = lab.start("ending.py", "wait", defaults=lines_of(lab, "terminated"), env=PROBES)
    run.wait_until_announced("counted")
    run.signal(run.driver(), signal.SIGTERM)
    run.wait()
    return run


def exited(lab: Lab) -> Run:
    return lab.run("ending.py", "system-exit", defaults=lines_of(lab, "exited"), env=PROBES)


def interrupted(lab: Lab) -> Run:
    program = [sys.executable, str(TERMINAL), str(pyspark_home() / "bin" / "spark-submit")]
    run = lab.start("ending.py", "wait", program=program, defaults=lines_of(lab, "interrupted"), env=PROBES)
    run.wait_until_announced("counted")
    run.command("press")
    run.wait()
    return run


ENDINGS: dict[str, tuple[Callable[[Lab], Run], str]] = {
    "stopped": (stopped, "STOPPED"),
    "terminated": (terminated, "SIGTERM"),
    "exited": (exited, "EXITED"),
    "interrupted": (interrupted, "SIGINT"),
}


@pytest.fixture(scope="module")
def ended(lab: Lab, killed: Future[Any], slow: Future[Run], hung: Future[Run]) -> dict[str, Future[Run]]:
    """Run one application for each ending, two at a time."""
    return {how: lab.background(start, lab) for how, (start, _) in ENDINGS.items()}


# --- tests --------------------------------------------------------------------------------------


def test_the_second_run_delivers_the_first_run_s_events(killed: Future[tuple[list[dict[str, Any]], Run, Path]]) -> None:
    """The second run delivers the first run's events, including LOST, in order and before its own events."""
    events, second, folder = killed.result()
    runs = list(dict.fromkeys(event["attributes"]["spark.app.id"] for event in events))
    assert len(runs) == 2
    first, own = ([e for e in events if e["attributes"]["spark.app.id"] == run] for run in runs)
    assert events == [*first, *own]
    for some in (first, own):
        assert [event["sequence"] for event in some] == list(range(1, len(some) + 1))
    statuses = [
        e["attributes"]["spark.status.new"] for e in first if e["attributes"].get("spark.entity") == "application"
    ]
    assert statuses == ["RUNNING", "LOST"]
    assert any("events of an earlier run first" in line for line in second.own_messages)
    assert list((folder / "spool").iterdir()) == []


def test_the_counts_of_both_runs_agree(killed: Future[tuple[list[dict[str, Any]], Run, Path]]) -> None:
    """The second run counts the first run's spooled events as accepted and delivered."""
    events, _, _ = killed.result()
    first, second = (e["attributes"] for e in events if e["name"] == "DispatcherReportEvent")
    runs = [first["spark.app.id"], second["spark.app.id"]]
    reported = [sum(e["attributes"]["spark.app.id"] == run for e in events) for run in runs]
    before, after = counters_of(first, "audit"), counters_of(second, "audit")
    # The counters in the report do not include the report itself.
    assert (before["spooled"], before["delivered"]) == (reported[0] - 1, 0)
    assert after["delivered"] == after["accepted"] == reported[0] + reported[1] - 1


def test_a_slow_guaranteed_reporter_gets_failures_only(slow: Future[Run]) -> None:
    """The slow guaranteed reporter receives the failures of two jobs and their stages, and no other event."""
    reported = answered(slow.result(), "pager")
    assert {one["name"] for one in reported} == {"JobFailureEvent"}
    assert len(reported) == 4


def test_spark_s_listener_waits_for_a_guaranteed_failure(slow: Future[Run]) -> None:
    """After a failed job, no reporter receives later events before the slow reporter has delivered the failure."""
    run = slow.result()
    (first, second) = sorted({one["job"] for one in answered(run, "pager") if one["job"] is not None})
    for failed in (first, second):
        reported = next(one["answered"] for one in answered(run, "pager") if one["job"] == failed)
        later = [one["came"] for one in answered(run, "all") if one["job"] is not None and one["job"] > failed]
        assert min(later) >= reported
    assert not [message for message in run.own_messages if "sync.timeout" in message]


def test_successful_jobs_are_not_delayed(slow: Future[Run]) -> None:
    """The events of successful jobs arrive as fast as without the slow reporter."""
    reported = [one for one in answered(slow.result(), "all") if one["status"] == "FINISHED" and one["job"] is not None]
    assert len(reported) == 2 * GOOD_JOBS
    before = [one["came"] for one in reported[:GOOD_JOBS]]
    assert max(before) - min(before) < slow.result().truth()["before"] + SLOW_SECONDS / 2


def test_a_hung_guaranteed_reporter_causes_one_timeout(hung: Future[Run]) -> None:
    """A hanging guaranteed reporter causes one timeout and one log message. Other reporters receive every event."""
    run = hung.result()
    assert run.process.returncode == 0, run.tail()
    # Exclude the sidecar's final report, which is created after the wait for the reporters.
    reported = [one for one in answered(run, "all") if one["name"] != "DispatcherReportEvent"]
    ends = [one for one in reported if one["job"] is not None and one["status"] in ("FINISHED", "FAILED")]
    assert len(ends) == 2 * GOOD_JOBS + 2
    failed = next(index for index, one in enumerate(reported) if one["name"] == "JobFailureEvent")
    came = [one["came"] for one in reported[failed:]]
    gaps = [later - earlier for earlier, later in pairwise(came)]
    first, second = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[:2]
    # Measure the delay of later events from the time of Spark's event, which precedes each delivery.
    assert came[first + 1] - reported[failed]["happened"] >= TIMEOUT_SECONDS
    assert gaps[first] < TIMEOUT_SECONDS + 5
    assert gaps[second] < TIMEOUT_SECONDS - 0.5
    # If the sidecar receives no processor time for another half second, the shim also logs the timeout.
    messages = [message for message in run.own_messages if "sync.timeout" in message]
    assert len([message for message in messages if "reporter pager" in message]) == 1
    assert len([message for message in messages if "reporter pager" not in message]) <= 1


@pytest.mark.parametrize("how", ENDINGS)
def test_all_events_are_delivered_for_every_ending(ended: dict[str, Future[Run]], how: str) -> None:
    """However the application ends, events are delivered in order, and no spooled event and no sidecar remains."""
    run = ended[how].result()
    events = run.events()
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["name"] == "DispatcherReportEvent"
    (end,) = [e for e in run.named("JobStatusChangeEvent", spark_entity="application") if e["sequence"] > 1]
    assert end["attributes"]["spark.app.end_reason"] == ENDINGS[how][1]
    audit = counters_of(events[-1]["attributes"], "audit")
    assert (audit["spooled"], audit["held"]) == (0, 0)
    assert audit["delivered"] == audit["accepted"] == len(events) - 1
    spool = run.folder.parent / how / "spool"
    assert list(spool.iterdir()) == []
