"""The ``file`` reporter puts full files aside: by size and age, with several drivers, and with logrotate."""

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
    """Hands batches over as a worker does."""

    async def all_of_them() -> None:
        for batch in batches:
            waiting = reporter.report(batch)
            if waiting is not None:
                await waiting

    asyncio.run(all_of_them())


def aside(path: Path) -> list[Path]:
    """The files that were put aside, the oldest first."""
    return sorted(one for one in path.parent.iterdir() if one.name.startswith(f"{path.name}."))


def read(path: Path) -> list[Event]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert data.endswith(b"\n")
    return [decode_event(line) for line in data.splitlines()]


def everything(path: Path) -> list[int]:
    """What all files hold, the oldest first."""
    return [number for one in (*aside(path), path) if one.exists() for number in numbers(read(one))]


def test_a_file_that_would_become_too_large_is_put_aside(tmp_path: Path) -> None:
    """No file is larger than was said, and together they hold everything, in order."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=4_096, keep=1_000)
    write(reporter, *([event(number, text="x" * 100)] for number in range(200)))
    reporter.close()
    assert everything(path) == list(range(200))
    assert len(aside(path)) > 10
    assert max(one.stat().st_size for one in (*aside(path), path)) <= 4_096
    assert {one.stat().st_mode & 0o777 for one in (*aside(path), path)} == {0o600}


def test_a_batch_that_is_larger_than_a_file_may_be_has_one_of_its_own(tmp_path: Path) -> None:
    """It is not torn, and an empty file is not put aside for it."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=1_024)
    write(reporter, [event(number, text="x" * 500) for number in range(10)], [event(10)])
    reporter.close()
    assert [numbers(read(one)) for one in (*aside(path), path)] == [list(range(10)), [10]]


def test_a_file_of_another_day_is_put_aside(tmp_path: Path) -> None:
    """By the time of its last line; whoever wrote it, and whenever this process began."""
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
    """As many as was said; files that others have put there are left alone."""
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


def test_a_clock_that_was_set_back_makes_nothing_older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names go on in the order of the events: the newest would be the first to go otherwise."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=256, keep=3)
    write(reporter, *([event(number)] for number in range(6)))
    now = time.time()
    monkeypatch.setattr("spark_events.reporters.file.reporter.time.time", lambda: now - 3_600)
    write(reporter, *([event(number)] for number in range(6, 12)))
    reporter.close()
    assert [number for one in (*aside(path), path) for number in numbers(read(one))] == [8, 9, 10, 11]


def test_a_name_behind_which_there_is_none_is_no_end(tmp_path: Path) -> None:
    """A clock was at the last microsecond that has a name, or somebody plays."""
    path = tmp_path / "events.jsonl"
    stranger = tmp_path / "events.jsonl.99991231T235959.999999Z"
    stranger.touch()
    reporter = opened(path, max_size=256, keep=100)
    write(reporter, *([event(number)] for number in range(4)))
    reporter.close()
    stranger.unlink()
    assert len(aside(path)) == 3
    assert everything(path) == [0, 1, 2, 3]


def test_a_clock_without_a_name_for_its_year_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The file goes on growing, and that is said once."""
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=256)
    monkeypatch.setattr("spark_events.reporters.file.reporter.time.time", lambda: 1e15)
    write(reporter, *([event(number)] for number in range(4)))
    reporter.close()
    assert numbers(read(path)) == [0, 1, 2, 3]
    assert [message.partition(",")[0] for message in caplog.messages] == [f"{path} is full but cannot be put aside"]


def test_one_that_cannot_be_compressed_stops_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    # Its thread logs what it could not do when it is done with the others.
    (said, *_) = eventually(lambda: caplog.messages, what="a line in the log")
    reporter.close()
    assert "could not be compressed, it stays as it is: [Errno 21]" in said


def flock_of_a_network(descriptor: int, operation: int, flock: Callable[[int, int], None] = fcntl.flock) -> None:
    """As flock(2) says of NFS: who wants a file for himself must have it open for writing."""
    if operation & fcntl.LOCK_EX and fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    flock(descriptor, operation)


def test_what_was_put_aside_is_compressed_on_a_network_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There a lock needs a file that may be written."""
    monkeypatch.setattr(fcntl, "flock", flock_of_a_network)
    path = tmp_path / "events.jsonl"
    reporter = opened(path, max_size=256, keep=100, compress=True)
    write(reporter, *([event(number)] for number in range(3)))
    eventually(lambda: packs(reporter, path), what="every file compressed")
    reporter.close()
    assert everything(path) == [0, 1, 2]


def test_what_was_put_aside_is_compressed_and_stays_readable(tmp_path: Path) -> None:
    """In a thread of its own; the lines are the same, and the files are for their owner alone."""
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


def test_what_a_killed_process_has_left_is_compressed_by_the_next(tmp_path: Path) -> None:
    """A half-written archive is not taken for a whole one."""
    path = tmp_path / "events.jsonl"
    write(opened(path, max_size=256, keep=100), [event(1)], [event(2)])
    (left,) = aside(path)
    Path(f"{left}.gz.part").write_bytes(b"half")
    Path(f"{left}.part").write_bytes(b"half")
    reporter = opened(path, max_size=256, keep=100, compress=True)
    eventually(lambda: Path(f"{left}.gz").exists() and not left.exists())
    reporter.close()
    assert numbers(read(Path(f"{left}.gz"))) == [1]


def test_no_archive_is_made_of_a_file_in_which_nothing_is(tmp_path: Path) -> None:
    """Somebody else moved the full one, and the new one was put aside in its place; what is in others stays."""
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


def test_who_moves_the_file_need_tell_nobody(tmp_path: Path) -> None:
    """Logrotate renames it, an operator deletes it: the next batch is in a new one, made for its owner alone."""
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


def test_a_link_is_followed_and_stays(tmp_path: Path) -> None:
    """What it names is put aside, where that is."""
    real, link = tmp_path / "disk" / "events.jsonl", tmp_path / "events.jsonl"
    real.parent.mkdir()
    link.symlink_to(real)
    reporter = opened(link, max_size=256)
    write(reporter, [event(1)], [event(2)])
    reporter.close()
    assert link.is_symlink()
    assert (everything(real), aside(link)) == ([1, 2], [])


def test_a_file_that_cannot_be_put_aside_goes_on_growing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Too large is better than lost; the log says so once. Here, the new name would be too long."""
    path = tmp_path / ("e" * 250)
    reporter = opened(path, max_size=256)
    write(reporter, *([event(number)] for number in range(5)))
    reporter.close()
    assert numbers(read(path)) == [0, 1, 2, 3, 4]
    assert len([one for one in caplog.records if "cannot be put aside" in one.getMessage()]) == 1
    assert caplog.records[0].levelno == logging.WARNING


def test_another_s_lock_is_waited_for_without_blocking_the_thread(tmp_path: Path) -> None:
    """A driver that was stopped holds its lock: an attempt can be cancelled, and has then written nothing."""
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


def test_a_line_that_another_driver_has_left_torn_spoils_none_of_ours(tmp_path: Path) -> None:
    """It was killed while we go on: our next line begins a line."""
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


def test_fsync_is_called_for_each_batch_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a batch counts as delivered; by default, never."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    write(opened(tmp_path / "never.jsonl"), [event(1)])
    assert synced == []
    write(opened(tmp_path / "batch.jsonl", fsync="batch"), [event(1)], [event(2)])
    # The folder once, for the name of the new file.
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
    """Both put files aside, one compresses, and somebody else renames the file now and then."""
    path = tmp_path / "events.jsonl"
    writers = two_writers(WRITER, path)
    ends = [threading.Thread(target=writer.communicate, args=(b"go\n", 60)) for writer in writers]
    for end in ends:
        end.start()
    moved = 0
    while any(writer.poll() is None for writer in writers):
        # The writers rename it, too.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > 5_000:
                path.rename(tmp_path / f"events.jsonl.logrotate-{moved:04d}")
                moved += 1
        time.sleep(0.002)  # how often logrotate comes, not what is waited for
    for end in ends:
        end.join()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert moved
    seen: dict[str, list[int]] = {"a": [], "b": []}
    for one in tmp_path.iterdir():
        # A file that one of the three had found to be large may be a new one by then, in which nothing is yet.
        is_empty = one != path and one.stat().st_size == 0
        if one.suffix != ".part" and not (one.suffix != ".gz" and Path(f"{one}.gz").exists()) and not is_empty:
            for line in read(one):
                seen[str(line.attributes["writer"])].append(int(line.body))
    assert {name: sorted(found) for name, found in seen.items()} == {name: list(range(3_000)) for name in seen}
