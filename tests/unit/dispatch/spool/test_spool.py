"""What a reporter's worker and the driver see of a spool, whatever happens to the disk."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import PATIENCE, event, eventually, numbers
from lateness import Witness

from spark_events import Severity
from spark_events.config import Settings
from spark_events.dispatch.entries import Entries, Entry
from spark_events.dispatch.spool import attempts, clerk, config, connection, files, opening, takeover
from spark_events.dispatch.spool import database as database_module
from spark_events.dispatch.spool import spool as spool_module
from spark_events.dispatch.spool.database import Appended, DamagedError, Database, NewRow, Row
from spark_events.dispatch.spool.salvage import Slice
from spark_events.dispatch.spool.spool import Spool

from .conftest import Open, Owner, counting, somebody_reads, tried_at_once


class SickDatabase(Database):
    """A real one whose writes fail or hang as long as a test wants."""

    error: Exception | None = None
    gate: threading.Event
    entered: threading.Event

    def append(self, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
        self.entered.set()
        self.gate.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return super().append(rows, done, protected)


@pytest.fixture
def sick(monkeypatch: pytest.MonkeyPatch) -> type[SickDatabase]:
    """The spools of this test have such a one."""

    class Sick(SickDatabase):
        gate, entered = threading.Event(), threading.Event()

    Sick.gate.set()
    monkeypatch.setattr(opening, "Database", Sick)
    return Sick


class ForgetfulDatabase(Database):
    """With next to no cache, which would hide for a while what becomes of the file."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self.connection.execute("PRAGMA cache_size = 5")


def corrupt(path: Path) -> None:
    """Spoils a page in the middle of those that have events."""
    content = bytearray(path.read_bytes())
    pages = [start for start in range(0, len(content), 4096) if content[start : start + 4096].count(b"event_id") > 2]
    middle = pages[len(pages) // 2]
    content[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(content)


def kept(folder: Path) -> list[str]:
    return sorted(found.name.split("-")[0] for found in folder.glob("shop-*/*.corrupt-*"))


# --- what it is for -------------------------------------------------------------------------------


def test_what_was_not_delivered_is_delivered_by_the_next(owner: Open) -> None:
    """In order, before its own, and counted by both."""
    first = owner()
    first.write(*range(10))
    assert first.deliver(3) == [0, 1, 2]
    first.close()
    assert (first.counts().spooled, first.counts().held, first.counts().dropped) == (7, 0, {})
    second = owner()
    second.put(10, 11)
    assert second.deliver(9) == list(range(3, 12))
    assert (second.counts().accepted, second.counts().delivered) == (9, 9)


def test_nothing_is_left_when_everything_is_delivered(owner: Open, tmp_path: Path) -> None:
    """No file, no lock, no folder: an application that runs once a minute leaves no litter."""
    one = owner()
    one.write(*range(10))
    one.deliver(10)
    one.close()
    assert list(tmp_path.iterdir()) == []


def test_more_than_memory_holds_comes_in_order(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of it is on disk alone; what is in memory is bounded."""
    monkeypatch.setattr("spark_events.dispatch.spool.spool._WINDOW", 16)
    one = owner()
    for first in range(0, 500, 100):
        one.write(*range(first, first + 100))
    assert one.spool._window.places <= 16
    assert one.counts().spooled == 500
    assert one.deliver(500) == list(range(500))
    one.close()
    assert one.counts().delivered == 500


def test_of_large_events_fewer_are_in_memory(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """As new ones, and as those that are read: however many megabytes are on disk, few are in memory at once."""
    monkeypatch.setattr("spark_events.dispatch.spool.spool._WINDOW", 16)
    first = owner()
    for n in range(20):
        first.write(n, places=4, text="x" * 200_000)
    assert len(first.spool._window._waiting) == 4
    first.close()
    second = owner()
    eventually(lambda: second.spool._window._waiting)
    seen: list[int] = []
    while len(seen) < 20:
        assert len(second.spool._window._waiting) <= 4
        seen += numbers(eventually(lambda: second.spool.take(8)))
        assert len(second.spool._window.taken) <= 2
        second.spool.settle()
    assert seen == list(range(20))


def test_of_large_events_that_pass_by_a_disk_fewer_are_in_memory(
    owner: Open, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait where they are shed by their worth."""
    monkeypatch.setattr("spark_events.dispatch.spool.spool._WINDOW", 16)
    monkeypatch.setattr(clerk, "_BATCH", 8)
    one = owner()
    sick.error = OSError("disk quota exceeded")
    one.put(*range(20), places=4)
    eventually(lambda: one.spool._window._waiting)
    for _ in range(5):
        one.clerk.check()
    # What was being written, and what there is room for beside it.
    assert len(one.spool._window._waiting) == 2 + 4
    assert one.deliver(20) == list(range(20))


def test_an_event_is_safe_when_it_is_on_disk_and_not_before(owner: Open, sick: type[SickDatabase]) -> None:
    """Its record is the oldest until then; the driver would send it again."""
    one = owner()
    one.write(1)
    assert one.spool.oldest_record() is None
    sick.gate.clear()
    one.put(2)
    assert one.spool.oldest_record() == 2
    assert not one.spool.wait_until_answered(0)
    sick.gate.set()
    assert one.spool.wait_until_answered(PATIENCE)
    assert one.counts().held == 0


def test_what_is_put_back_comes_again_before_the_rest(owner: Open) -> None:
    """A thread that was given up loses nothing and changes no order."""
    one = owner()
    one.write(*range(6))
    assert numbers(one.spool.take(2)) == [0, 1]
    one.spool.put_back()
    assert one.deliver(6) == list(range(6))


def test_what_is_sent_again_and_is_still_here_is_one_event(owner: Open) -> None:
    """By its event_id: nothing is accepted twice."""
    one = owner()
    one.write(0, 1, 2)
    again = one.spool.take(10)
    one.spool.put_back()
    one.spool.put(Entries([Entry(n + 10, made) for n, made in enumerate(again)]))
    assert one.spool.wait_until_answered(PATIENCE)
    assert one.counts().accepted == 3
    assert one.deliver(3) == [0, 1, 2]


def test_a_full_spool_sheds_what_is_worth_least_and_says_so_once(
    owner: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of the least severe first; every one is counted, and the failures are still there."""
    monkeypatch.setattr("spark_events.dispatch.spool.spool._WINDOW", 4)
    one = owner(max_size=1)
    for first in range(0, 800, 20):
        one.write(first, severity=Severity.ERROR, filler="x" * 1_000)
        one.write(*range(first + 1, first + 20), filler="x" * 1_000)
    counts = one.counts()
    lost = counts.dropped["spool-full"]
    assert counts.dropped == {"spool-full": lost}
    assert (counts.accepted, counts.spooled) == (800, 800 - lost)
    assert 500 < lost < 700
    told = one.deliver(800 - lost)
    assert told == sorted(told)
    assert set(told) >= set(range(0, 800, 20))
    assert caplog.text.count("its spool has reached spool.max-size") == 1
    one.close()
    assert one.counts().delivered == 800 - lost


def test_a_small_spool_has_room_for_failures_though_the_reporter_takes_nothing(owner: Open) -> None:
    """What waits in memory makes no room on disk, so of a small spool it is a small part."""
    one = owner(max_size=1 << 20)
    for first in range(0, 2_000, 500):
        one.write(*range(first, first + 500), filler="x" * 300)
    one.write(*range(2_000, 2_200), severity=Severity.ERROR, filler="x" * 300)
    counts = one.counts()
    assert counts.dropped["spool-full"] > 200
    assert set(one.deliver(counts.spooled)) >= set(range(2_000, 2_200))


@pytest.mark.parametrize(
    "value",
    ["CAST('{\"name\": 1}' AS BLOB)", "CAST('{\"name\": \"' || X'FF' || '\"}' AS BLOB)", "1"],
    ids=["other JSON", "no text", "no bytes"],
)
def test_a_row_that_is_no_event_is_counted_and_removed(owner: Open, value: str) -> None:
    """What cannot be decoded cannot be delivered, and does not stop what comes behind it."""
    one = owner()
    one.write(*range(3))
    one.close()
    database = sqlite3.connect(one.file)
    database.execute(f"UPDATE events SET event = {value} WHERE id = 2")
    database.commit()
    database.close()
    again = owner()
    assert again.deliver(2) == [0, 2]
    eventually(lambda: again.counts().dropped)
    again.close()
    assert again.counts().dropped == {"spool-corrupt": 1}
    assert not again.file.exists()


# --- a disk that does not work --------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.OperationalError("database or disk is full"),
        sqlite3.OperationalError("disk I/O error"),
        OSError(errno.EMFILE, "Too many open files"),
        MemoryError(),
        ValueError("a defect"),
    ],
    ids=["full", "io", "files", "memory", "defect"],
)
def test_events_pass_by_a_disk_that_fails_and_are_written_when_it_works(
    owner: Open, sick: type[SickDatabase], caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    """They are delivered meanwhile, in order; those that still wait are safe as soon as it works. Said once each."""
    one = owner()
    one.write(0, 1)
    sick.error = error
    one.put(2, 3, 4)
    assert one.deliver(3) == [0, 1, 2]
    assert one.counts().held == 2
    assert one.spool.oldest_record() == 4
    assert one.spool.take(1)
    sick.error = None
    assert one.spool.wait_until_answered(PATIENCE)
    eventually(lambda: not one.clerk.is_failing)
    # What the reporter has at this moment is on disk, too, in its place.
    one.put(5)
    one.close()
    assert (one.counts().spooled, one.counts().held, one.counts().dropped) == (3, 0, {})
    assert caplog.text.count("its spool cannot be used") == 1
    assert caplog.text.count("its spool works again") == 1
    assert owner().deliver(3) == [3, 4, 5]


@pytest.fixture
def full(owner: Open, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch) -> Owner:
    """Most of its fifty events are on a disk that is full, and not in memory."""
    monkeypatch.setattr("spark_events.dispatch.spool.spool._WINDOW", 4)
    one = owner()
    one.write(*range(50))
    sick.error = sqlite3.OperationalError("database or disk is full")
    return one


def test_a_disk_that_is_full_is_still_read(full: Owner, sick: type[SickDatabase]) -> None:
    """Spools that have filled the disk themselves must be able to empty."""
    one = full
    one.put(50, 51)
    assert one.deliver(52) == list(range(52))
    sick.error = None
    one.close()
    assert one.counts().delivered == 52
    assert not one.file.exists()


def test_memory_that_is_short_for_a_moment_is_no_end_of_reading_from_a_full_disk(
    full: Owner, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the clerk all that is on disk would stay there."""
    one = full
    one.put(50)
    eventually(lambda: one.clerk.is_failing)

    def short(*_: object) -> list[Row]:
        monkeypatch.setattr(sick, "read", Database.read)
        raise MemoryError

    monkeypatch.setattr(sick, "read", short)
    # So that it is no attempt at everything.
    one.clerk._retry_at = time.monotonic() + 1.0
    assert one.deliver(51) == list(range(51))


def test_a_disk_that_has_worked_meanwhile_is_told_of_again(
    owner: Open, sick: type[SickDatabase], caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each time that it fails, however often it is tried, and each time as soon as at first."""
    one = owner()
    for number in (0, 1):
        sick.error = sqlite3.OperationalError("database or disk is full")
        one.put(number)
        eventually(lambda: one.clerk.is_failing)
        eventually(lambda: one.clerk._pause > 0.3)
        sick.error = None
        assert one.spool.wait_until_answered(PATIENCE)
        eventually(lambda: not one.clerk.is_failing)
        eventually(lambda: one.clerk._pause == clerk._RETRY_SECONDS)
    assert caplog.text.count("its spool cannot be used, until it can its events are in memory alone") == 2


def test_a_disk_that_fails_for_hours_is_tried_every_few_seconds(owner: Open) -> None:
    """It may be there again at any moment, and until then nothing is safe."""
    one = owner()
    for _ in range(20):
        one.clerk._fails(OSError("the disk is away"))
    assert one.clerk._retry_at is not None
    assert 4.0 < one.clerk._retry_at - time.monotonic() <= 5.0
    one.clerk._retry_at = None


def test_a_disk_that_was_seen_once_may_have_had_no_time(
    owner: Open, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be this process that was stopped, by a debugger say, and not the disk: it has until the next look."""
    one = owner()
    one.write(0)
    sick.gate.clear()
    sick.entered.clear()
    one.put(1)
    assert sick.entered.wait(PATIENCE)
    monkeypatch.setattr(clerk, "_HANG_SECONDS", 0.0)
    failing = []
    for _ in range(2):
        one.spool.check()
        failing.append(one.clerk.is_failing)
    assert failing == [False, True]
    sick.gate.set()
    assert one.spool.wait_until_answered(PATIENCE)


def test_events_pass_by_a_disk_that_hangs(
    owner: Open, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Those in the middle of being written, too; when the disk comes back nothing is there twice."""
    monkeypatch.setattr(clerk, "_HANG_SECONDS", 0.05)
    one = owner()
    one.write(0)
    sick.gate.clear()
    sick.entered.clear()
    one.put(1, 2)
    assert sick.entered.wait(PATIENCE)
    one.put(3)

    def check() -> bool:
        one.spool.check()
        return one.clerk.is_failing

    eventually(check)
    assert one.deliver(3) == [0, 1, 2]
    assert one.counts().held == 1
    sick.gate.set()
    assert one.spool.wait_until_answered(PATIENCE)
    assert one.deliver(1) == [3]
    one.close()
    assert one.counts().delivered == 4
    assert not one.file.exists()
    assert caplog.text.count("its spool has not answered for 0.05 s") == 1
    assert caplog.text.count("its spool works again") == 1


def test_nothing_passes_by_a_disk_any_more_when_its_spool_is_closed(
    owner: Open, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked after until the last of all reporters has ended; what was dropped by then is not held again."""
    monkeypatch.setattr(clerk, "_HANG_SECONDS", 0.05)
    one = owner()
    one.write(0)
    sick.gate.clear()
    sick.entered.clear()
    one.put(1, 2)
    assert sick.entered.wait(PATIENCE)
    one.spool.close(time.monotonic())
    eventually(lambda: one.clerk.is_failing, meanwhile=one.spool.check)
    counts = one.counts()
    assert (counts.spooled, counts.held, counts.dropped) == (1, 0, {"shutdown": 2})
    sick.gate.set()
    one.clerk.join(PATIENCE)
    assert one.counts().dropped == {"shutdown": 2}


@pytest.mark.parametrize("where", ["its own file", "what others left"])
def test_events_pass_by_a_disk_that_hangs_when_it_is_looked_at(
    owner: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """A file system that has gone away hangs whoever asks first; what others left there gets the places behind."""
    monkeypatch.setattr(clerk, "_HANG_SECONDS", 0.05)
    entered, gate = threading.Event(), threading.Event()

    class Away:
        """Whatever is asked of it answers when the gate is open."""

        def __init__(self, found: Any) -> None:
            self._found = found

        def __getattr__(self, name: str) -> Any:
            entered.set()
            gate.wait(PATIENCE)
            return getattr(self._found, name)

    first, second = owner(), owner()
    second.write(0, 1)
    second.close()
    first.write(10)
    monkeypatch.setattr(*((database_module, "os") if where == "its own file" else (files, "os")), Away(os))
    first.clerk._look_again_at = 0.0
    first.put(11)
    assert entered.wait(PATIENCE)
    first.put(12, 13)
    eventually(lambda: first.clerk.is_failing, meanwhile=first.spool.check)
    assert first.deliver(2) == [10, 11]
    assert first.counts().held == 2
    gate.set()
    assert first.spool.wait_until_answered(PATIENCE)
    assert first.deliver(4) == [12, 13, 0, 1]
    assert caplog.text.count("its spool has not answered for 0.05 s") == 1
    eventually(lambda: caplog.text.count("its spool works again") == 1)


def test_an_earlier_run_s_spool_that_hangs_is_said_and_passed_by_afterwards(
    owner: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, sick: type[SickDatabase]
) -> None:
    """While its events get their places nobody else does: what comes meanwhile waits."""
    monkeypatch.setattr(clerk, "_HANG_SECONDS", 0.05)
    first, second = owner(), owner()
    second.write(0, 1)
    second.close()
    first.write(10)
    assert first.deliver(1) == [10]
    sick.gate.clear()
    sick.entered.clear()
    first.clerk._look_again_at = 0.0
    first.put(11)
    assert sick.entered.wait(PATIENCE)
    eventually(lambda: first.clerk.is_failing, meanwhile=first.spool.check)
    assert first.spool.take(5) == []
    sick.gate.set()
    assert first.deliver(3) == [0, 1, 11]
    assert caplog.text.count("its spool has not answered for 0.05 s") == 1


@pytest.mark.parametrize("own", [1, 1_000], ids=["few", "many"])
def test_a_spool_that_takes_long_to_take_in_is_no_disk_that_hangs(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, own: int
) -> None:
    """What an earlier run left comes first however much it is, as long as memory lasts; the order costs no event."""
    first, second = owner(), owner()
    for start in range(0, 2_000, 500):
        second.write(*range(start, start + 500))
    first.close()
    second.close()
    spool: Spool
    now = 0.0

    class Slow(Database):
        def append(self, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
            nonlocal now
            now += 2.0
            # As the thread does that looks after all reporters: seen once, it may be the process that was stopped.
            spool.check()
            spool.check()
            return super().append(rows, done, protected)

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

    monkeypatch.setattr(opening, "Database", Slow)
    monkeypatch.setattr(clerk, "time", Clock)
    settings = config.SpoolConfig(directory=str(tmp_path))
    spool = Spool(1024, lambda desk: clerk.Clerk("shop", "audit", settings, desk), lambda: None, lambda: None)
    spool.put(Entries([Entry(n, event(2_000 + n)) for n in range(own)]))
    spool.start()
    told: list[int] = []
    while len(told) < 2_000 + own:
        told += numbers(eventually(lambda: spool.take(500), what=f"{2_000 + own} events, there were {len(told)}"))
        spool.settle()
    earlier, now_told = list(range(2_000)), list(range(2_000, 2_000 + own))
    assert told == (earlier + now_told if own == 1 else now_told + earlier)
    assert caplog.text.count("some events of this one go first") == (own > 1)
    assert spool.counts().dropped == {}
    assert "has not answered" not in caplog.text
    spool.close(time.monotonic() + PATIENCE)


def test_a_folder_that_cannot_be_listed_is_no_end_of_the_spool_in_it(
    owner: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What others may have left there is not found, which is said once."""
    one = owner()
    error = PermissionError(errno.EACCES, "Permission denied", str(one.file.parent.parent))
    monkeypatch.setattr(os, "listdir", lambda folder: (_ for _ in ()).throw(error))
    for number in range(3):
        one.clerk._look_again_at = 0.0
        one.write(number)
        assert not one.clerk.is_failing
    assert one.deliver(3) == [0, 1, 2]
    assert caplog.text.count("Permission denied") == 1


def test_nobody_waits_long_for_a_disk_that_hangs(
    owner: Open, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch, witness: Witness
) -> None:
    """Whoever dispatches waits once, for a moment; the end does not wait for it at all."""
    monkeypatch.setattr(clerk, "_HANG_SECONDS", 0.05)
    monkeypatch.setattr("spark_events.dispatch.spool.spool._STALL_SECONDS", 0.1)
    one = owner()
    sick.gate.clear()
    one.put(*range(1024))
    began = time.monotonic()
    assert not one.spool.wait_for_room(128, 0.01)
    for _ in range(100):
        assert not one.spool.wait_for_room(128, 0.01)
    assert witness.took(began) < 2
    eventually(lambda: one.clerk.is_failing, meanwhile=one.spool.check)
    assert one.deliver(1024) == list(range(1024))
    began = time.monotonic()
    one.spool.close(began + PATIENCE)
    assert witness.took(began) < 5
    assert one.counts().delivered == 1024
    sick.gate.set()


class IdleClerk:
    """Leaves the work to the test."""

    is_failing = False

    def start(self) -> None: ...

    def check(self) -> None: ...

    def join(self, timeout: float) -> None: ...


@pytest.mark.parametrize("first", ["in vain", "long"])
def test_a_slow_disk_is_waited_for_once_until_it_has_been_quick(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """Whoever waits dispatches to all reporters: they are not to get their events at that disk's rate."""
    now = 0.0
    takes: float | None = 0.8 if first == "long" else None
    waited: list[float] = []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now

        time = monotonic

    monkeypatch.setattr(spool_module, "time", Clock)
    spool = Spool(1024, lambda desk: IdleClerk(), lambda: None, lambda: None)
    front, has_room = spool._front, spool._front.wait_for_room

    def fill() -> None:
        spool.put(Entries([Entry(1, event(n)) for n in range(1_024 - front.counts().held)]))

    def write(seconds: float) -> None:
        nonlocal now
        waiting = spool.to_write(512)
        now += seconds
        spool.written(waiting, Appended(frozenset(one.id for one in waiting), frozenset(), frozenset()), 0)

    def wait(events: int, timeout: float) -> bool:
        """In the meantime the disk writes, or does not."""
        nonlocal now
        waited.append(timeout)
        if takes is None:
            now += timeout
        else:
            write(takes)
        return has_room(events, 0.0)

    monkeypatch.setattr(front, "wait_for_room", wait)
    fill()
    assert spool.wait_for_room(128, 0.01) is (first == "long")
    for _ in range(5):
        fill()
        assert not spool.wait_for_room(128, 0.01)
        write(0.8)
    assert waited == [1.0]
    # It has become quick again: a burst is not shed, however long it is.
    write(0.01)
    takes = 0.01
    for _ in range(5):
        fill()
        assert spool.wait_for_room(128, 0.01)
    assert len(waited) == 6
    assert spool.counts().dropped == {}


def test_what_no_disk_has_taken_by_the_end_is_counted_as_lost(owner: Open, sick: type[SickDatabase]) -> None:
    """With a destination that is away and a disk that fails there is nowhere to keep it."""
    one = owner()
    one.write(0, 1)
    sick.error = sqlite3.OperationalError("disk I/O error")
    one.put(2, 3)
    eventually(lambda: one.clerk.is_failing)
    one.close()
    assert one.counts().dropped == {"shutdown": 2}
    assert one.counts().spooled == 2


def test_a_directory_that_may_not_be_written_costs_the_guarantee_alone(
    owner: Open, closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once, with the path; events are delivered from memory."""
    one = owner(closed)
    one.put(*range(5))
    assert one.deliver(5) == list(range(5))
    assert caplog.text.count("its spool cannot be used") == 1
    assert f"Permission denied: '{closed}/shop-" in caplog.text
    assert one.counts().held == 0
    one.close()


def test_a_spool_comes_when_its_directory_can_be_made(owner: Open, tmp_path: Path) -> None:
    """What had passed by and still waits is written before what comes."""
    (tmp_path / "spools").touch()
    one = owner(tmp_path / "spools")
    one.put(0, 1, 2)
    assert one.deliver(1) == [0]
    (tmp_path / "spools").unlink()
    assert one.spool.wait_until_answered(PATIENCE)
    one.put(3)
    one.close()
    assert owner(tmp_path / "spools").deliver(3) == [1, 2, 3]


def test_what_an_earlier_run_left_comes_behind_what_had_to_pass_by(owner: Open, sick: type[SickDatabase]) -> None:
    """It could not be known that it was there; both are delivered, and both are safe."""
    first = owner()
    first.write(0, 1)
    first.close()
    folder = first.file.parent.parent
    folder.rename(folder.with_name("away"))
    folder.touch()
    second = owner()
    second.put(10, 11, 12)
    assert second.deliver(1) == [10]
    folder.unlink()
    folder.with_name("away").rename(folder)
    assert second.spool.wait_until_answered(PATIENCE)
    second.close()
    assert owner().deliver(4) == [11, 12, 0, 1]


def test_without_a_home_there_is_no_spool_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A container's user may have none."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home directory")))
    made: list[clerk.Clerk] = []

    def make(desk: Spool) -> clerk.Clerk:
        made.append(clerk.Clerk("shop", "audit", config.SpoolConfig(), desk))
        return made[0]

    spool = Spool(10, make, lambda: None, lambda: None)
    spool.start()
    eventually(lambda: made[0].is_failing)
    assert "no home directory" in caplog.text
    spool.close(time.monotonic() + PATIENCE)


def test_the_default_is_where_programs_keep_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the XDG base directory specification, which ignores paths that are not absolute."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert config.directory_of(config.SpoolConfig()) == tmp_path / "spark-events/spool"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/ada")
    assert config.directory_of(config.SpoolConfig()) == Path("/home/ada/.local/state/spark-events/spool")


def test_a_directory_is_the_one_that_was_meant_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A reporter may go elsewhere, and the clerk comes to it later."""
    monkeypatch.chdir(tmp_path)
    found = Settings.of({"audit.spool.directory": "spool"}).read(config.SpoolConfig, "audit")
    assert found is not None
    monkeypatch.chdir("/")
    assert config.directory_of(found) == tmp_path / "spool"


# --- a file that is damaged -----------------------------------------------------------------------


def test_damage_that_is_found_at_the_start_costs_what_cannot_be_read(
    owner: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The file is kept for a person, what can be read is delivered in order, the rest is counted."""
    one = owner()
    for first in range(0, 1_000, 250):
        one.write(*range(first, first + 250))
    one.close()
    corrupt(one.file)
    again = owner()
    again.put(1_000)
    eventually(lambda: again.counts().dropped)
    lost = again.counts().dropped["spool-corrupt"]
    assert 0 < lost < 20
    told = again.deliver(1_001 - lost)
    assert told == sorted(set(told))
    assert told[-1] == 1_000
    assert again.counts().accepted == 1_001
    assert kept(tmp_path) == ["audit.0.corrupt"]
    assert f"{1_000 - lost} events were read from it, {lost} could not be" in caplog.text
    again.close()
    assert kept(tmp_path) == ["audit.0.corrupt"]


@pytest.mark.parametrize("content", [b"", b"this is no database" * 500], ids=["empty", "garbage"])
def test_a_file_that_is_no_spool_does_not_stop_anything(owner: Open, tmp_path: Path, content: bytes) -> None:
    """An empty one is a new one; anything else is set aside."""
    one = owner()
    one.write(0)
    one.close()
    one.file.write_bytes(content)
    again = owner()
    again.write(1, 2)
    assert again.deliver(2) == [1, 2]
    again.close()
    assert kept(tmp_path) == (["audit.0.corrupt"] if content else [])


def test_a_spool_of_another_version_is_set_aside_and_what_can_be_read_is_delivered(owner: Open, tmp_path: Path) -> None:
    """Whatever a later version has changed, rows that look like ours are ours."""
    one = owner()
    one.write(0, 1)
    one.close()
    database = sqlite3.connect(one.file)
    database.execute("PRAGMA user_version = 9")
    database.close()
    again = owner()
    assert again.deliver(2) == [0, 1]
    again.close()
    assert kept(tmp_path) == ["audit.0.corrupt"]
    assert again.counts().dropped == {}


def test_a_file_that_is_removed_while_it_is_used_is_begun_again(
    owner: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is lost: what is in memory is written again, what is not is read from the file that is gone."""
    monkeypatch.setattr("spark_events.dispatch.spool.spool._WINDOW", 4)
    one = owner()
    one.write(*range(10))
    shutil.rmtree(one.file.parent.parent)
    one.write(10)
    assert "the file of its spool was removed" in caplog.text
    assert one.file.exists()
    one.close()
    assert (one.counts().spooled, one.counts().dropped) == (11, {})
    assert owner().deliver(11) == list(range(11))


def test_a_file_that_comes_back_is_used_again(
    owner: Open, tmp_path: Path, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is away for a moment, in which nothing can be begun: nothing of it is lost, or counted twice."""
    monkeypatch.setattr(spool_module, "_WINDOW", 16)
    one = owner()
    one.write(*range(40))
    folder, away, claim = one.file.parent.parent, tmp_path / "away", files.claim

    def come_back(*_: object) -> None:
        # Meanwhile the reporter goes on with what is in memory.
        assert one.deliver(5) == list(range(5, 10))
        monkeypatch.setattr(opening, "claim", claim)
        away.rename(folder)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    def commit_and_fail(self: SickDatabase, *what: Any) -> Appended:
        Database.append(self, *what)
        folder.rename(away)
        monkeypatch.setattr(opening, "claim", come_back)
        monkeypatch.setattr(sick, "append", SickDatabase.append)
        raise sqlite3.OperationalError("disk I/O error")

    assert one.deliver(5) == list(range(5))
    eventually(lambda: not one.spool.to_remove())
    monkeypatch.setattr(sick, "append", commit_and_fail)
    one.write(40)
    assert one.counts().spooled == 31
    assert one.deliver(31) == list(range(10, 41))
    one.close()
    assert (one.counts().accepted, one.counts().dropped) == (41, {})
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_is_removed_while_it_is_used_is_begun_again(owner: Open, caplog: pytest.LogCaptureFixture) -> None:
    """From the next write on everything is where a successor finds it."""
    one = owner()
    one.write(*range(10))
    log = one.file.with_name("events.db-wal")
    log.unlink()
    one.write(10)
    assert log.exists()
    assert caplog.text.count("the log of its spool was removed") == 1
    assert one.deliver(11) == list(range(11))


class BadSector:
    """A file that opens and begins well, of which something cannot be read as long as a test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_bad = True
        self.is_bad_for = ""
        self.tried = 0
        self._read = connection.read_through
        for module in (connection, database_module):
            monkeypatch.setattr(module, "read_through", self._read_through)

    def _read_through(self, path: Path, on_progress: Callable[[], None]) -> None:
        if self.is_bad and self.is_bad_for in str(path) and path.exists():
            self.tried += 1
            raise OSError(errno.EIO, "Input/output error")
        self._read(path, on_progress)


def test_a_folder_that_goes_while_its_file_is_waited_for_is_made_again(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = owner()
    left.write(*range(3))
    left.close()
    sector = BadSector(monkeypatch)
    one = owner()
    assert one.clerk.is_failing
    shutil.rmtree(one.file.parent)
    one.write(3)
    eventually(lambda: not one.clerk.is_failing)
    assert sector.tried
    sector.is_bad = False
    assert one.deliver(1) == [3]
    one.write(4)
    assert one.counts().spooled == 1
    one.close()
    assert owner().deliver(1) == [4]


@pytest.mark.parametrize("patience", [60.0, 0.0], ids=["passing", "lasting"])
def test_a_file_that_cannot_be_read_through_is_waited_for_before_it_is_opened(
    owner: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    """SQLite would take it for damage, and what could be read a moment later would be given up. Not for ever."""
    left = owner()
    left.write(*range(10))
    left.close()
    sector = BadSector(monkeypatch)
    monkeypatch.setattr(opening, "PATIENT_SECONDS", patience)
    one = owner()
    assert one.clerk.is_failing == bool(patience)
    assert ("its spool cannot be used" in caplog.text) == bool(patience)
    sector.is_bad = False
    assert one.deliver(10) == list(range(10))
    assert "damaged" not in caplog.text


@pytest.mark.parametrize(
    ("said", "patience", "is_damage"),
    [
        (["unable to get the page. error code=8458"] * 2, 60.0, False),
        (["unable to get the page. error code=7", "unable to get the page. error code=14"], 60.0, False),
        (["failed to get page 22"], 60.0, False),
        (["Failed to read ptrmap key=22"], 60.0, False),
        (["unable to get the page. error code=8458"], 0.0, True),
        (["unable to get the page. error code=11"], 60.0, True),
    ],
    ids=["io", "memory and opening", "without a reason", "without a reason, of a map", "lasting", "corrupt"],
)
def test_a_page_that_sqlite_does_not_get_is_waited_for(
    owner: Open,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    patience: float,
    is_damage: bool,
) -> None:
    """Its check tells of it as it tells of damage, but for a few words."""
    said = [*said]
    left = owner()
    left.write(*range(10))
    left.close()

    class Checked(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            if "quick_check" in statement and said:
                found = f"*** in database main ***\nPage 21: {said.pop()}"
                return super().execute("SELECT ?", (found,))
            return super().execute(statement, *values)

    monkeypatch.setattr(opening, "PATIENT_SECONDS", patience)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Checked))
        one = owner()
        assert one.deliver(10) == list(range(10))
    assert not said
    assert ("its spool is damaged" in caplog.text) == is_damage


def test_a_disk_that_takes_long_to_say_that_it_fails_is_waited_for_all_the_same(
    owner: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first attempt took is no part of the time that the file is given."""
    left = owner()
    left.write(*range(10))
    left.close()
    monkeypatch.setattr(opening, "PATIENT_SECONDS", 30.0)
    passed = 0.0
    monkeypatch.setattr(opening, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))
    tried: list[None] = []

    def read_through(path: Path, on_progress: Callable[[], None]) -> None:
        nonlocal passed
        passed += 100.0 if not tried else 0.0
        tried.append(None)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(database_module, "read_through", read_through)
    one = owner()
    eventually(lambda: len(tried) > 2)
    assert one.clerk.is_failing
    passed += 100.0
    assert one.deliver(10) == list(range(10))


def test_an_orphan_that_could_not_be_read_is_not_tried_whenever_one_s_own_is_opened(
    owner: Open, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One's own disk may fail every few seconds: that is no reason to read through another's as often."""
    first, second = owner(), owner()
    second.write(*range(10))
    first.close()
    second.close()
    tried: list[None] = []
    take = opening.Opening._take

    def take_in_vain(self: opening.Opening, *what: Any) -> None:
        take(self, *what)
        tried.append(None)
        if len(tried) < 4:
            raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(opening.Opening, "_take", take_in_vain)
    sector = BadSector(monkeypatch)
    sector.is_bad_for = second.file.parent.name
    monkeypatch.setattr(attempts, "_FIRST_SECONDS", 300.0)
    owner()
    eventually(lambda: len(tried) == 4)
    assert sector.tried == 1


def test_a_run_that_is_shorter_than_the_patience_keeps_what_it_has(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end nothing is waited for: what it has is written, to whatever file can be written."""
    left = owner()
    left.write(*range(10))
    left.close()
    sector = BadSector(monkeypatch)
    short = owner()
    short.put(10, 11)
    short.close()
    assert (short.counts().spooled, short.counts().dropped) == (12, {})
    sector.is_bad = False
    assert owner().deliver(12) == list(range(12))


def test_what_an_earlier_run_has_waited_for_is_not_waited_for_by_each(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is set aside the name tells since when: runs that are short get at what can be read, too."""
    left = owner()
    left.write(*range(10))
    left.close()
    folder = left.file.parent
    folder.rename(f"{folder}.damaged-{time.time_ns() - int(3600e9)}")
    BadSector(monkeypatch)
    one = owner()
    assert one.deliver(10) == list(range(10))
    assert len(kept(folder.parent.parent)) == 1


def test_an_orphan_that_cannot_be_read_through_is_left_where_it_is(
    owner: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And taken over when it can be: nothing of it is lost, and nothing of it is kept as damaged."""
    first, second = owner(), owner()
    second.write(*range(10))
    first.close()
    second.close()
    sector = BadSector(monkeypatch)
    monkeypatch.setattr(attempts, "_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    one = owner()
    one.put(10)
    assert one.deliver(1) == [10]
    eventually(lambda: "what an earlier run has left cannot be read now, it is tried again" in caplog.text)
    sector.is_bad = False
    assert one.deliver(10) == list(range(10))
    assert not list(tmp_path.rglob("*.corrupt-*"))


def test_damage_on_a_disk_that_tells_nothing_is_waited_for(
    owner: Open, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is given up only where it can be seen that it is still the same; the clerk outlives that it cannot."""
    one = owner()
    one.write(0)

    def stale(_: Database) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle")

    def spoil(*_: object) -> Appended:
        monkeypatch.setattr(sick, "is_in_place", property(stale))
        raise sqlite3.DatabaseError("database disk image is malformed")

    with monkeypatch.context() as patch:
        patch.setattr(sick, "append", spoil)
        one.put(1)
        eventually(lambda: one.clerk.is_failing)
        assert one.deliver(2) == [0, 1]
    monkeypatch.setattr(sick, "is_in_place", Database.is_in_place)
    one.write(2)
    assert one.deliver(1) == [2]


@pytest.mark.parametrize("patience", [60.0, 0.0], ids=["passing", "lasting"])
def test_a_page_that_the_disk_does_not_give_while_it_is_used_is_waited_for(
    owner: Open, tmp_path: Path, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    """SQLite says of it what it says of damage. Where all of the file can be had it is gone on with; not for ever."""
    monkeypatch.setattr(clerk, "PATIENT_SECONDS", patience)
    one = owner()
    one.write(*range(10))
    sick.error = sqlite3.DatabaseError("database disk image is malformed")
    one.put(10)
    eventually(lambda: one.clerk.is_failing)
    sick.error = None
    assert one.spool.wait_until_answered(PATIENCE)
    assert one.deliver(11) == list(range(11))
    assert one.counts().dropped == {}
    one.close()
    assert kept(tmp_path) == ([] if patience else ["audit.0.corrupt"])


def test_damage_that_shows_while_it_is_used_loses_nothing_that_can_be_read(
    owner: Open, tmp_path: Path, sick: type[SickDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in memory lost only its row; with what is read from the old file everything is there, in order."""
    monkeypatch.setattr("spark_events.dispatch.spool.spool._WINDOW", 4)
    one = owner()
    one.write(*range(10))
    assert numbers(one.spool.take(2)) == [0, 1]
    sick.error = DamagedError("database disk image is malformed")
    one.put(10)
    eventually(lambda: one.clerk.is_failing)
    sick.error = None
    assert one.spool.wait_until_answered(PATIENCE)
    one.close()
    assert (one.counts().spooled, one.counts().dropped) == (11, {})
    assert kept(tmp_path) == ["audit.0.corrupt"]
    assert owner().deliver(11) == list(range(11))


@pytest.mark.parametrize("how", ["overwritten", "truncated"])
def test_a_file_that_is_spoilt_while_it_is_used_keeps_the_books(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Under SQLite's feet: whatever of it can still be had is delivered, the rest is counted, and it goes on."""
    monkeypatch.setattr("spark_events.dispatch.spool.spool._WINDOW", 4)
    monkeypatch.setattr(opening, "Database", ForgetfulDatabase)
    one = owner(max_size=1)
    for first in range(0, 200, 50):
        one.write(*range(first, first + 50), filler="x" * 500)
    content = one.file.read_bytes()
    half = len(content) // 2
    one.file.write_bytes(content[:half] if how == "truncated" else content[:half] + b"\xff" * (len(content) - half))
    one.put(200)
    told: list[int] = []

    def all_is_told() -> bool:
        told.extend(numbers(one.spool.take(10)))
        one.spool.settle()
        counts = one.counts()
        return counts.delivered + sum(counts.dropped.values()) == 201 and not counts.spooled

    eventually(all_is_told)
    assert told == sorted(set(told))
    assert told[-1] == 200
    assert set(one.counts().dropped) <= {"spool-corrupt"}


_A_DAY_LATER = time.time() + 86_400

# --- others ---------------------------------------------------------------------------------------


def test_two_drivers_of_one_name_keep_theirs_apart(owner: Open) -> None:
    """At the same time; and whichever starts next delivers what both left."""
    first, second = owner(), owner()
    first.write(0, 1)
    second.write(10, 11)
    assert first.file != second.file
    first.close()
    second.close()
    third = owner()
    assert third.deliver(4) == [0, 1, 10, 11]
    third.close()
    assert not first.file.exists()
    assert not second.file.exists()


def test_many_that_were_left_cost_no_more_descriptors_than_one(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is let go before the next is taken: a process has some hundred descriptors for everything."""
    before = [owner() for _ in range(4)]
    for number, one in enumerate(before):
        one.write(number)
    for one in before:
        one.close()
    had: list[int] = []
    others = len(files._descriptors)
    add = takeover.Takeover.add

    def counted(self: takeover.Takeover, piece: Slice) -> None:
        had.append(len(files._descriptors) - others)
        add(self, piece)

    monkeypatch.setattr(takeover.Takeover, "add", counted)
    assert owner().deliver(4) == [0, 1, 2, 3]
    # One's own, and the one that is being taken in.
    assert had == [2, 2, 2]


def test_what_a_predecessor_leaves_that_is_still_dying_is_found_later(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor starts the next run before the last sidecar has gone: its events come a little later."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.05)
    first = owner()
    first.write(0, 1)
    second = owner()
    second.write(10)
    assert second.deliver(1) == [10]
    first.close()
    assert second.deliver(2) == [0, 1]
    assert second.counts().accepted == 3
    second.close()
    assert not first.file.exists()


def test_what_one_leaves_that_came_later_is_found_by_one_that_lives(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two drivers of one name, whichever goes first: the other need not have seen it come."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.05)
    first = owner()
    first.write(0)
    assert first.deliver(1) == [0]
    second = owner()
    second.write(10, 11)
    second.close()
    assert first.deliver(2) == [10, 11]
    first.close()


def test_what_there_is_no_room_for_stays_where_it_is_safe(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it would make others go; it comes as soon as there is room."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    first, second = owner(max_size=1), owner()
    first.write(*range(60), text="x" * 1_500)
    second.write(1_000, text="x" * 150_000)
    second.close()
    looked = counting(monkeypatch, opening.Opening, "look")
    # The second look begins when the first has ended.
    eventually(lambda: len(looked) > 1)
    assert (first.counts().accepted, first.counts().dropped) == (60, {})
    assert second.file.exists()
    assert first.deliver(61) == [*range(60), 1_000]
    assert (first.counts().accepted, first.counts().dropped) == (61, {})
    eventually(lambda: not second.file.exists())


def test_what_waits_on_disk_is_delivered_before_more_is_taken_over(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a destination is away, say: what others have left is safe where it is, and in one file."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    first, second = owner(max_size=1), owner()
    first.write(*range(100))
    second.write(*range(1_000, 1_010))
    second.close()
    looked = counting(monkeypatch, clerk.Clerk, "_inherit")
    eventually(lambda: len(looked) > 2)
    assert first.counts().accepted == 100
    assert first.deliver(110) == [*range(100), *range(1_000, 1_010)]


def test_what_is_too_large_for_the_whole_spool_holds_nobody_up(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up where it is looked for, and counted; what comes behind it is delivered."""
    first, second = owner(), owner()
    second.write(1)
    second.write(2, text="x" * 300_000)
    second.write(3)
    first.close()
    second.close()
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    third = owner(max_size=1)
    assert third.deliver(2) == [1, 3]
    assert third.counts().dropped == {"spool-full": 1}
    eventually(lambda: not second.file.exists())


def test_the_first_to_start_sheds_nothing_of_what_others_have_left(owner: Open) -> None:
    """The drivers of a machine that was started again: each had filled its spool, and comes for it."""
    before = [owner(max_size=1) for _ in range(3)]
    for start, one in enumerate(before):
        one.write(*range(1_000 * start, 1_000 * start + 150), text="x" * 1_000)
    for one in before:
        one.close()
    after = [owner(max_size=1) for _ in range(3)]
    for start, one in enumerate(after):
        assert (one.counts().spooled, one.counts().dropped) == (150, {})
        assert one.deliver(150) == list(range(1_000 * start, 1_000 * start + 150))


def test_what_a_smaller_limit_leaves_no_room_for_is_said(owner: Open, caplog: pytest.LogCaptureFixture) -> None:
    """At the start, too, where it is one's own."""
    first = owner()
    first.write(*range(600), text="x" * 1_000)
    first.close()
    first.file.parent.rename(f"{first.file.parent}.damaged-1")
    second = owner(max_size=1)
    eventually(lambda: second.counts().dropped)
    assert caplog.text.count("its spool has reached spool.max-size") == 1
    counts = second.counts()
    assert counts.spooled + counts.dropped["spool-full"] == 600


def test_what_is_larger_than_a_whole_spool_comes_as_room_is_made_for_it(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit was another, or its file has grown."""
    first, second = owner(), owner()
    for start in (0, 600):
        second.write(*range(start, start + 600), text="x" * 1_000)
    first.close()
    second.close()
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    third = owner(max_size=1)
    assert third.deliver(1_200) == list(range(1_200))
    assert (third.counts().accepted, third.counts().dropped) == (1_200, {})
    eventually(lambda: not second.file.exists())


def test_a_spool_that_was_full_once_has_room_again(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large its file has become: what was delivered has left its pages to others."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    first = owner(max_size=1)
    while not first.counts().dropped:
        first.write(*range(100), filler="x" * 400)
    first.deliver(first.counts().spooled)
    eventually(lambda: not first.spool.has_to_write())
    second = owner(max_size=1)
    second.write(10, 11)
    second.close()
    assert first.deliver(2) == [10, 11]


def test_a_neighbour_that_cannot_be_looked_at_is_nobody_s_trouble(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's, say, in one directory: one's own spool works all the same."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    first, second = owner(), owner()
    second.write(10)
    number = second.file.parent.name.rpartition(".")[0]
    # The lock first: both clerks look, and would make one.
    second.file.parent.with_name(f"{number}.2.lock").mkdir()
    second.file.parent.with_name(f"{number}.2").mkdir()
    second.close()
    assert first.deliver(1) == [10]
    assert not first.clerk.is_failing
    first.close()


def test_a_disk_that_is_full_in_the_middle_of_a_takeover_loses_nothing(
    owner: Open, monkeypatch: pytest.MonkeyPatch, sick: type[SickDatabase]
) -> None:
    """What came before has its places, and what is written then gets others; the rest of the orphan comes later."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.05)
    first, second = owner(), owner()
    first.write(*range(1_000))
    whole, appended = sick.append, threading.Event()

    def full(self: SickDatabase, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
        if appended.is_set() and rows:
            raise sqlite3.OperationalError("database or disk is full")
        made = whole(self, rows, done, protected)
        if rows:
            appended.set()
        return made

    monkeypatch.setattr(sick, "append", full)
    first.close()
    eventually(lambda: second.clerk.is_failing)
    assert 0 < second.counts().accepted < 1_000
    monkeypatch.setattr(sick, "append", whole)
    second.write(*range(5_000, 5_100))
    eventually(lambda: second.counts().accepted == 1_100, what="the rest of the orphan")
    second.close()
    third = owner()
    assert sorted(third.deliver(1_100)) == [*range(1_000), *range(5_000, 5_100)]


def test_only_what_is_on_no_disk_keeps_anybody_waiting(
    owner: Open, monkeypatch: pytest.MonkeyPatch, sick: type[SickDatabase]
) -> None:
    """What is safe may wait for days; what is being written now has waited for a moment."""
    one = owner()
    one.write(0)
    assert one.spool.unanswered_for() == 0.0
    monkeypatch.setattr("spark_events.dispatch.spool.spool.time.time", lambda: _A_DAY_LATER)
    sick.entered.clear()
    sick.gate.clear()
    one.put(1)
    assert sick.entered.wait(PATIENCE)
    assert one.counts().oldest_age > 80_000
    assert 0.0 < one.spool.unanswered_for() < 60.0
    sick.gate.set()


def test_what_passes_by_a_disk_keeps_who_waits_waiting(owner: Open, closed: Path) -> None:
    """Nobody has it but the reporter, so it counts as unanswered until that has taken it."""
    one = owner(closed)
    one.put(0)
    eventually(lambda: one.spool.take(5))
    time.sleep(0.01)
    assert one.spool.unanswered_for() > 0.0
    one.spool.settle()
    assert one.spool.unanswered_for() == 0.0


def test_a_damaged_orphan_is_kept_and_counted(owner: Open, tmp_path: Path) -> None:
    """What another left damaged is treated no worse than one's own."""
    first, second = owner(), owner()
    first.write(0)
    for start in range(0, 500, 100):
        second.write(*range(start, start + 100))
    first.close()
    second.close()
    corrupt(second.file)
    third = owner()
    eventually(lambda: third.counts().dropped)
    counts = third.counts()
    assert counts.accepted == 501
    assert 0 < counts.dropped["spool-corrupt"] < 20
    third.deliver(501 - counts.dropped["spool-corrupt"])
    third.close()
    assert kept(tmp_path) == ["audit.1.corrupt"]


@pytest.mark.parametrize("steps", [0, 1], ids=["no byte", "no table"])
def test_an_owner_that_was_killed_before_it_had_tables_is_gone_without_a_word(
    owner: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture, steps: int
) -> None:
    """Nothing had been acknowledged; there is nothing for a person to look at."""
    first, second = owner(), owner()
    first.write(0)
    second.close()
    first.close()
    second.file.parent.mkdir()
    second.file.touch()
    if steps:
        db = sqlite3.connect(second.file)
        db.execute("PRAGMA journal_mode = WAL")
        db.close()
        assert second.file.stat().st_size == 4096
    third = owner()
    assert third.deliver(1) == [0]
    third.close()
    assert list(tmp_path.iterdir()) == []
    assert "damaged" not in caplog.text


def test_a_file_that_has_lost_its_tables_is_kept(owner: Open, tmp_path: Path) -> None:
    """There were some: it is larger than a new one."""
    first, second = owner(), owner()
    first.write(0)
    second.write(*range(1, 100))
    second.close()
    first.close()
    db = sqlite3.connect(second.file)
    db.execute("PRAGMA writable_schema = ON")
    db.execute("DELETE FROM sqlite_master")
    db.commit()
    db.close()
    third = owner()
    assert third.deliver(1) == [0]
    third.close()
    assert kept(tmp_path) == ["audit.1.corrupt"]


def test_what_another_left_and_somebody_reads_is_delivered_when_it_can_be(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is neither damaged nor lost, and one's own works meanwhile; said once, however often it is tried."""
    first, second = owner(), owner()
    first.write(0)
    second.write(*range(10, 1_000))
    first.close()
    second.close()
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    tried = counting(monkeypatch, attempts.Attempts, "failed")
    with somebody_reads(second.file):
        third = owner()
        third.write(1)
        assert third.deliver(2) == [0, 1]
        eventually(lambda: len(tried) > 3)
        assert not third.clerk.is_failing
    assert third.deliver(990) == list(range(10, 1_000))
    third.close()
    assert kept(tmp_path) == []
    assert third.counts().accepted == 992
    assert caplog.text.count(f"{second.file}: database is locked") == 1
    assert not second.file.exists()


def test_what_others_left_and_somebody_reads_keeps_nobody_waiting(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither at the start nor at a later look, where it is found out while events can still pass by."""
    first, second = owner(), owner()
    first.write(0)
    second.write(1)
    first.close()
    second.close()
    # Whoever waits for a file of others waits until the test has failed.
    monkeypatch.setattr(database_module, "_LOCKED_SECONDS", 10 * PATIENCE)
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    tried = counting(monkeypatch, attempts.Attempts, "failed")
    with somebody_reads(second.file):
        third = owner()
        third.write(2)
        inherited = counting(monkeypatch, opening.Opening, "inherit")
        tried.clear()
        eventually(lambda: len(tried) > 3)
        third.write(3)
        assert not inherited
    assert third.deliver(4) == [0, 2, 3, 1]


def test_what_cannot_be_read_is_tried_less_and_less_often(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """At the next look, then after twice the time each, up to some minutes; once it was read, from the beginning."""
    now = 0.0
    tries = attempts.Attempts("audit", lambda: now)

    def pauses(count: int) -> list[float]:
        nonlocal now
        waited = []
        for _ in range(count):
            tries.failed(tmp_path, "it cannot be read", OSError("it is away"))
            before = now
            while not tries.is_due(tmp_path):
                now += 1.0
            waited.append(now - before)
        return waited

    assert tries.is_due(tmp_path)
    assert pauses(8) == [4, 8, 16, 32, 64, 128, 256, 300]
    assert tries.is_due(tmp_path / "another")
    tries.succeeded(tmp_path)
    assert pauses(2) == [4, 8]
    assert caplog.text.count("it is away") == 1


def test_attempts_before_their_time_wear_out_no_patience(tmp_path: Path) -> None:
    """Whoever begins anew tries everything: that ten attempts failed within seconds says nothing of a file."""
    now = 0.0
    tries = attempts.Attempts("audit", lambda: now)
    for _ in range(10):
        tries.failed(tmp_path, "it cannot be read", OSError("it is away"))
    assert tries.is_patient(tmp_path)
    now = attempts._FIRST_SECONDS
    assert tries.is_due(tmp_path)
    now = 100 * attempts.HOPEFUL_SECONDS
    assert tries.is_patient(tmp_path)


def test_patience_ends_after_a_time_with_attempts_in_it(tmp_path: Path) -> None:
    """There may be a long time in which nobody tries, because a destination is away."""
    now = 0.0
    tries = attempts.Attempts("audit", lambda: now)
    tried_at = []
    while tries.is_patient(tmp_path):
        if tries.is_due(tmp_path):
            tries.failed(tmp_path, "it cannot be read", OSError("it is away"))
            tried_at.append(now)
        now += 1.0
    assert (tried_at, now) == ([0, 4, 12, 28, 60], attempts.HOPEFUL_SECONDS)
    tries.succeeded(tmp_path)
    assert tries.is_patient(tmp_path)


def test_a_damaged_file_that_somebody_reads_is_salvaged_when_it_can_be(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of one's own spool: until then the next file works, and nothing is taken for lost."""
    one = owner()
    one.write(*range(10))
    one.close()
    damaged = one.file.parent.rename(f"{one.file.parent}.damaged-1")
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    tried = counting(monkeypatch, attempts.Attempts, "failed")
    with somebody_reads(damaged / "events.db"):
        again = owner()
        again.write(*range(10, 15))
        eventually(lambda: len(tried) > 2)
        assert again.deliver(1) == [10]
        assert not again.clerk.is_failing
    eventually(lambda: again.counts().accepted == 15, what="what was damaged")
    assert again.deliver(14) == [*range(11, 15), *range(10)]
    again.close()
    assert caplog.text.count(f"{damaged}/events.db: database is locked") == 1
    assert kept(tmp_path) == ["audit.0.corrupt"]


def test_what_is_damaged_while_it_is_used_and_cannot_be_read_at_once_comes_later(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sick: type[SickDatabase]
) -> None:
    """Each event once; what is not here meanwhile is neither lost nor accepted again."""
    monkeypatch.setattr(spool_module, "_WINDOW", 4)
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    one = owner()
    one.write(*range(10))
    set_aside = files.Claim.set_aside
    with contextlib.ExitStack() as stack:

        def set_aside_and_read(self: files.Claim) -> None:
            set_aside(self)
            stack.enter_context(somebody_reads(self.damaged()[-1]))

        monkeypatch.setattr(files.Claim, "set_aside", set_aside_and_read)
        sick.error = DamagedError("database disk image is malformed")
        one.put(10)
        eventually(lambda: one.clerk.is_failing)
        sick.error = None
        assert one.spool.wait_until_answered(PATIENCE)
        assert one.deliver(5) == [0, 1, 2, 3, 10]
        assert (one.counts().spooled, one.counts().accepted, one.counts().dropped) == (6, 11, {})
    assert one.deliver(6) == [4, 5, 6, 7, 8, 9]
    one.close()
    assert (one.counts().delivered, one.counts().dropped) == (11, {})
    assert kept(tmp_path) == ["audit.0.corrupt"]


def test_what_was_damaged_and_is_never_read_is_left_to_the_next(owner: Open) -> None:
    """Though nothing else is left: its file stays, and is found."""
    one = owner()
    one.write(0, 1)
    one.close()
    damaged = one.file.parent.rename(f"{one.file.parent}.damaged-1")
    with somebody_reads(damaged / "events.db"):
        again = owner()
        again.write(2)
        assert again.deliver(1) == [2]
        again.close()
    assert owner().deliver(2) == [0, 1]


def test_what_was_damaged_is_found_by_a_later_run_though_another_has_used_the_places(owner: Open) -> None:
    """A run that could not read it has numbered its own events as if there were none, and left some, too."""
    one = owner()
    one.write(0, 1, 2)
    one.close()
    damaged = one.file.parent.rename(f"{one.file.parent}.damaged-1")
    with somebody_reads(damaged / "events.db"):
        again = owner()
        again.write(3, 4)
        again.close()
    third = owner()
    assert third.deliver(5) == [3, 4, 0, 1, 2]
    third.close()
    assert owner().counts().held == 0


def test_what_was_taken_and_cannot_be_put_away_is_not_taken_again(
    owner: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be delivered every few seconds; it is left to the next run, and one's own spool works."""
    first, second = owner(), owner()
    second.write(10)
    second.close()
    first.close()
    folder = second.file.parent.rename(f"{second.file.parent}.damaged-1")
    # Somebody has the name that it is to get.
    taken = folder.with_name(f"{second.file.parent.name}.corrupt-1")
    taken.mkdir()
    (taken / "notes").touch()
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    third = owner()
    assert third.deliver(1) == [10]
    looked = counting(monkeypatch, opening.Opening, "look")
    eventually(lambda: len(looked) > 3)
    third.write(11)
    assert third.deliver(1) == [11]
    assert not third.clerk.is_failing
    assert third.counts().accepted == 2
    assert caplog.text.count(f"{folder}' -> '{taken}'") == 1


@pytest.mark.parametrize("asked", ["listdir", "stat"])
def test_what_could_not_be_looked_at_for_a_moment_is_taken_later(
    owner: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    """A disk that is away, say: nothing was taken of it yet, so it is neither kept from others nor taken for gone."""
    first, second = owner(), owner()
    second.write(10, 11)
    first.close()
    second.close()
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    ask, parent, others = getattr(os, asked), second.file.parent.parent, len(files._descriptors)

    def away(path: Any, **options: Any) -> Any:
        # The folder is listed for one's own sake, too, but then there is no lock but one's own.
        if path == second.file or (path == parent and len(files._descriptors) > others + 1):
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return ask(path, **options)

    tried = counting(monkeypatch, attempts.Attempts, "failed")
    with monkeypatch.context() as patched:
        patched.setattr(os, asked, away)
        third = owner()
        third.write(1)
        assert third.deliver(1) == [1]
        eventually(lambda: len(tried) > 2)
        assert "cannot be read now" in caplog.text
    assert third.deliver(2) == [10, 11]
    third.close()
    assert not second.file.exists()


def test_a_death_in_the_middle_of_a_salvage_repeats_it(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the rows are in the new file already: they are delivered once."""
    one = owner()
    one.write(*range(10))
    one.close()
    half = tmp_path / "half"
    shutil.copytree(one.file.parent, half)
    database = sqlite3.connect(half / "events.db")
    database.execute("DELETE FROM events WHERE id > 5")
    database.commit()
    database.close()
    one.file.parent.rename(f"{one.file.parent}.damaged-1")
    half.rename(one.file.parent)
    again = owner()
    assert again.deliver(10) == list(range(10))
    assert again.counts().accepted == 10
    assert kept(tmp_path) == ["audit.0.corrupt"]


def test_a_clock_that_is_set_back_makes_no_age_negative(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one that is set forward break anything but the age."""
    one = owner()
    one.write(0)
    real = time.time
    for jump in (-10_000_000.0, 10_000_000.0):
        monkeypatch.setattr("spark_events.dispatch.spool.spool.time.time", lambda jump=jump: real() + jump)
        assert one.counts().oldest_age >= 0
        one.write(1)
    monkeypatch.undo()
    assert one.deliver(3) == [0, 1, 1]
