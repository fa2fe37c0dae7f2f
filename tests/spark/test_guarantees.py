"""Tests of delivery guarantees with real applications: over several runs, during jobs, and for several endings."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import Future
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fakes import counters_of
from spark.harness import PATIENT, REPORTERS, Lab, Run, parts, pyspark_home, two_lines

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
    """Return two runs: the first is killed while its destination fails; the second has a working destination.

    The process of the second run also runs the application ``stopped``.
    """
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
    applications = {"second": {**spooled(folder), "spark.app.name": "ending"}, "stopped": lines_of(lab, "stopped")}
    job = lab.run("applications.py", parts(applications), defaults={**two_lines(), **PATIENT}, env=PROBES)
    return job.events(folder / "events.jsonl"), job, folder


@pytest.fixture(scope="module")
def killed(lab: Lab) -> Future[tuple[list[dict[str, Any]], Run, Path]]:
    """Return two runs of one application, of which the first is killed."""
    return lab.background(two_runs, lab)


# --- guaranteed ---------------------------------------------------------------------------------


def guaranteed(duration: str, **settings: str) -> dict[str, str]:
    """Return settings with a slow guaranteed reporter for failures and a reporter for all events."""
    return {
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


def slow_and_hung(lab: Lab) -> Run:
    """Run two applications in one process: one with a slow guaranteed reporter, one with a hanging one."""
    # The second application ends while Spark waits for the reporter. The wait may take up to half of the shutdown
    # timeout.
    shutdown = 2 * TIMEOUT_SECONDS + 2
    times = {"events.dispatcher.sync.timeout": f"{TIMEOUT_SECONDS:.0f}s", "events.shutdown.timeout": f"{shutdown:.0f}s"}
    # The messages about the end of the first application must be in its own part of the log.
    at_once = {"events.shutdown.outcome-timeout": "0ms"}
    applications = {"slow": guaranteed(f"{SLOW_SECONDS * 1000:.0f}ms", **at_once), "hung": guaranteed("1h", **times)}
    return lab.run("failing.py", parts(applications), str(GOOD_JOBS), defaults=two_lines(), env=PROBES)


def answered(run: Run, reporter: str) -> list[dict[str, Any]]:
    return run.events(run.folder / f"{reporter}.jsonl")


@pytest.fixture(scope="module")
def waiting(lab: Lab) -> Future[Run]:
    """Return a run of two applications with guaranteed reporters."""
    return lab.background(slow_and_hung, lab)


@pytest.fixture(scope="module")
def slow(waiting: Future[Run]) -> Run:
    """Return the application with a slow guaranteed reporter."""
    return waiting.result().part("slow")


@pytest.fixture(scope="module")
def hung(waiting: Future[Run]) -> Run:
    """Return the application with a guaranteed reporter that never returns."""
    return waiting.result().part("hung")


# --- endings ------------------------------------------------------------------------------------


def lines_of(lab: Lab, name: str) -> dict[str, str]:
    folder = lab.folder / name
    folder.mkdir()
    return {**spooled(folder), **PATIENT, "events.reporter.audit.path": "{folder}/events.jsonl"}


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


REASONS = {"stopped": "STOPPED", "terminated": "SIGTERM", "exited": "EXITED", "interrupted": "SIGINT"}


@pytest.fixture(scope="module")
def ended(
    lab: Lab, killed: Future[tuple[list[dict[str, Any]], Run, Path]], waiting: Future[Run]
) -> dict[str, Future[Run]]:
    """Run one application for each ending, two at a time."""
    return {
        "stopped": lab.background(lambda: killed.result()[1].part("stopped")),
        **{start.__name__: lab.background(start, lab) for start in (terminated, exited, interrupted)},
    }


# --- tests --------------------------------------------------------------------------------------


def test_the_second_run_delivers_the_first_run_s_events(killed: Future[tuple[list[dict[str, Any]], Run, Path]]) -> None:
    events, job, folder = killed.result()
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
    assert any("events of an earlier run first" in line for line in job.part("second").own_messages)
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


def test_a_slow_guaranteed_reporter_gets_failures_only(slow: Run) -> None:
    """The slow guaranteed reporter receives the failures of two jobs, their stages and SQL executions, and no other."""
    reported = answered(slow, "pager")
    assert {one["name"] for one in reported} == {"JobFailureEvent"}
    assert len(reported) == 6


def test_spark_s_listener_waits_for_a_guaranteed_failure(slow: Run) -> None:
    """After a failed job, no reporter receives later events before the slow reporter has delivered the failure."""
    run = slow
    (first, second) = sorted({one["job"] for one in answered(run, "pager") if one["job"] is not None})
    for failed in (first, second):
        reported = next(one["answered"] for one in answered(run, "pager") if one["job"] == failed)
        later = [one["came"] for one in answered(run, "all") if one["job"] is not None and one["job"] > failed]
        assert min(later) >= reported
    assert not [message for message in run.own_messages if "sync.timeout" in message]


def test_successful_jobs_are_not_delayed(slow: Run) -> None:
    """The events of successful jobs arrive as fast as without the slow reporter."""
    reported = [one for one in answered(slow, "all") if one["status"] == "FINISHED" and one["job"] is not None]
    assert len(reported) == 2 * GOOD_JOBS
    before = [one["came"] for one in reported[:GOOD_JOBS]]
    assert max(before) - min(before) < slow.truth()["before"] + SLOW_SECONDS / 2


def test_a_hung_guaranteed_reporter_causes_one_timeout(hung: Run) -> None:
    """A hanging guaranteed reporter causes one timeout and one log message. Other reporters receive every event."""
    run = hung
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


@pytest.mark.parametrize("how", REASONS)
def test_all_events_are_delivered_for_every_ending(lab: Lab, ended: dict[str, Future[Run]], how: str) -> None:
    """However the application ends, events are delivered in order, and no spooled event and no sidecar remains."""
    run = ended[how].result()
    events = run.events()
    assert [event["sequence"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["name"] == "DispatcherReportEvent"
    (end,) = [e for e in run.named("JobStatusChangeEvent", spark_entity="application") if e["sequence"] > 1]
    assert end["attributes"]["spark.app.end_reason"] == REASONS[how]
    audit = counters_of(events[-1]["attributes"], "audit")
    assert (audit["spooled"], audit["held"]) == (0, 0)
    assert audit["delivered"] == audit["accepted"] == len(events) - 1
    spool = lab.folder / how / "spool"
    assert list(spool.iterdir()) == []
