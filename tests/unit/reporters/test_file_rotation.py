"""Tests of rotation in the ``file`` reporter: by size, by age, with several drivers, and with logrotate."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import event, numbers

from spark_events import Event
from spark_events.clocks import SYSTEM, Clocks
from spark_events.event import decode_event
from spark_events.reporters.file import FileConfig, FileReporter
from unit.reporters.writing import two_writers


def opened(path: Path, clocks: Clocks = SYSTEM, **changes: Any) -> FileReporter:
    reporter = FileReporter(FileConfig(str(path), **changes), clocks)
    reporter.open()
    return reporter


def write(reporter: FileReporter, *batches: list[Event]) -> None:
    """Report batches as a reporter's thread does."""

    async def all_of_them() -> None:
        for batch in batches:
            waiting = reporter.report(batch)
            if waiting is not None:
                await waiting

    asyncio.run(all_of_them())


def rotated_files(path: Path) -> list[Path]:
    """Return the paths of the rotated files, oldest first."""
    return sorted(one for one in path.parent.iterdir() if one.name.startswith(f"{path.name}."))


def read(path: Path) -> list[Event]:
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [decode_event(line) for line in data.splitlines()]


def numbers_of_all_files(path: Path) -> list[int]:
    """Return the numbers of the events in all files, oldest first."""
    return [number for one in (*rotated_files(path), path) if one.exists() for number in numbers(read(one))]


def test_a_file_that_would_exceed_the_size_is_rotated(tmp_path: Path) -> None:
    """No file exceeds the size limit, and all files together contain every event in order."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=4_096, keep=1_000)
    write(reporter, *([event(number, text="x" * 100)] for number in range(200)))
    reporter.close()
    assert numbers_of_all_files(path) == list(range(200))
    assert len(rotated_files(path)) > 10
    assert max(one.stat().st_size for one in (*rotated_files(path), path)) <= 4_096
    assert {one.stat().st_mode & 0o777 for one in (*rotated_files(path), path)} == {0o600}


def test_a_batch_larger_than_the_size_gets_its_own_file(tmp_path: Path) -> None:
    """A batch larger than the size limit is written to its own file. It is not split, and no empty file is rotated."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=1_024)
    write(reporter, [event(number, text="x" * 500) for number in range(10)], [event(10)])
    reporter.close()
    assert [numbers(read(one)) for one in (*rotated_files(path), path)] == [list(range(10)), [10]]


def test_a_file_of_another_day_is_rotated(tmp_path: Path) -> None:
    """A file whose last line is from another day is rotated, even if another process or an earlier run wrote it."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_age=86_400.0)
    write(reporter, [event(1)], [event(2)])
    assert rotated_files(path) == []
    yesterday = time.time() // 86_400 * 86_400 - 1
    os.utime(path, (yesterday, yesterday))
    write(reporter, [event(3)], [event(4)])
    reporter.close()
    assert [numbers(read(one)) for one in (*rotated_files(path), path)] == [[1, 2], [3, 4]]


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    """Only the newest rotated files are kept. Files of other programs are not deleted."""
    path = tmp_path / "events.jsonl"
    strangers = [tmp_path / name for name in ("events.jsonl.1", "events.jsonl.bak", "events.jsonl2", "other")]
    for one in strangers:
        one.write_text("{}\n")
    reporter = opened(path, max_size=256, keep=3)
    write(reporter, *([event(number)] for number in range(20)))
    reporter.close()
    ours = [one for one in rotated_files(path) if one not in strangers]
    assert [number for one in (*ours, path) for number in numbers(read(one))] == [16, 17, 18, 19]
    assert all(one.exists() for one in strangers)


def test_names_keep_their_order_when_the_clock_is_set_back(tmp_path: Path) -> None:
    """Rotated names stay in order when the clock is set back, so the oldest file is deleted first."""
    path, now = tmp_path / "events.jsonl", [time.time()]
    reporter = opened(path, Clocks(lambda: now[0]), max_size=256, keep=3)
    write(reporter, *([event(number)] for number in range(6)))
    now[0] -= 3_600
    write(reporter, *([event(number)] for number in range(6, 12)))
    reporter.close()
    assert [number for one in (*rotated_files(path), path) for number in numbers(read(one))] == [8, 9, 10, 11]


def test_a_year_without_a_valid_name_loses_no_event(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If a file name cannot contain the year, the file is not rotated, no event is lost, and one message is logged."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, Clocks(lambda: 1e15), max_size=256)
    write(reporter, *([event(number)] for number in range(4)))
    reporter.close()
    assert numbers(read(path)) == [0, 1, 2, 3]
    assert [message.partition(",")[0] for message in caplog.messages] == [f"{path}: cannot rotate the file"]


def test_a_moved_or_deleted_file_is_replaced(tmp_path: Path) -> None:
    """If the file is renamed or deleted, the next batch is written to a new file with mode 0600."""
    path, moved = tmp_path / "events.jsonl", tmp_path / "events.jsonl.1"
    reporter = opened(path)
    write(reporter, [event(1)])
    path.rename(moved)
    write(reporter, [event(2)])
    assert (numbers(read(moved)), numbers(read(path))) == ([1], [2])
    path.unlink()
    write(reporter, [event(3)])
    reporter.close()
    assert numbers(read(path)) == [3]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_symbolic_link_is_followed_and_kept(tmp_path: Path) -> None:
    """A symbolic link is kept; its target is rotated in the folder of the target."""
    real, link = tmp_path / "disk" / "events.jsonl", tmp_path / "events.jsonl"
    real.parent.mkdir()
    link.symlink_to(real)
    reporter = opened(link, max_size=256)
    write(reporter, [event(1)], [event(2)])
    reporter.close()
    assert link.is_symlink()
    assert (numbers_of_all_files(real), rotated_files(link)) == ([1, 2], [])


def test_a_file_that_cannot_be_rotated_keeps_growing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the rotated name would be too long, the file grows, and one message is logged."""
    path = tmp_path / ("e" * 250)
    reporter = opened(path, max_size=256)
    write(reporter, *([event(number)] for number in range(5)))
    reporter.close()
    assert numbers(read(path)) == [0, 1, 2, 3, 4]
    assert len([one for one in caplog.records if "cannot rotate the file" in one.getMessage()]) == 1
    assert caplog.records[0].levelno == logging.WARNING


def test_old_files_that_cannot_be_deleted_are_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If old files cannot be deleted, rotation continues, and one message is logged until a deletion succeeds."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=256, keep=1)

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        write(reporter, *([event(number)] for number in range(5)))
        assert len(rotated_files(path)) == 4
        (message,) = caplog.messages
        assert message.startswith(f"{path}: cannot delete old rotated files")
    write(reporter, [event(5)])
    assert len(rotated_files(path)) == 1
    assert numbers(read(path)) == [5]
    reporter.close()


def test_waiting_for_a_lock_does_not_block_the_thread(tmp_path: Path) -> None:
    """An attempt that waits for the lock can be cancelled before it writes. The wait does not block its thread."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path)
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        async def attempt() -> None:
            waiting = reporter.report([event(1)])
            assert waiting is not None
            await asyncio.wait_for(waiting, 0.1)

        with pytest.raises(asyncio.TimeoutError):
            asyncio.run(attempt())
        assert path.read_bytes() == b""
        threading.Timer(0.1, lambda: fcntl.flock(other, fcntl.LOCK_UN)).start()
        write(reporter, [event(2)])
    reporter.close()
    assert numbers(read(path)) == [2]


def test_a_partial_line_of_another_driver_does_not_damage_the_next_line(tmp_path: Path) -> None:
    """If the file ends with another driver's incomplete line, the reporter writes a line break before its next line."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path)
    write(reporter, [event(1)])
    with path.open("ab") as other:
        other.write(b'{"name":"torn')
    write(reporter, [event(2)], [event(3)])
    reporter.close()
    lines = path.read_bytes().splitlines()
    assert lines.pop(1) == b'{"name":"torn'
    assert [json.loads(line)["body"] for line in lines] == ["1", "2", "3"]


def test_fsync_is_called_for_each_batch_if_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `fsync`, the file is synced before a batch counts as delivered. By default, the file is never synced."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    write(opened(tmp_path / "never.jsonl"), [event(1)])
    assert synced == []
    write(opened(tmp_path / "batch.jsonl", fsync="batch"), [event(1)], [event(2)])
    # The folder is synced once, because the file name is new.
    assert synced == [str(tmp_path), *[str(tmp_path / "batch.jsonl")] * 2]


WRITER = """
import asyncio, sys
from fakes import event
from spark_events.reporters.file import FileConfig, FileReporter

async def main():
    reporter = FileReporter(FileConfig(sys.argv[1], max_size=20_000, keep=100_000))
    reporter.open()
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(0, 3_000, 3):
        waiting = reporter.report([event(n + i, writer=sys.argv[2], text="x" * (n * 37 % 300)) for i in range(3)])
        if waiting is not None:
            await waiting

asyncio.run(main())
"""


def test_two_drivers_and_logrotate_on_one_path_lose_no_event(tmp_path: Path) -> None:
    """If two drivers rotate one path and logrotate renames it, no event is lost."""
    path = tmp_path / "events.jsonl"
    writers = two_writers(WRITER, path)
    ends = [threading.Thread(target=writer.communicate, args=(b"go\n", 60)) for writer in writers]
    for end in ends:
        end.start()
    moved = 0
    while any(writer.poll() is None for writer in writers):
        # A writer may have renamed the file after the size was read.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > 5_000:
                path.rename(tmp_path / f"events.jsonl.logrotate-{moved:04d}")
                moved += 1
        time.sleep(0.002)  # Interval of logrotate in this test. This sleep does not wait for a condition.
    for end in ends:
        end.join()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert moved
    seen: dict[str, list[int]] = {"a": [], "b": []}
    for one in tmp_path.iterdir():
        # An empty file may have replaced the file between the size check and the rotation.
        is_empty = one != path and one.stat().st_size == 0
        if not is_empty:
            for line in read(one):
                seen[str(line.attributes["writer"])].append(int(line.body))
    assert {name: sorted(found) for name, found in seen.items()} == {name: list(range(3_000)) for name in seen}
