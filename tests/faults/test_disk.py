"""A file that cannot be written: the job goes on, the events are held, and it is said once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from spark.harness import Lab, Run, file_reporter, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(240)]

DISK_BYTES = 32 * 1024


def unwritable(path: str, dispatcher: str) -> Callable[[Lab], Run]:
    lines = {**file_reporter(Path(path), dispatcher), "events.dispatcher.sync.timeout": "1s"}
    return lambda lab: lab.run("ending.py", defaults={**two_lines(), **lines, "events.shutdown.timeout": "2s"})


UNWRITABLE = {
    "no-such-folder": (unwritable("/nowhere/events.jsonl", "async-queued"), "No such file or directory: '/nowhere/"),
    "a-folder": (unwritable("{folder}/conf", "sync"), "Is a directory: '"),
    "full-disk": (unwritable("/dev/full", "sync"), "No space left on device: '/dev/full'"),
}


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Future[Run]]:
    """Jobs whose events can never be written, two at a time."""
    return {name: lab.background(start, lab) for name, (start, _) in UNWRITABLE.items()}


@pytest.mark.parametrize("what", UNWRITABLE)
def test_a_job_does_not_need_its_events(runs: dict[str, Future[Run]], what: str) -> None:
    """A file that can never be written costs the job nothing but time, and that is bounded."""
    run = runs[what].result()
    assert run.process.returncode == 0, run.tail()


@pytest.mark.parametrize("what", UNWRITABLE)
def test_what_cannot_be_written_is_said_once(runs: dict[str, Future[Run]], what: str) -> None:
    """The driver's log names the reporter, the path and the reason, once."""
    run = runs[what].result()
    (message,) = [message for message in run.own_messages if UNWRITABLE[what][1] in message]
    assert " ERROR " in message
    assert "reporter audit: " in message


@pytest.mark.parametrize("what", UNWRITABLE)
def test_what_is_lost_is_counted(runs: dict[str, Future[Run]], what: str) -> None:
    """Events that could not be written by the end are counted in the driver's log."""
    messages = runs[what].result().own_messages
    lost = [re.search(r"reporter audit: (\d+) events were not delivered in time and are lost", m) for m in messages]
    (count,) = [int(found[1]) for found in lost if found]
    assert count >= 2


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system with little room; only root may make one."""
    folder = tmp_path_factory.mktemp("disk")
    mounted = shutil.which("mount") and os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], check=False, capture_output=True
    ).returncode == 0  # fmt: skip
    if not mounted:
        pytest.skip("a small file system cannot be mounted here; /dev/full has to do")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_was_full_gets_everything(lab: Lab, small_disk: Path) -> None:
    """While the disk is full the file has whole lines only; when there is room again, all that was held follows."""
    filler, events = small_disk / "filler", small_disk / "events.jsonl"
    filler.write_bytes(b"x" * (DISK_BYTES - 8 * 1024))
    run = lab.start("stream.py", defaults={**two_lines(), **file_reporter(events, "async-queued")})
    run.wait_for("the disk to be full", lambda: "No space left on device" in run.log)
    held = run.commits("steady")[-1]
    run.wait_for("batches to go on", lambda: run.commits("steady")[-1] >= held + 3)
    assert events.read_bytes().endswith(b"\n")
    filler.unlink()
    run.wait_for("what was held", lambda: len(run.events(events)) > held + 3)
    run.tell("stop")
    assert run.wait() == 0
    written = run.events(events)
    assert [event["sequence"] for event in written] == list(range(1, len(written) + 1))
    commits = [e["attributes"]["spark.streaming.batch.id"] for e in written if e["name"] == "BatchCommitEvent"]
    assert commits == run.commits("steady")
    full, again = run.own_messages
    assert "its events are held and tried again" in full
    assert str(events) in full
    assert "works again" in again
