"""Tests of the ``file`` reporter: it writes complete JSON lines despite disk errors and other drivers."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import event, eventually, read_events, sidecar_environment

from spark_events import Event
from spark_events.config import Settings
from spark_events.event import Attributes
from spark_events.reporters.file import FileConfig, FileReporter
from unit.reporters.writing import two_writers


def opened(path: Path) -> FileReporter:
    reporter = FileReporter(FileConfig(str(path)))
    reporter.open()
    return reporter


def test_a_line_has_the_event_s_own_fields(tmp_path: Path) -> None:
    """The field names of a line are public: they are the fields of Event, with the attributes as an object."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path)
    original = event(3, "WARN", rows=12, ratio=0.5, on=True, who="zoë\n\t\"'")
    reporter.report([original])
    reporter.close()
    assert path.read_bytes().count(b"\n") == 1
    assert read_events(path) == [
        {
            "name": "Test",
            "class_scope": "tests",
            "body": "3",
            "severity": "WARN",
            "observed_ts_millis": 1_700_000_000_003,
            "event_id": original.event_id,
            "sequence": 0,
            "attributes": {"rows": 12, "ratio": 0.5, "on": True, "who": "zoë\n\t\"'"},
        }
    ]


def test_a_relative_path_names_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path names a file in the folder that was current when the reporter was created."""
    monkeypatch.chdir(tmp_path)
    reporter = FileReporter(FileConfig("events.jsonl", fsync="batch"))
    reporter.open()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    reporter.report([event(1)])
    reporter.close()
    reporter.report([event(2)])
    reporter.close()
    assert [line["body"] for line in read_events(tmp_path / "events.jsonl")] == ["1", "2"]


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_symbolic_link_in_a_world_writable_directory_is_rejected(tmp_path: Path, mode: int) -> None:
    """In a world-writable directory, a symbolic link is rejected, because another user could have created the link."""
    folder, target = tmp_path / "shared", tmp_path / "target"
    folder.mkdir()
    target.touch()
    path = folder / "events.jsonl"
    path.symlink_to(target)
    folder.chmod(mode)
    with pytest.raises(OSError, match="a symbolic link in a directory that every user can write to is refused"):
        opened(path)
    assert target.read_bytes() == b""
    folder.chmod(0o755)
    reporter = opened(path)
    reporter.report([event(1)])
    assert len(read_events(target)) == 1
    # The reporter also rejects a link when it opens the file again.
    folder.chmod(mode)
    path.unlink()
    path.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="a symbolic link"):
        reporter.report([event(2)])
    assert not (tmp_path / "other").exists()
    path.unlink()
    reporter.report([event(2)])
    assert len(read_events(path)) == 1


def test_a_relative_path_is_resolved_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path is resolved on startup, so it stays valid if the working directory changes."""
    monkeypatch.chdir(tmp_path)
    config = Settings.of({"audit.path": "sub/../events.jsonl"}).read(FileConfig, "audit")
    assert config is not None
    reporter = FileReporter(config)
    (tmp_path / "elsewhere").mkdir()
    # After a symbolic link, ``..`` is relative to the target of the link.
    (tmp_path / "real" / "inner").mkdir(parents=True)
    (tmp_path / "sub").symlink_to("real/inner")
    monkeypatch.chdir(tmp_path / "elsewhere")
    reporter.open()
    reporter.report([event(0)])
    reporter.close()
    assert [line["body"] for line in read_events(tmp_path / "real" / "events.jsonl")] == ["0"]


def test_an_existing_file_is_appended_to(tmp_path: Path) -> None:
    """The reporter appends to an existing file, so it keeps the events of earlier runs."""
    path = tmp_path / "events.jsonl"
    for number in range(3):
        reporter = opened(path)
        reporter.report([event(number)])
        reporter.close()
    assert [line["body"] for line in read_events(path)] == ["0", "1", "2"]


def test_only_the_owner_can_read_a_new_file(tmp_path: Path) -> None:
    """A new file is readable only by its owner, because events may contain secrets. An existing file keeps its mode."""
    path, shared = tmp_path / "new.jsonl", tmp_path / "shared.jsonl"
    shared.touch()
    shared.chmod(0o640)
    old_mask = os.umask(0)
    try:
        for file in (path, shared):
            opened(file).close()
    finally:
        os.umask(old_mask)
    assert path.stat().st_mode & 0o777 == 0o600
    assert shared.stat().st_mode & 0o777 == 0o640


def test_reported_events_are_readable_at_once(tmp_path: Path) -> None:
    """Reported events are readable at once: the reporter has no buffer, so a crash loses nothing."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path)
    reporter.report([event(1), event(2)])
    assert [line["body"] for line in read_events(path)] == ["1", "2"]
    reporter.close()


@pytest.mark.parametrize("where", ["missing/events.jsonl", "file/events.jsonl", "."])
def test_an_unwritable_path_is_named(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / where
    with pytest.raises(OSError, match=str(path)):
        opened(path)


def test_close_may_be_called_twice_and_without_open(tmp_path: Path) -> None:
    """close() may be called twice and without open(), because a reporter is also closed if its open() failed."""
    reporter = FileReporter(FileConfig(str(tmp_path / "x")))
    reporter.close()
    reporter.open()
    reporter.close()
    reporter.close()
    assert (tmp_path / "x").read_bytes() == b""


FULL_DISK = """
import json, os, resource, sys
from fakes import event
from spark_events.reporters.file import FileConfig, FileReporter

reporter = FileReporter(FileConfig(sys.argv[1]))
reporter.open()
batches = [[event(10 * n + i, text="x" * 100) for i in range(10)] for n in range(4)]
reporter.report(batches[0])
# Room for the half of the next batch, which ends in the middle of a line.
room = os.path.getsize(sys.argv[1]) * 3 // 2 + 40
resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
errors = []
for attempt in range(3):
    try:
        reporter.report(batches[1])
    except OSError as error:
        errors.append(str(error))
    torn = [line for line in open(sys.argv[1], "rb") if not line.endswith(b"\\n")]
    errors.append(len(torn))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for batch in batches[1:]:
    reporter.report(batch)
print(json.dumps(errors))
"""


def test_a_full_disk_leaves_no_partial_line_and_no_gap(tmp_path: Path) -> None:
    """A partial write on a full disk is rolled back. When space is free, every event is written once and in order."""
    path = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], env=sidecar_environment(), capture_output=True, check=True
    )
    assert json.loads(done.stdout) == [f"[Errno 27] File too large: '{path}'", 0] * 3
    assert [line["body"] for line in read_events(path)] == [str(n) for n in range(40)]


WRITER = """
import asyncio, sys
from fakes import event
from spark_events.reporters.file import FileConfig, FileReporter

async def main():
    reporter = FileReporter(FileConfig(sys.argv[1]))
    reporter.open()
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(100):
        waiting = reporter.report([event(n, writer=sys.argv[2], text="x" * (n * 37 % 3000)) for _ in range(2)])
        if waiting is not None:
            await waiting

asyncio.run(main())
"""


def test_two_drivers_do_not_mix_their_lines(tmp_path: Path) -> None:
    """The lines of two drivers are complete, none is missing, and each driver's lines are in order."""
    path = tmp_path / "events.jsonl"
    writers = two_writers(WRITER, path)
    for writer in writers:
        writer.communicate(b"go\n", timeout=60)
        assert writer.returncode == 0
    lines = read_events(path)
    for name in ("a", "b"):
        own = [int(line["body"]) for line in lines if line["attributes"]["writer"] == name]
        assert own == [n for n in range(100) for _ in range(2)]


def test_a_folder_that_is_mounted_later_is_found(tmp_path: Path) -> None:
    """A folder that is mounted later is found, because open() is retried."""
    reporter = FileReporter(FileConfig(str(tmp_path / "later" / "events.jsonl")))
    with pytest.raises(FileNotFoundError):
        reporter.open()
    (tmp_path / "later").mkdir()
    reporter.open()
    reporter.report([event(1)])
    reporter.close()
    assert eventually(lambda: read_events(tmp_path / "later" / "events.jsonl"))


def failing(monkeypatch: pytest.MonkeyPatch, number: int, when: Callable[[int, int], bool]) -> None:
    """Replace flock with a function that fails like a lock server during an outage."""
    lock = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if when(descriptor, operation):
            raise OSError(number, os.strerror(number))
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_failed_unlock_does_not_repeat_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If only the unlock fails, the written lines are not repeated, and closing the file releases the lock."""
    path = tmp_path / "events.jsonl"
    reporter, other = opened(path), opened(path)
    failing(monkeypatch, errno.EIO, lambda descriptor, operation: operation == fcntl.LOCK_UN)
    for number in range(3):
        reporter.report([event(number)])
    monkeypatch.undo()
    assert other.report([event(3)]) is None
    reporter.close()
    other.close()
    assert [line["body"] for line in read_events(path)] == ["0", "1", "2", "3"]


def test_a_lock_that_fails_later_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose lock fails is retried, because another driver may hold the lock during the outage."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path)
    with monkeypatch.context() as patch:
        failing(patch, errno.ENOLCK, lambda descriptor, operation: True)
        with pytest.raises(OSError, match=f"No locks available: '{path}'"):
            reporter.report([event(1)])
    other = os.open(path, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    waiting = reporter.report([event(1)])
    assert waiting is not None
    waiting.close()  # type: ignore[attr-defined]
    os.close(other)
    assert reporter.report([event(1)]) is None
    reporter.close()
    assert [line["body"] for line in read_events(path)] == ["1"]


def test_a_lock_that_fails_at_first_is_retried_for_each_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without locks, a single driver may write. Each batch tries to lock, so locks are used after the outage."""
    path = tmp_path / "events.jsonl"
    with monkeypatch.context() as patch:
        failing(patch, errno.ENOLCK, lambda descriptor, operation: True)
        reporter = opened(path)
        assert reporter.report([event(0)]) is None
        rotating = FileReporter(FileConfig(str(path), max_size=1_000_000))
        with pytest.raises(OSError, match="rotation needs file locks"):
            rotating.open()
    rotating.open()
    other = os.open(path, os.O_RDWR)
    fcntl.flock(other, fcntl.LOCK_EX)
    for one in (reporter, rotating):
        waiting = one.report([event(1)])
        assert waiting is not None
        waiting.close()  # type: ignore[attr-defined]
    os.close(other)
    for one in (reporter, rotating):
        assert one.report([event(1)]) is None
        one.close()
    assert [line["body"] for line in read_events(path)] == ["0", "1", "1"]


def test_a_stale_descriptor_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file was deleted on the NFS server, the stale descriptor is closed, and the path is opened again."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path)
    path.unlink()
    failing(monkeypatch, errno.ESTALE, lambda descriptor, operation: os.fstat(descriptor).st_nlink == 0)
    with pytest.raises(OSError, match="Stale"):
        reporter.report([event(1)])
    assert reporter.report([event(1)]) is None
    reporter.close()
    assert [line["body"] for line in read_events(path)] == ["1"]


def test_a_lone_surrogate_is_replaced(tmp_path: Path) -> None:
    """If an event bypasses the builder's checks, a question mark replaces each lone surrogate."""
    fields = {name: getattr(event(2), name) for name in Event.__struct_fields__}
    spoilt = Event(**{**fields, "body": "a\ud800b", "attributes": Attributes({"k\udfff": "v\ud800", "n": 1})})
    reporter = opened(tmp_path / "x")
    reporter.report([event(1), spoilt, event(3)])
    reporter.close()
    lines = read_events(tmp_path / "x")
    assert [line["body"] for line in lines] == ["1", "a?b", "3"]
    assert lines[1]["attributes"] == {"k?": "v?", "n": 1}
