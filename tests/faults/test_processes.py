"""Tests with killed drivers, and with killed or stopped sidecars: the job continues, and the events are correct."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from lateness import Witness
from spark.harness import REPORTERS, Lab, Run, file_reporter, two_lines, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.faults, pytest.mark.timeout(1800)]

#: Attributes that identify a status change or a commit.
IDENTITY = ("spark.entity", "spark.job.id", "spark.status.new", "spark.batch.id")
PATH = Path("{folder}/events.jsonl")
SYNC = {**two_lines(), **file_reporter(PATH)}
ASYNC = {**two_lines(), **file_reporter(PATH, "async-queued")}
GATED = {
    **ASYNC,
    "events.reporter.audit.type": "probes:GatedFile",
    "events.reporter.audit.folder": "{folder}",
    "events.reporter.audit.timeout": "120s",
    "events.shutdown.timeout": "60s",
}


def commits_reported(run: Run) -> list[int]:
    return [event["attributes"]["spark.batch.id"] for event in run.named("BatchCommitEvent")]


def wait_for_more(run: Run, batches: int) -> None:
    """Wait until the file contains ``batches`` further batches."""
    target = len(set(commits_reported(run))) + batches
    run.wait_for(f"{batches} more commits to be reported", lambda: len(set(commits_reported(run))) >= target)


def stop(run: Run) -> Run:
    run.command("stop")
    run.wait()
    return run


def killed_driver(lab: Lab) -> tuple[Run, float, float]:
    """Kill a driver. Return the run, the seconds until LOST was in the file, and the seconds until the sidecar's exit.

    Both durations exclude stalls of the machine (see Witness).
    """
    run = lab.start("stream.py", defaults=ASYNC)
    wait_for_more(run, 3)
    driver, sidecar = run.driver(), run.sidecar()
    with Witness() as witness:
        run.signal(driver, signal.SIGKILL)
        died = time.monotonic()
        wait_for("LOST", lambda: run.named("JobStatusChangeEvent", spark_status_new="LOST"))
        seconds = witness.took(died)
        wait_for("the sidecar to be gone", lambda: sidecar not in run.sidecars())
        gone = witness.took(died)
    run.wait()
    return run, seconds, gone


def killed_sidecar(lines: dict[str, str]) -> Callable[[Lab], Run]:
    def start(lab: Lab) -> Run:
        run = lab.start("stream.py", defaults=lines)
        known: list[int] = []
        for _ in range(3):
            wait_for_more(run, 2)
            known.append(run.next_sidecar(*known))
            run.signal(known[-1], signal.SIGKILL)
        run.next_sidecar(*known)
        wait_for_more(run, 2)
        return stop(run)

    return start


def stopped_sidecar(lab: Lab) -> Run:
    run = lab.start("stream.py", defaults=ASYNC)
    wait_for_more(run, 2)
    sidecar = run.sidecar()
    run.signal(sidecar, signal.SIGSTOP)
    before = run.commits("steady")[-1]
    reported = len(commits_reported(run))
    run.wait_for("batches to go on without the sidecar", lambda: run.commits("steady")[-1] >= before + 8)
    assert len(commits_reported(run)) <= reported + 1, "the stopped sidecar wrote events"
    run.signal(sidecar, signal.SIGCONT)
    wait_for_more(run, 8)
    assert run.sidecars() == [sidecar]
    return stop(run)


def flooded_sidecar(lab: Lab) -> Run:
    """Run a job, and stop its sidecar (SIGSTOP) until the pipe and the small queue are full."""
    run = lab.start("stream.py", defaults={**ASYNC, "events.dispatcher.queue.size": "8"})
    wait_for_more(run, 2)
    sidecar = run.sidecar()
    run.signal(sidecar, signal.SIGSTOP)
    run.command("flood")
    before = run.commits("steady")[-1]
    run.wait_for("batches to go on", lambda: run.commits("steady")[-1] >= before + 12)
    run.signal(sidecar, signal.SIGCONT)
    run.wait_for("drops to be reported", lambda: run.named("EventsDroppedEvent"))
    return stop(run)


def killed_in_the_drain(lab: Lab) -> Run:
    run = lab.start("stream.py", "4", defaults=GATED, env={"PYTHONPATH": str(REPORTERS)})
    sidecar = run.sidecar()
    run.wait_until_announced("held")
    run.signal(sidecar, signal.SIGKILL)
    run.command("go")
    run.wait()
    return run


def stopped_at_the_end(lab: Lab) -> tuple[Run, float]:
    """Stop the sidecar (SIGSTOP) before the driver exits, and return how long the driver takes to exit."""
    run = lab.start("stream.py", defaults={**ASYNC, "events.shutdown.timeout": "2s"})
    wait_for_more(run, 1)
    run.signal(run.sidecar(), signal.SIGSTOP)
    run.command("stop")
    run.wait_until_announced("stopping")
    began = time.monotonic()
    run.wait()
    return run, time.monotonic() - began


SIDECAR_FAULTS: dict[str, Callable[[Lab], Run]] = {
    "killed-sync": killed_sidecar(SYNC),
    "killed-async": killed_sidecar(ASYNC),
    "stopped": stopped_sidecar,
    "killed-in-the-drain": killed_in_the_drain,
}


@pytest.fixture(scope="module")
def driver_killed(lab: Lab) -> Future[tuple[Run, float, float]]:
    """Return the run of a driver that was killed while its query ran."""
    return lab.background(killed_driver, lab)


@pytest.fixture(scope="module")
def flooded(lab: Lab) -> Future[Run]:
    """Return a run whose sidecar was stopped until records were dropped."""
    return lab.background(flooded_sidecar, lab)


@pytest.fixture(scope="module")
def stuck(lab: Lab) -> Future[tuple[Run, float]]:
    """Return a run whose sidecar was still stopped when the driver exited."""
    return lab.background(stopped_at_the_end, lab)


@pytest.fixture(scope="module")
def runs(
    lab: Lab,
    driver_killed: Future[tuple[Run, float, float]],
    flooded: Future[Run],
    stuck: Future[tuple[Run, float]],
) -> dict[str, Future[Run]]:
    """Run all jobs with sidecar faults, two at a time."""
    return {name: lab.background(start, lab) for name, start in SIDECAR_FAULTS.items()}


@pytest.fixture(scope="module", params=SIDECAR_FAULTS)
def run(request: pytest.FixtureRequest, runs: dict[str, Future[Run]]) -> Run:
    """Return the finished job with a sidecar fault."""
    return runs[request.param].result()


def test_a_killed_driver_is_lost(driver_killed: Future[tuple[Run, float, float]]) -> None:
    """The last event of a killed driver is a FATAL change from RUNNING to LOST, which names the running work."""
    run, _, _ = driver_killed.result()
    last = [event for event in run.events() if event["name"] != "DispatcherReportEvent"][-1]
    assert last["name"] == "JobStatusChangeEvent"
    assert last["severity"] == "FATAL"
    assert last["attributes"]["spark.entity"] == "application"
    assert (last["attributes"]["spark.status.old"], last["attributes"]["spark.status.new"]) == ("RUNNING", "LOST")
    assert "'steady'" in last["body"]


def test_a_killed_driver_is_lost_within_two_seconds(driver_killed: Future[tuple[Run, float, float]]) -> None:
    _, seconds, _ = driver_killed.result()
    assert seconds < 2


def test_the_sidecar_ends_after_a_killed_driver(driver_killed: Future[tuple[Run, float, float]]) -> None:
    """The sidecar exits within two seconds after its driver was killed."""
    _, _, gone = driver_killed.result()
    assert gone < 2


def test_commits_of_a_killed_driver_are_reported(driver_killed: Future[tuple[Run, float, float]]) -> None:
    """Each commit of a killed driver, except possibly the last, is reported once. No other commit is reported."""
    run, _, _ = driver_killed.result()
    reported, commits = commits_reported(run), run.commits("steady")
    assert reported == commits[: len(reported)]
    assert len(reported) >= len(commits) - 1


def test_the_job_succeeds(run: Run) -> None:
    assert run.process.returncode == 0, run.tail()
    assert (run.folder / "truth.json").exists()


def test_no_commit_is_missing(run: Run) -> None:
    """The reported batches are exactly the batches in the checkpoint's commits/."""
    assert sorted(set(commits_reported(run))) == run.commits("steady")


def test_no_status_is_missing(run: Run) -> None:
    """All status changes of the application and the query are reported in spite of any fault of the sidecar."""
    messages = [
        (
            event["attributes"]["spark.entity"],
            event["attributes"].get("spark.status.old"),
            event["attributes"]["spark.status.new"],
        )
        for event in run.named("JobStatusChangeEvent")
        if event["attributes"]["spark.entity"] != "job"
    ]
    assert list(dict.fromkeys(messages)) == [
        ("application", None, "RUNNING"),
        ("query", None, "RUNNING"),
        ("query", "RUNNING", "FINISHED"),
        ("application", "RUNNING", "FINISHED"),
    ]


def test_a_repeated_event_is_identical(run: Run) -> None:
    """A repeated event has the same id, number and content as the event's first delivery."""
    reported: dict[str, dict[str, Any]] = {}
    for event in run.events():
        assert reported.setdefault(event["event_id"], event) == event
    facts = Counter(
        (event["name"], *(event["attributes"].get(key) for key in IDENTITY))
        for event in reported.values()
        if event["name"] in ("JobStatusChangeEvent", "BatchCommitEvent")
    )
    assert facts.most_common(1)[0][1] == 1, "one fact has two ids"


def test_sequences_have_no_gap(run: Run) -> None:
    """The events of all sidecars of a driver have the numbers 1, 2, 3 and so on, without a gap."""
    sequences = sorted({event["sequence"] for event in run.events()})
    assert sequences == list(range(1, len(sequences) + 1))


def test_every_event_names_its_application(run: Run) -> None:
    """Events of a restarted sidecar also contain the application and the query."""
    truth = run.truth()
    for event in run.events():
        assert event["attributes"]["spark.app.id"] == truth["app_id"]
        assert event["attributes"].get("spark.streaming.query.name", "steady") == "steady"
        assert event["attributes"].get("spark.streaming.query.run_id", truth["run_id"]) == truth["run_id"]


@pytest.mark.parametrize(("fault", "deaths"), [("killed-sync", 3), ("killed-async", 3), ("killed-in-the-drain", 1)])
def test_every_killed_sidecar_is_logged_once(runs: dict[str, Future[Run]], fault: str, deaths: int) -> None:
    """The driver's log contains one warning per killed sidecar, with the signal, and no other message."""
    messages = runs[fault].result().own_messages
    assert len(messages) == deaths
    assert all("the sidecar ended (exit code 137 (signal 9))" in message for message in messages)
    assert all("restarting it" in message for message in messages)


def test_a_paused_sidecar_is_not_logged(runs: dict[str, Future[Run]]) -> None:
    """A sidecar that was stopped and then continued causes no warning."""
    assert runs["stopped"].result().own_messages == []


def test_a_flood_never_stops_the_job(flooded: Future[Run]) -> None:
    """If the pipe and the queue are full, the listener does not wait, and the job succeeds."""
    assert flooded.result().process.returncode == 0


def test_drops_are_counted_and_logged(flooded: Future[Run]) -> None:
    """The log and the events contain the same number of dropped records. Each commit is reported or counted."""
    run = flooded.result()
    messages = [re.findall(r"(\w+)=(\d+)", m.partition("dropped: {")[2]) for m in run.own_messages if "dropped: {" in m]
    logged = sum(int(count) for message in messages for _, count in message)
    progress = sum(int(count) for message in messages for kind, count in message if kind == "query_progress")
    assert logged > 0
    assert logged == sum(event["attributes"]["spark.events.dropped.count"] for event in run.named("EventsDroppedEvent"))
    assert run.log.count("the record queue is 90 % full") == 1
    missing = set(run.commits("steady")) - set(commits_reported(run))
    assert len(missing) <= progress
    assert len(commits_reported(run)) == len(set(commits_reported(run)))
    assert "queue.size = 8" in run.log


def test_a_flood_drops_no_status(flooded: Future[Run]) -> None:
    """A full queue drops status changes last. Therefore, the final status of query and application is reported."""
    run = flooded.result()
    assert run.named("JobStatusChangeEvent", spark_entity="query", spark_status_new="FINISHED")
    assert run.named("JobStatusChangeEvent", spark_entity="application", spark_status_new="FINISHED")


def test_a_stuck_sidecar_does_not_delay_the_driver(stuck: Future[tuple[Run, float]]) -> None:
    """If its sidecar is stopped, a driver exits soon after the shutdown timeout, with its own exit code."""
    run, took = stuck.result()
    assert run.process.returncode == 0, run.tail()
    assert took < 2 + 8


def test_a_stuck_sidecar_is_logged_and_killed(stuck: Future[tuple[Run, float]]) -> None:
    """The driver's log contains one message about the shutdown timeout. The stopped sidecar exits with the driver."""
    run, _ = stuck.result()
    (message,) = run.own_messages
    assert "did not end within 2000 ms (spark.events.shutdown.timeout)" in message
    assert run.sidecars() == []
