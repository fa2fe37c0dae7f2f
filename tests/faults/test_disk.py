"""Tests with unwritable files: the job continues, and each reporter holds its events and logs one message."""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path

import pytest
from spark.harness import Lab, Run, file_reporter, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.faults, pytest.mark.timeout(1800)]

DISK_BYTES = 32 * 1024


#: Paths that can never be written, and the system's error message for each path.
UNWRITABLE = {
    "nowhere": ("/nowhere/events.jsonl", "No such file or directory: '/nowhere/events.jsonl'"),
    "folder": ("{folder}/conf", "Is a directory: '"),
    "full": ("/dev/full", "No space left on device: '/dev/full'"),
}


@pytest.fixture(scope="module", params=["sync", "async-queued"])
def run(request: pytest.FixtureRequest, runs: dict[str, Future[Run]]) -> Run:
    """Return the finished job with one working reporter, and three reporters that always fail."""
    return runs[request.param].result()


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Future[Run]]:
    """Run the same job with each dispatcher, in parallel."""
    started = {}
    for dispatcher in ("sync", "async-queued"):
        lines = {**two_lines(), **file_reporter(Path("{folder}/events.jsonl"), dispatcher)}
        lines["events.reporters"] = ", ".join(["audit", *UNWRITABLE])
        for name, (path, _) in UNWRITABLE.items():
            lines |= {f"events.reporter.{name}.type": "file", f"events.reporter.{name}.path": path}
            # Each breaker opens only once: even on a slow machine, the breaker stays open until the job has ended.
            lines[f"events.reporter.{name}.circuit-breaker.open.initial"] = "5min"
        lines |= {"events.dispatcher.sync.timeout": "1s", "events.shutdown.timeout": "3s"}
        started[dispatcher] = lab.background(lab.run, "ending.py", defaults=lines)
    return started


def test_the_job_succeeds_despite_unwritable_files(run: Run) -> None:
    """An unwritable file delays the job by a limited time, and does not otherwise affect the job."""
    assert run.process.returncode == 0, run.tail()


def test_an_unwritable_file_does_not_affect_others(run: Run) -> None:
    """A reporter with a writable file receives every event in order, although other reporters fail."""
    sequences = [event["sequence"] for event in run.events()]
    assert sequences == list(range(1, len(sequences) + 1))
    assert run.named("JobStatusChangeEvent", spark_entity="application", spark_status_new="FINISHED")


@pytest.mark.parametrize("name", UNWRITABLE)
def test_an_unwritable_file_is_logged_once(run: Run, name: str) -> None:
    """The driver's log contains reporter, path and reason once, and one message about the opened breaker."""
    message, *further = [message for message in run.own_messages if UNWRITABLE[name][1] in message]
    assert all("circuit breaker is open" in repeated for repeated in further)
    assert len(further) <= 1
    assert " ERROR " in message
    assert f"reporter {name}: " in message


@pytest.mark.parametrize("name", UNWRITABLE)
def test_lost_events_are_counted(run: Run, name: str) -> None:
    """The driver's log contains the number of events that were not written before the application ended."""
    lost = [
        re.search(rf"reporter {name}: (\d+) events were not delivered before the shutdown timeout", m)
        for m in run.own_messages
    ]
    assert [int(found[1]) for found in lost if found] == [len(run.events())], run.own_messages


def test_events_are_written_once_a_full_disk_has_space(lab: Lab, small_disk: Path) -> None:
    """While the disk is full, the file contains only complete lines. Once space is free, held events are written."""
    filler, events = small_disk / "filler", small_disk / "events.jsonl"
    filler.write_bytes(b"x" * (DISK_BYTES - 8 * 1024))
    # Keep the breaker closed: an open breaker would only slow down this test.
    patient = {"events.reporter.audit.circuit-breaker.failures": "1000"}
    run = lab.start("stream.py", defaults={**two_lines(), **file_reporter(events, "async-queued"), **patient})
    run.wait_for("the disk to be full", lambda: "No space left on device" in run.log)
    held = run.commits("steady")[-1]
    run.wait_for("batches to go on", lambda: run.commits("steady")[-1] >= held + 3)
    assert events.read_bytes().endswith(b"\n")
    filler.unlink()
    run.wait_for("what was held", lambda: len(run.events(events)) > held + 3)
    run.command("stop")
    assert run.wait() == 0
    written = run.events(events)
    assert [event["sequence"] for event in written] == list(range(1, len(written) + 1))
    commits = [e["attributes"]["spark.batch.id"] for e in written if e["name"] == "BatchCommitEvent"]
    assert commits == run.commits("steady")
    full, again = run.own_messages
    assert "holding its events and retrying" in full
    assert str(events) in full
    assert "works again" in again
