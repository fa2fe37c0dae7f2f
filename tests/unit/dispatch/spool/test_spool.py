"""Tests of the spool, as used by a reporter's thread and the driver, with a working or a faulty disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from pathlib import Path

import pytest
from fakes import PATIENCE, event, eventually, numbers
from spools import CORRUPT, FAILS, FULL, Gate, rows_of, spoil

from spark_events import Severity
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.spool.ownership import SpoolFolder
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.spool.writer import SpoolConfig, SpoolWriter

from .conftest import Open


def corrupt_folders(folder: Path) -> list[str]:
    return sorted(found.name.split("-")[0] for found in folder.glob("shop-*/*.corrupt-*"))


# --- guarantees -----------------------------------------------------------------------------------


def test_the_next_run_delivers_remaining_events_first(owner: Open) -> None:
    first = owner()
    first.write(*range(10))
    assert first.deliver(3) == [0, 1, 2]
    first.close()
    assert (first.counts().spooled, first.counts().held, first.counts().dropped) == (7, 0, {})
    second = owner()
    second.put(10, 11)
    assert second.deliver(9) == list(range(3, 12))
    assert (second.counts().accepted, second.counts().delivered) == (9, 9)


def test_files_of_dead_owners_are_delivered_first_oldest_first(owner: Open, tmp_path: Path) -> None:
    """Files of dead owners are delivered first, in order of age. Their empty files and folders are deleted."""
    owners = [owner() for _ in range(4)]
    for number, one in enumerate(owners[:3]):
        one.write(*range(number * 1_000, number * 1_000 + 700))
    for one in owners:
        one.close()
    last = owner()
    last.put(9_999)
    everything = [n for first in (0, 1_000, 2_000) for n in range(first, first + 700)] + [9_999]
    assert last.deliver(10) == everything[:10]
    assert [rows_of(one) for one in sorted(tmp_path.glob("*/audit.1/events.db"))] == [700]
    assert last.deliver(len(everything) - 10) == everything[10:]
    last.close()
    assert list(tmp_path.iterdir()) == []


def test_files_of_an_owner_that_dies_later_are_found(owner: Open) -> None:
    first, second = owner(), owner()
    second.write(1, 2)
    first.write(3)
    first.close()
    assert sorted(second.deliver(3)) == [1, 2, 3]


def test_no_file_remains_when_all_events_are_delivered(owner: Open, tmp_path: Path) -> None:
    one = owner()
    one.write(*range(10))
    one.deliver(10)
    one.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_deleted_is_logged(
    owner: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a file with delivered events cannot be deleted, one message says what the next run may do."""
    one = owner()
    one.write(1)
    one.deliver(1)

    def refuse(_: SpoolFolder) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(SpoolFolder, "delete", refuse)
    one.close()
    (message,) = caplog.messages
    assert "cannot close" in message
    assert "may deliver some of its events again: [Errno 13] Permission denied" in message


def test_a_dead_owner_s_file_that_cannot_be_deleted_does_not_stop_the_spool(owner: Open) -> None:
    first, second = owner(), owner()
    first.write(1)
    (first.file.parent / "foreign").touch()
    first.close()
    assert second.deliver(1) == [1]
    second.write(2)
    second.close()
    assert (second.counts().spooled, second.counts().dropped) == (1, {})


def test_only_the_owner_can_access_files_and_folders(owner: Open, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        one = owner(tmp_path / "spool")
        one.write(1)
    finally:
        os.umask(before)
    for found in (tmp_path / "spool", *(tmp_path / "spool").rglob("*")):
        assert found.stat().st_mode & 0o777 == (0o700 if found.is_dir() else 0o600), found


def test_more_events_than_fit_in_memory_are_delivered_in_order(owner: Open) -> None:
    one = owner(max_size=1 << 20)
    one.write(*range(1_500))
    assert len(one.spool.memory.stored.ready) <= 64 + 512
    assert one.counts().spooled == 1_500
    assert one.deliver(1_500) == list(range(1_500))


def test_fewer_large_events_are_held_in_memory(owner: Open) -> None:
    first = owner(max_size=16 << 20)
    for n in range(300):
        first.write(n, weight=16, text="x" * 20_000)
    assert len(first.spool.memory.stored.ready) <= 128 + 1
    assert first.deliver(300) == list(range(300))


def test_an_event_is_safe_once_it_is_on_disk(owner: Open) -> None:
    one = owner()
    one.write(1)
    assert one.spool.oldest_seq() is None
    gate = Gate(one.disk)
    one.put(2)
    assert one.spool.oldest_seq() == 2
    assert not one.spool.wait_until_answered(0)
    gate.open()
    assert one.spool.wait_until_answered(PATIENCE)
    assert one.counts().held == 0


def test_requeued_events_are_delivered_first(owner: Open) -> None:
    one = owner()
    one.write(*range(6))
    assert numbers(one.spool.take(2)) == [0, 1]
    one.spool.requeue()
    assert one.deliver(6) == list(range(6))


def test_a_resent_event_is_stored_once(owner: Open) -> None:
    one = owner()
    one.write(0, 1, 2)
    again = one.spool.take(10)
    one.spool.requeue()
    one.spool.put([Entry(n + 10, made) for n, made in enumerate(again)])
    assert one.spool.wait_until_answered(PATIENCE)
    assert one.counts().accepted == 3
    assert one.deliver(3) == [0, 1, 2]


def test_a_full_spool_sheds_the_lowest_priority_and_logs_it_once(owner: Open, caplog: pytest.LogCaptureFixture) -> None:
    one = owner(max_size=1)
    for first in range(0, 800, 20):
        one.write(first, severity=Severity.ERROR, filler="x" * 1_000)
        one.write(*range(first + 1, first + 20), filler="x" * 1_000)
    counts = one.counts()
    assert counts.dropped == {"spool-full": 800 - counts.spooled}
    delivered = one.deliver(counts.spooled)
    assert {n for n in range(0, 800, 20) if n > 64} <= set(delivered)
    assert delivered == sorted(delivered)
    assert caplog.text.count("spool.max-size") == 1


def test_an_undecodable_row_is_counted_and_skipped(owner: Open, tmp_path: Path) -> None:
    first = owner()
    first.write(*range(3))
    file = first.file
    first.close()
    db = sqlite3.connect(file)
    db.execute("UPDATE events SET event = x'00ff' WHERE id = 2")
    db.commit()
    db.close()
    second = owner()
    assert second.deliver(2) == [0, 2]
    assert second.counts().dropped == {"spool-corrupt": 1}
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_the_default_directory_follows_the_xdg_specification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert SpoolConfig().folder == Path("/state/spark-events/spool")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert SpoolConfig().folder == Path.home() / ".local/state/spark-events/spool"


def test_ages_are_not_negative_after_the_clock_is_set_back(owner: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    one = owner()
    one.write(1)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 1e6)
    assert one.counts().oldest_age >= 0


# --- a disk that fails, is full or hangs ----------------------------------------------------------


@pytest.mark.parametrize("error", [FULL, FAILS, OSError("disk quota exceeded"), MemoryError()], ids=str)
def test_events_bypass_a_failing_disk_until_it_works(
    owner: Open, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    one = owner()
    one.disk.writing = error
    one.put(*range(20))
    assert one.deliver(8) == list(range(8))
    assert (one.counts().held, one.counts().spooled) == (12, 0)
    assert caplog.text.count("spool unavailable") == 1
    one.disk.writing = None
    assert one.spool.wait_until_answered(PATIENCE)
    assert (one.counts().held, one.counts().spooled) == (0, 12)
    assert one.deliver(12) == list(range(8, 20))
    eventually(lambda: caplog.text.count("spool works again") == 1)


def test_events_in_flight_are_written_once_the_disk_works(owner: Open) -> None:
    """Once the disk works, events in flight are written, because a destination may keep them in flight for hours."""
    one = owner()
    one.disk.writing = FAILS
    one.put(*range(5))
    assert numbers(eventually(lambda: one.spool.take(3))) == [0, 1, 2]
    one.disk.writing = None
    assert one.spool.wait_until_answered(PATIENCE)
    assert (one.counts().held, one.counts().spooled) == (0, 5)
    one.spool.requeue()
    assert one.deliver(5) == list(range(5))


def test_a_full_disk_can_still_be_read(owner: Open) -> None:
    one = owner(max_size=1 << 20)
    one.write(*range(1_000))
    one.disk.writing = FULL
    one.put(*range(1_000, 1_010))
    assert one.deliver(1_010) == list(range(1_010))


def test_a_commit_reported_as_failed_makes_no_duplicate(owner: Open) -> None:
    one = owner()
    one.disk.lies = True
    one.write(*range(10))
    assert one.counts().accepted == 10
    assert one.deliver(10) == list(range(10))
    assert one.counts().spooled == 0


def test_events_bypass_a_hanging_disk(owner: Open, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    one = owner(hang_seconds=0.05)
    gate = one.hang()
    one.put(*range(20))
    assert one.deliver(11) == [-1, *range(10)]
    assert caplog.text.count("does not answer") == 1
    gate.open()
    assert one.spool.wait_until_answered(PATIENCE)
    assert one.deliver(10) == list(range(10, 20))
    assert one.counts().accepted == 21
    one.close()
    assert list(tmp_path.iterdir()) == []


def test_newer_events_do_not_overtake_events_on_disk(owner: Open) -> None:
    one = owner(max_size=1 << 20, hang_seconds=0.05)
    one.write(*range(1_000))
    gate = one.hang()
    in_memory = one.deliver(64)
    while events := one.spool.take(100):
        in_memory += numbers(events)
        one.spool.ack()
    assert in_memory == list(range(len(in_memory)))
    assert len(in_memory) < 1_000
    gate.open()
    assert one.deliver(1_001 - len(in_memory)) == [*range(len(in_memory), 1_000), -1]


def test_a_suspended_process_is_not_reported_as_a_hanging_disk(owner: Open) -> None:
    one = owner(hang_seconds=0.0)
    gate = Gate(one.disk)
    one.put(1)
    assert gate.entered.wait(PATIENCE)
    one.spool.check()
    assert not one.spool.memory.disk.hangs
    gate.open()


def test_the_dispatcher_waits_once_and_briefly_for_a_hanging_disk(owner: Open) -> None:
    one = owner()
    gate = Gate(one.disk)
    one.put(0)
    assert gate.entered.wait(PATIENCE)
    one.put(*range(1, 4_000))
    waited = [one.spool.wait_for_room(100, 0.01) for _ in range(50)]
    assert not any(waited)
    assert one.counts().dropped == {"mailbox-full": 4_000 - 3_072}
    gate.open()
    assert one.spool.wait_until_answered(PATIENCE)
    eventually(lambda: one.spool.wait_for_room(100, 0.01), meanwhile=lambda: one.put(1))


def test_a_hanging_or_failing_disk_does_not_delay_the_end(owner: Open) -> None:
    one = owner(hang_seconds=0.05)
    gate = one.hang()
    began = time.monotonic()
    one.spool.close(began + PATIENCE)
    assert time.monotonic() - began < PATIENCE / 2
    assert one.counts().dropped == {"shutdown": 1}
    gate.open()


def test_the_spool_opens_once_its_directory_can_be_created(owner: Open, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one = owner(tmp_path / "file")
    one.put(1, 2)
    assert one.deliver(1) == [1]
    (tmp_path / "file").unlink()
    assert one.spool.wait_until_answered(PATIENCE)
    assert (one.counts().spooled, one.deliver(1)) == (1, [2])


def test_without_a_home_events_are_delivered_from_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", home)
    spool = Spool(10, lambda spool: SpoolWriter("shop", "audit", SpoolConfig(), spool), lambda: None, lambda: None)
    spool.start()
    spool.put([Entry(1, event(1))])
    assert numbers(eventually(lambda: spool.take(1))) == [1]
    assert "Could not determine home directory" in caplog.text
    spool.ack()
    spool.close(time.monotonic() + PATIENCE)


# --- corrupt files --------------------------------------------------------------------------------


def test_a_corrupt_file_is_renamed_counted_and_skipped(
    owner: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A corrupt file, even of a dead owner, is renamed, counted and skipped.

    Unknown contents count as one lost event.
    """
    owners = [owner() for _ in range(3)]
    files = [one.file for one in owners]
    for number, one in enumerate(owners):
        one.write(number)
        one.close()
    spoil(files[0])
    spoil(files[2])
    one = owner()
    one.put(3)
    assert one.deliver(2) == [1, 3]
    eventually(lambda: one.counts().dropped == {"spool-corrupt": 2})
    assert corrupt_folders(tmp_path) == ["audit.0.corrupt", "audit.2.corrupt"]
    assert caplog.text.count("is corrupt") == 2
    assert str(files[0]) in caplog.text


def _removed(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.parametrize("how", [CORRUPT, FAILS, None], ids=["corrupt", "not readable", "deleted"])
def test_counts_balance_when_a_file_becomes_corrupt_in_use(owner: Open, tmp_path: Path, how: Exception | None) -> None:
    """If a file becomes corrupt while it is used, all its events that are not in flight count as lost."""
    one = owner(max_size=1 << 20)
    one.write(*range(1_000))
    delivered = one.deliver(5)
    assert numbers(one.spool.take(5)) == list(range(5, 10))
    one.disk.reading = how
    if how is None:
        _removed(one.file)
        one.put(-1)

    taken: list[int] = []

    def deliver_more() -> None:
        one.spool.ack()
        taken.extend(numbers(one.spool.take(5)))

    eventually(lambda: one.counts().dropped, meanwhile=deliver_more)
    one.disk.reading = None
    one.spool.ack()
    one.write(2_000, 2_001)
    # The reporter may already have received an event that was added after the deletion.
    last = one.deliver(2 if how or -1 in taken else 3)
    assert last[-2:] == [2_000, 2_001]
    counts = one.counts()
    assert (counts.spooled, counts.held) == (0, 0)
    assert counts.dropped["spool-corrupt"] == counts.accepted - counts.delivered > 0
    assert corrupt_folders(tmp_path) == (["audit.0.corrupt"] if how else [])
    assert delivered == list(range(5))


def test_a_folder_that_is_deleted_while_the_disk_fails_is_replaced(owner: Open) -> None:
    one = owner()
    one.write(1, 2)
    one.disk.writing = one.disk.opening = FAILS
    one.put(3)
    eventually(lambda: one.spool.memory.stored.files[-1].database is None)
    _removed(one.file)
    one.disk.writing = one.disk.opening = None
    one.write(4)
    assert one.deliver(2) == [3, 4]
    assert one.counts().dropped == {"spool-corrupt": 2}


def test_a_dead_owner_s_file_is_delivered_after_a_failure_of_its_disk(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a file can be neither read nor renamed, its delivery resumes when the disk works again."""
    first, second = owner(), owner()
    first.write(*range(3_000))
    first.close()
    assert second.deliver(1) == [0]
    attempts = []

    def refuse(folder: SpoolFolder) -> Path:
        attempts.append(folder)
        second.disk.reading = None
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SpoolFolder, "quarantine", refuse)
    second.disk.reading = FAILS
    assert second.deliver(2_999) == list(range(1, 3_000))
    assert len(attempts) == 1
    second.put(3_000)
    assert second.deliver(1) == [3_000]


def test_a_file_opened_by_another_process_is_delivered_later(owner: Open, caplog: pytest.LogCaptureFixture) -> None:
    first, second = owner(), owner()
    first.write(1)
    file = first.file
    first.close()
    second.close()
    reader = sqlite3.connect(file)
    cursor = reader.execute("SELECT id FROM events")
    cursor.fetchone()
    # The spool continues a newer file without a lock, not the locked file.
    (file.parents[1] / "audit.7.lock").touch(mode=0o600)
    one = owner()
    one.put(2)
    assert one.deliver(1) == [2]
    assert "cannot open a file of an earlier run" in caplog.text
    reader.close()
    assert one.deliver(1) == [1]
