"""Tests of rotation in the ``file`` reporter: by size and age, with several drivers, and with logrotate."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import gzip
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import event, eventually, numbers

from spark_events import Event
from spark_events.event import decode_event
from spark_events.reporters.file import FileConfig, FileReporter
from unit.reporters.writing import two_writers


def opened(path: Path, **changes: Any) -> FileReporter:
    reporter = FileReporter(FileConfig(str(path), **changes))
    reporter.open()
    return reporter


def write(reporter: FileReporter, *batches: list[Event]) -> None:
    """Report batches as a worker thread does."""

    async def all_of_them() -> None:
        for batch in batches:
            waiting = reporter.report(batch)
            if waiting is not None:
                await waiting

    asyncio.run(all_of_them())


def aside(path: Path) -> list[Path]:
    """Return the rotated files, oldest first."""
    return sorted(one for one in path.parent.iterdir() if one.name.startswith(f"{path.name}."))


def read(path: Path) -> list[Event]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert data.endswith(b"\n")
    return [decode_event(line) for line in data.splitlines()]


def everything(path: Path) -> list[int]:
    """Return the contents of all files, oldest first."""
    return [number for one in (*aside(path), path) if one.exists() for number in numbers(read(one))]


def test_a_file_that_would_exceed_the_size_is_rotated(tmp_path: Path) -> None:
    """No file exceeds the limit, and together the files have every event in order."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=4_096, keep=1_000)
    write(reporter, *([event(number, text="x" * 100)] for number in range(200)))
    reporter.close()
    assert everything(path) == list(range(200))
    assert len(aside(path)) > 10
    assert max(one.stat().st_size for one in (*aside(path), path)) <= 4_096
    assert {one.stat().st_mode & 0o777 for one in (*aside(path), path)} == {0o600}


def test_a_batch_larger_than_the_size_gets_its_own_file(tmp_path: Path) -> None:
    """The batch is not split, and an empty file is not rotated for it."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=1_024)
    write(reporter, [event(number, text="x" * 500) for number in range(10)], [event(10)])
    reporter.close()
    assert [numbers(read(one)) for one in (*aside(path), path)] == [list(range(10)), [10]]


def test_a_file_of_another_day_is_rotated(tmp_path: Path) -> None:
    """The time of the last line decides, regardless of the writer and of the start of this process."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_age=86_400.0)
    write(reporter, [event(1)], [event(2)])
    assert aside(path) == []
    yesterday = time.time() // 86_400 * 86_400 - 1
    os.utime(path, (yesterday, yesterday))
    write(reporter, [event(3)], [event(4)])
    reporter.close()
    assert [numbers(read(one)) for one in (*aside(path), path)] == [[1, 2], [3, 4]]


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """Deletes rotated files beyond the limit, but no files of other programs."""
    path = tmp_path / "events.jsonl"
    strangers = [tmp_path / name for name in ("events.jsonl.1", "events.jsonl.bak", "events.jsonl2", "other")]
    for one in strangers:
        one.write_text("{}\n")
    reporter = opened(path, max_size=256, keep=3)
    write(reporter, *([event(number)] for number in range(20)))
    reporter.close()
    ours = [one for one in aside(path) if one not in strangers]
    assert [number for one in (*ours, path) for number in numbers(read(one))] == [16, 17, 18, 19]
    assert all(one.exists() for one in strangers)


def test_names_keep_their_order_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names keep the order of events; otherwise the newest file would be deleted first."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=256, keep=3)
    write(reporter, *([event(number)] for number in range(6)))
    now = time.time()
    monkeypatch.setattr("spark_events.reporters.file.reporter.time.time", lambda: now - 3_600)
    write(reporter, *([event(number)] for number in range(6, 12)))
    reporter.close()
    assert [number for one in (*aside(path), path) for number in numbers(read(one))] == [8, 9, 10, 11]


def test_the_last_possible_name_does_not_stop_rotation(tmp_path: Path) -> None:
    """The clock was at the last microsecond that a name can express, or another program created such a name."""
    path = tmp_path / "events.jsonl"
    stranger = tmp_path / "events.jsonl.99991231T235959.999999Z"
    stranger.touch()
    reporter = opened(path, max_size=256, keep=100)
    write(reporter, *([event(number)] for number in range(4)))
    reporter.close()
    stranger.unlink()
    assert len(aside(path)) == 3
    assert everything(path) == [0, 1, 2, 3]


def test_a_year_without_a_valid_name_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file keeps growing, and the log has one message."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=256)
    monkeypatch.setattr("spark_events.reporters.file.reporter.time.time", lambda: 1e15)
    write(reporter, *([event(number)] for number in range(4)))
    reporter.close()
    assert numbers(read(path)) == [0, 1, 2, 3]
    assert [message.partition(",")[0] for message in caplog.messages] == [f"{path} is full but cannot be put aside"]


def test_a_file_that_cannot_be_compressed_does_not_stop_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "events.jsonl"
    in_the_way = tmp_path / "events.jsonl.20200101T000000.000000Z"
    in_the_way.mkdir()
    reporter = opened(path, max_size=256, keep=100, compress=True)
    write(reporter, *([event(number)] for number in range(3)))

    def are_packed() -> bool:
        write(reporter)
        reporter._archive.pack()
        return len(list(tmp_path.glob("*.gz"))) == 2

    eventually(are_packed, what="the others compressed")
    # The compressing thread logs its failures after it has processed all files.
    (message, *_) = eventually(lambda: caplog.messages, what="a line in the log")
    reporter.close()
    assert "could not be compressed, it stays as it is: [Errno 21]" in message


def flock_of_a_network(descriptor: int, operation: int, flock: Callable[[int, int], None] = fcntl.flock) -> None:
    """Emulate flock on NFS (see flock(2)): an exclusive lock needs a file that is open for writing."""
    if operation & fcntl.LOCK_EX and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    flock(descriptor, operation)


def test_rotated_files_are_compressed_on_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS locks only files that are open for writing."""
    monkeypatch.setattr(fcntl, "flock", flock_of_a_network)
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=256, keep=100, compress=True)
    write(reporter, *([event(number)] for number in range(3)))
    eventually(lambda: packs(reporter, path), what="every file compressed")
    reporter.close()
    assert everything(path) == [0, 1, 2]


def test_rotated_files_are_compressed_and_stay_readable(tmp_path: Path) -> None:
    """A separate thread compresses; the lines are unchanged and only the owner can read the archives."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=16_384, keep=100, compress=True)
    write(reporter, *([event(number, text="x" * 1_000)] for number in range(100)))
    eventually(lambda: packs(reporter, path), what="every file compressed")
    reporter.close()
    assert everything(path) == list(range(100))
    assert {one.stat().st_mode & 0o777 for one in aside(path)} == {0o600}
    assert sum(one.stat().st_size for one in aside(path)) < 20_000


def packs(reporter: FileReporter, path: Path) -> bool:
    reporter.open()
    return bool(aside(path)) and all(one.suffix == ".gz" for one in aside(path))


def test_files_left_by_a_killed_process_are_compressed(tmp_path: Path) -> None:
    """An incomplete archive is not mistaken for a complete one."""
    path = tmp_path / "events.jsonl"
    write(opened(path, max_size=256, keep=100), [event(1)], [event(2)])
    (left,) = aside(path)
    Path(f"{left}.gz.part").write_bytes(b"half")
    Path(f"{left}.part").write_bytes(b"half")
    reporter = opened(path, max_size=256, keep=100, compress=True)
    eventually(lambda: Path(f"{left}.gz").exists() and not left.exists())
    reporter.close()
    assert numbers(read(Path(f"{left}.gz"))) == [1]


def test_an_empty_file_is_not_archived(tmp_path: Path) -> None:
    """Another program moved the full file, and the new, empty one was rotated; other files keep their contents."""
    path = tmp_path / "events.jsonl"
    empty, whole = (Path(f"{path}.2026013{day}T100000.000000Z") for day in (0, 1))
    empty.touch()
    write(opened(whole), [event(1)])
    reporter = opened(path, max_size=4_096, compress=True)
    eventually(lambda: not whole.exists(), what="what there was compressed")
    reporter.close()
    (archive,) = aside(path)
    assert archive == Path(f"{whole}.gz")
    assert numbers(read(archive)) == [1]


def test_a_moved_or_deleted_file_is_replaced(tmp_path: Path) -> None:
    """After logrotate renames the file or an operator deletes it, the next batch is in a new file with mode 0600."""
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


def test_a_link_is_followed_and_kept(tmp_path: Path) -> None:
    """The target of the link is rotated in the target's folder."""
    real, link = tmp_path / "disk" / "events.jsonl", tmp_path / "events.jsonl"
    real.parent.mkdir()
    link.symlink_to(real)
    reporter = opened(link, max_size=256)
    write(reporter, [event(1)], [event(2)])
    reporter.close()
    assert link.is_symlink()
    assert (everything(real), aside(link)) == ([1, 2], [])


def test_a_file_that_cannot_be_rotated_keeps_growing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has one message. In this test the rotated name would be too long."""
    path = tmp_path / ("e" * 250)
    reporter = opened(path, max_size=256)
    write(reporter, *([event(number)] for number in range(5)))
    reporter.close()
    assert numbers(read(path)) == [0, 1, 2, 3, 4]
    assert len([one for one in caplog.records if "cannot be put aside" in one.getMessage()]) == 1
    assert caplog.records[0].levelno == logging.WARNING


def test_waiting_for_a_lock_does_not_block_the_thread(tmp_path: Path) -> None:
    """A stopped driver may hold the lock: an attempt can be cancelled and then has written nothing."""
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


def test_a_partial_line_of_another_driver_does_not_damage_the_next(tmp_path: Path) -> None:
    """After another driver was killed during a write, the next line starts with a line break."""
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
    """Before a batch counts as delivered; never by default."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    write(opened(tmp_path / "never.jsonl"), [event(1)])
    assert synced == []
    write(opened(tmp_path / "batch.jsonl", fsync="batch"), [event(1)], [event(2)])
    # The folder is synced once, for the name of the new file.
    assert synced == [str(tmp_path), *[str(tmp_path / "batch.jsonl")] * 2]


WRITER = """
import asyncio, sys
from fakes import event
from spark_events.reporters.file import FileConfig, FileReporter

async def main():
    reporter = FileReporter(FileConfig(sys.argv[1], max_size=20_000, keep=100_000, compress=sys.argv[2] == "a"))
    reporter.open()
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(0, 3_000, 3):
        waiting = reporter.report([event(n + i, writer=sys.argv[2], text="x" * (n * 37 % 300)) for i in range(3)])
        if waiting is not None:
            await waiting

asyncio.run(main())
"""


def test_two_drivers_and_logrotate_on_one_path_lose_nothing(tmp_path: Path) -> None:
    """Both drivers rotate, one compresses, and logrotate renames the file now and then."""
    path = tmp_path / "events.jsonl"
    writers = two_writers(WRITER, path)
    ends = [threading.Thread(target=writer.communicate, args=(b"go\n", 60)) for writer in writers]
    for end in ends:
        end.start()
    moved = 0
    while any(writer.poll() is None for writer in writers):
        # The writers may rename it at the same time.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > 5_000:
                path.rename(tmp_path / f"events.jsonl.logrotate-{moved:04d}")
                moved += 1
        time.sleep(0.002)  # interval of logrotate; not a wait for a condition
    for end in ends:
        end.join()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert moved
    seen: dict[str, list[int]] = {"a": [], "b": []}
    for one in tmp_path.iterdir():
        # A file may have been replaced by an empty one between the size check and the rotation.
        is_empty = one != path and one.stat().st_size == 0
        if one.suffix != ".part" and not (one.suffix != ".gz" and Path(f"{one}.gz").exists()) and not is_empty:
            for line in read(one):
                seen[str(line.attributes["writer"])].append(int(line.body))
    assert {name: sorted(found) for name, found in seen.items()} == {name: list(range(3_000)) for name in seen}
