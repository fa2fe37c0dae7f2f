"""What a spool that is in use takes over from those whose owners have died: slice by slice, and each event once."""

from __future__ import annotations

import itertools
import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import PATIENCE, eventually

from spark_events.dispatch.spool import clerk, files, opening, salvage
from spark_events.dispatch.spool.database import Appended, Database, Extent, NewRow
from spark_events.dispatch.spool.orphans import Orphans

from .conftest import Open, Owner, counting

#: One's own events have such numbers.
OWN = 100_000
SLICE = 500


class AttentiveDatabase(Database):
    """A real one that tells when a slice from elsewhere is about to be written."""

    on_slice: Callable[[], None] = staticmethod(lambda: None)

    def append(self, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
        if any(b'"filler"' in row.event for row in rows):
            type(self).on_slice()
        return super().append(rows, done, protected)


@pytest.fixture
def attentive(monkeypatch: pytest.MonkeyPatch) -> type[AttentiveDatabase]:
    """The spools of this test have such a one."""

    class Attentive(AttentiveDatabase):
        pass

    monkeypatch.setattr(opening, "Database", Attentive)
    return Attentive


def leave(one: Owner, slices: int) -> None:
    """So many are on disk, from 0 on, and their owner is gone."""
    for start in range(0, slices * SLICE, SLICE):
        one.write(*range(start, start + SLICE), filler="x")
    one.close()


def look(one: Owner) -> None:
    """Now, not in some seconds; it is woken by an event of its own."""
    one.clerk._look_again_at = 0.0
    one.put(OWN)


def of(told: Sequence[int]) -> tuple[list[int], list[int]]:
    """Those of others, and one's own."""
    return [n for n in told if n < OWN], [n for n in told if n >= OWN]


def test_own_events_are_written_between_two_slices_and_none_is_shed(
    owner: Open, attentive: type[AttentiveDatabase]
) -> None:
    """However much others have left, and however much comes meanwhile. Each keeps its order."""
    first, second = owner(), owner()
    leave(second, 10)
    own = itertools.count(OWN + 1, SLICE)

    def on_slice() -> None:
        start = next(own)
        first.put(*range(start, start + SLICE))

    attentive.on_slice = staticmethod(on_slice)
    look(first)
    told = of(first.deliver(20 * SLICE + 1))
    assert told == (list(range(10 * SLICE)), list(range(OWN, OWN + 10 * SLICE + 1)))
    assert (first.counts().accepted, first.counts().dropped) == (20 * SLICE + 1, {})
    first.close()
    assert not second.file.exists()


def test_own_events_come_first_where_many_wait(owner: Open, attentive: type[AttentiveDatabase]) -> None:
    """What others have left is safe where it is."""
    first, second = owner(), owner()
    leave(second, 3)
    held: list[int] = []
    attentive.on_slice = staticmethod(lambda: held.append(first.counts().held))
    first.clerk._look_again_at = 0.0
    first.put(*range(OWN, OWN + 1_000))
    assert of(first.deliver(3 * SLICE + 1_000)) == (list(range(3 * SLICE)), list(range(OWN, OWN + 1_000)))
    assert len(held) == 3
    assert max(held) <= 512


def test_what_finds_no_room_any_more_waits_for_it(
    owner: Open, attentive: type[AttentiveDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One's own have taken it meanwhile; none of them has to go for what is safe where it is."""
    monkeypatch.setattr(salvage, "_SLICE", 50)
    first, second = owner(max_size=1), owner()
    second.write(*range(300), filler="x")
    second.close()
    slices = itertools.count(1)

    def on_slice() -> None:
        if next(slices) == 2:
            first.put(*range(OWN + 1, OWN + 111), text="x" * 1_000)

    attentive.on_slice = staticmethod(on_slice)
    looked = counting(monkeypatch, clerk.Clerk, "_inherit")
    look(first)
    eventually(lambda: first.counts().spooled == 211)
    waits = len(looked)
    look(first)
    eventually(lambda: len(looked) > waits)
    assert first.spool.wait_until_answered(PATIENCE)
    assert (first.counts().spooled, first.counts().dropped) == (212, {})
    first.deliver(212)
    eventually(lambda: not first.spool.has_to_write())
    look(first)
    assert of(first.deliver(201))[0] == list(range(100, 300))
    assert first.counts().dropped == {}


def test_the_end_is_not_spent_on_what_others_have_left(owner: Open, attentive: type[AttentiveDatabase]) -> None:
    """What has not come is left to the next; it is neither delivered twice nor out of order."""
    first, second, slices = owner(), owner(), itertools.count(1)
    leave(second, 4)
    ends = threading.Thread(target=first.close)

    def on_slice() -> None:
        if next(slices) == 2:
            ends.start()
            eventually(lambda: first.spool._closing)

    attentive.on_slice = staticmethod(on_slice)
    look(first)
    eventually(lambda: first.spool._closed)
    ends.join()
    assert next(slices) == 3
    assert (first.counts().spooled, first.counts().dropped) == (2 * SLICE + 1, {})
    third = owner()
    assert of(third.deliver(4 * SLICE + 1)) == (list(range(4 * SLICE)), [OWN])
    third.close()
    assert third.counts().accepted == 4 * SLICE + 1
    assert not second.file.exists()


def full_after_one_slice(attentive: type[AttentiveDatabase]) -> Callable[[], None]:
    """The disk is, until what is returned is called."""
    slices = itertools.count(1)

    def on_slice() -> None:
        if next(slices) > 1:
            raise sqlite3.OperationalError("database or disk is full")

    def empty() -> None:
        attentive.on_slice = staticmethod(lambda: None)

    attentive.on_slice = staticmethod(on_slice)
    return empty


def deliver_one_slice_and_find_the_disk_full(one: Owner, attentive: type[AttentiveDatabase]) -> None:
    """And then it has room again."""
    empty = full_after_one_slice(attentive)
    look(one)
    assert of(one.deliver(SLICE + 1)) == (list(range(SLICE)), [OWN])
    eventually(lambda: not one.spool.has_to_write())
    empty()


def test_what_was_taken_over_before_the_disk_was_full_is_not_taken_over_again(
    owner: Open, attentive: type[AttentiveDatabase]
) -> None:
    """Though it was delivered and removed meanwhile: it goes on where it was."""
    first, second = owner(), owner()
    leave(second, 3)
    deliver_one_slice_and_find_the_disk_full(first, attentive)
    look(first)
    assert of(first.deliver(2 * SLICE + 1)) == (list(range(SLICE, 3 * SLICE)), [OWN])
    assert first.counts().accepted == 3 * SLICE + 2
    first.close()
    assert not second.file.exists()


@pytest.mark.parametrize("is_made", [True, False], ids=["made", "not made"])
def test_own_events_get_places_of_their_own_whatever_fails_in_a_takeover(
    owner: Open, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    """Also where nobody can count what is there, and where a commit is made and said to have failed."""
    slices, failed, works = itertools.count(1), threading.Event(), threading.Event()

    class Failing(Database):
        def append(self, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
            fails = any(b'"filler"' in row.event for row in rows) and next(slices) == 2
            if not fails or is_made:
                appended = super().append(rows, done, protected)
            if fails:
                failed.set()
                raise sqlite3.OperationalError("disk I/O error")
            return appended

        def extent(self, *after: int) -> Extent:
            if failed.is_set() and not works.is_set():
                raise sqlite3.OperationalError("disk I/O error")
            return super().extent(*after)

    monkeypatch.setattr(opening, "Database", Failing)
    first, second = owner(), owner()
    leave(second, 3)
    look(first)
    assert failed.wait(PATIENCE)
    first.write(*range(OWN + 1, OWN + 100))
    works.set()
    look(first)
    told, own = of(first.deliver(3 * SLICE + 101))
    assert (told, own) == (list(range(3 * SLICE)), [*range(OWN, OWN + 100), OWN])
    assert (first.counts().accepted, first.counts().spooled) == (3 * SLICE + 101, 0)
    first.close()
    assert not second.file.exists()


def test_what_was_taken_over_is_delivered_by_nobody_else_should_this_process_be_killed(
    owner: Open, attentive: type[AttentiveDatabase], tmp_path: Path
) -> None:
    """In the middle of a takeover, too: it is removed where it was before it is delivered."""
    first, second = owner(), owner()
    leave(second, 3)
    full_after_one_slice(attentive)
    look(first)
    assert of(first.deliver(SLICE + 1)) == (list(range(SLICE)), [OWN])
    look(first)
    assert first.deliver(1) == [OWN]
    eventually(lambda: not first.spool.has_to_write())
    # As a kill would leave it.
    parent = first.file.parent.parent
    shutil.copytree(parent, tmp_path / "killed" / parent.name)
    attentive.on_slice = staticmethod(lambda: None)
    third = owner(tmp_path / "killed")
    assert third.deliver(2 * SLICE) == list(range(SLICE, 3 * SLICE))
    assert third.counts().accepted == 2 * SLICE


@pytest.mark.parametrize("ends", ["killed", "closed"])
def test_what_was_taken_over_and_not_delivered_keeps_its_order(
    owner: Open, attentive: type[AttentiveDatabase], tmp_path: Path, ends: str
) -> None:
    """Whoever comes next may find what had not come before he finds what had."""
    first, second = owner(), owner()
    leave(first, 3)
    full_after_one_slice(attentive)
    look(second)
    assert second.deliver(10) == list(range(10))
    eventually(lambda: second.counts().spooled == SLICE - 10 + 1)
    parent = second.file.parent.parent
    if ends == "closed":
        second.close()
    shutil.copytree(parent, tmp_path / ends / parent.name)
    attentive.on_slice = staticmethod(lambda: None)
    third = owner(tmp_path / ends)
    assert third.file.parent.name == first.file.parent.name
    told, own = of(third.deliver(third.counts().accepted))
    assert told == list(range(10 if ends == "closed" else 0, 3 * SLICE))
    assert own == [OWN]


def test_a_damaged_file_is_taken_over_once_and_not_written(
    owner: Open, attentive: type[AttentiveDatabase], tmp_path: Path
) -> None:
    """It is kept for a person as it was found."""
    first, second = owner(), owner()
    leave(second, 3)
    content = bytearray(second.file.read_bytes())
    # The last page that has events.
    spoilt = content.rindex(b'"filler"') // 4096 * 4096
    content[spoilt : spoilt + 4096] = b"\xff" * 4096
    second.file.write_bytes(content)
    deliver_one_slice_and_find_the_disk_full(first, attentive)
    look(first)
    lost = eventually(lambda: first.counts().dropped)["spool-corrupt"]
    told, _ = of(first.deliver(2 * SLICE + 1 - lost))
    assert told == sorted(set(told))
    eventually(lambda: not second.file.exists())
    assert first.counts().accepted == 3 * SLICE + 2
    # Its folder gets its last name in more than one step.
    (kept,) = eventually(lambda: list(tmp_path.glob("*/*.corrupt-*/events.db")))
    assert kept.read_bytes() == content


def test_a_spool_that_is_opened_at_the_end_alone_takes_nothing_over(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is time for one's own events."""
    first, second = owner(), owner()
    first.close()
    leave(second, 1)
    claim, clerks = files.claim, list[Any]()

    def away(*which: Any) -> Any:
        if not any(one._ends for one in clerks):
            raise OSError("the disk is away")
        return claim(*which)

    monkeypatch.setattr(opening, "claim", away)
    third = owner()
    clerks.append(third.clerk)
    third.put(OWN)
    third.close()
    assert (third.counts().accepted, third.counts().spooled) == (1, 1)
    assert of(owner().deliver(SLICE + 1)) == (list(range(SLICE)), [OWN])


def test_a_file_that_is_begun_again_in_a_life_does_not_wait_for_what_others_have_left(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That comes slice by slice afterwards, or with the next start where there is too much of it."""
    monkeypatch.setattr(Orphans, "find", lambda *_: None)
    first, second = owner(), owner()
    leave(second, 1)
    shutil.rmtree(first.file.parent)
    first.write(OWN)
    assert first.deliver(1) == [OWN]
    assert first.counts().accepted == 1
    first.close()
    assert owner().deliver(SLICE) == list(range(SLICE))
