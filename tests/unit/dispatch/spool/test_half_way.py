"""What is half done when a disk fails: nothing is forgotten, and nothing that was delivered comes again."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import eventually

from spark_events.dispatch.spool import clerk, connection, files, inflow, opening
from spark_events.dispatch.spool.database import Appended, Database, NewRow
from spark_events.dispatch.spool.files import Claim

from .conftest import Open, Owner, counting, somebody_reads, tried_at_once, write_slices

SLICE = 500


def beside_one_that_cannot_be_read(owner: Open, damaged: Path, monkeypatch: pytest.MonkeyPatch) -> Owner:
    """A spool whose events have the places of those in a file that is aside, and waits until nobody looks for it."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 300.0)
    tried_at_once(monkeypatch)
    with somebody_reads(damaged / "events.db"):
        one = owner()
        one.write(*range(5_000, 5_010))
        assert one.deliver(10) == list(range(5_000, 5_010))
        eventually(lambda: not one.spool.has_to_write())
    return one


def test_a_file_that_is_begun_again_in_vain_forgets_nothing_of_what_is_still_aside(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of it was in the new file when the disk was full; what passed it by then had the same places."""
    rows_left = 1_000
    appends = 0

    class Fills(Database):
        def append(self, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
            nonlocal appends
            appends += is_full
            if is_full and appends > 1:
                raise sqlite3.OperationalError("database or disk is full")
            return super().append(rows, done, protected)

    is_full = False
    monkeypatch.setattr(opening, "Database", Fills)
    left = owner()
    left.write(*range(500))
    left.write(*range(500, rows_left))
    left.close()
    damaged = left.file.parent.rename(f"{left.file.parent}.damaged-{time.time_ns()}")
    one = beside_one_that_cannot_be_read(owner, damaged, monkeypatch)
    is_full = True
    shutil.rmtree(one.file.parent)
    one.put(*range(5_010, 5_020))
    assert one.deliver(10) == list(range(5_010, 5_020))
    is_full = False
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    one.clerk._look_again_at = 0.0
    one.put(5_020)
    told = one.deliver(rows_left + 1)
    assert sorted(told) == [*range(rows_left), 5_020]
    assert (one.counts().accepted, one.counts().dropped) == (rows_left + 21, {})
    one.close()


def test_a_folder_that_cannot_be_listed_when_a_file_is_begun_again_forgets_nothing_of_what_is_still_aside(
    owner: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its places there are others' here: who forgot it would look for it behind what was delivered since."""
    left = owner()
    left.write(*range(20))
    left.close()
    damaged = left.file.parent.rename(f"{left.file.parent}.damaged-{time.time_ns()}")
    one = beside_one_that_cannot_be_read(owner, damaged, monkeypatch)
    list_them = Claim.damaged

    def fails_once(self: Claim) -> list[Path]:
        monkeypatch.setattr(Claim, "damaged", list_them)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Claim, "damaged", fails_once)
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    shutil.rmtree(one.file.parent)
    one.put(5_010)
    assert sorted(one.deliver(21)) == [*range(20), 5_010]
    assert (one.counts().accepted, one.counts().dropped) == (31, {})
    one.close()


def test_what_was_settled_while_a_file_that_came_back_was_opened_is_not_left_in_it(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are nobody's any more: the next run would deliver them again."""
    told: list[int] = []

    class Attentive(Database):
        def forget(self, through: int, but: Iterable[int]) -> None:
            super().forget(through, but)
            if not told:
                # Opening it takes long, and the reporter goes on.
                told.extend(one.deliver(5))

    monkeypatch.setattr(opening, "Database", Attentive)
    one = owner()
    one.write(*range(40))
    folder, away, claim = one.file.parent.parent, tmp_path / "away", files.claim

    def come_back(*_: object) -> None:
        monkeypatch.setattr(opening, "claim", claim)
        away.rename(folder)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(opening, "claim", come_back)
    folder.rename(away)
    one.write(40)
    assert told + one.deliver(36) == list(range(41))
    one.close()
    assert (one.counts().accepted, one.counts().dropped) == (41, {})
    assert list(tmp_path.iterdir()) == []


def test_what_was_set_aside_and_came_behind_others_does_not_come_again(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its places there say nothing of its places here: where it cannot be put away, and the next file is begun."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    left = owner()
    left.write(*range(1_000))
    left.deliver(990)
    left.close()
    damaged = left.file.parent.rename(f"{left.file.parent}.damaged-1")
    # Somebody has the name that it is to get.
    taken = damaged.with_name(damaged.name.replace("damaged", "corrupt"))
    taken.mkdir()
    (taken / "notes").touch()
    with somebody_reads(damaged / "events.db"):
        one = owner()
        one.write(5_000)
        assert one.deliver(1) == [5_000]
    assert one.deliver(10) == list(range(990, 1_000))
    eventually(lambda: one.clerk.is_failing)
    shutil.rmtree(one.file.parent)
    (taken / "notes").unlink()
    opened = counting(monkeypatch, opening.Opening, "open")
    one.put(5_001)
    eventually(lambda: opened)
    one.write(5_002)
    assert one.deliver(2) == [5_001, 5_002]
    one.close()
    assert (one.counts().accepted, one.counts().spooled, one.counts().dropped) == (13, 0, {})


class FullDatabase(Database):
    """On a disk that is full to the last byte, as long as a test wants: even to remove something needs room."""

    is_full = False

    def append(self, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
        if type(self).is_full:
            raise sqlite3.OperationalError("database or disk is full")
        return super().append(rows, done, protected)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> type[FullDatabase]:
    """The spools of this test have such a one."""

    class Full(FullDatabase):
        pass

    monkeypatch.setattr(opening, "Database", Full)
    return Full


@pytest.mark.parametrize("is_known", [True, False], ids=["all is settled", "something is not"])
def test_what_is_settled_at_the_end_goes_with_its_file_where_there_is_no_room_to_remove_it(
    owner: Open, tmp_path: Path, full: type[FullDatabase], is_known: bool
) -> None:
    """The next run would deliver all of it again; to remove a file needs no room. Not where it has anything else."""
    one = owner()
    one.write(*range(10))
    full.is_full = True
    assert one.deliver(10 if is_known else 9) == list(range(10 if is_known else 9))
    eventually(lambda: one.clerk.is_failing)
    one.close()
    full.is_full = False
    if is_known:
        assert list(tmp_path.iterdir()) == []
    else:
        assert owner().deliver(10) == list(range(10))


def test_the_room_that_is_made_at_the_end_is_used_to_remove_what_was_settled_of_others(
    owner: Open, tmp_path: Path, full: type[FullDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that was full to the last byte until one's own file went."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    first, second = owner(), owner()
    write_slices(second, range(2 * SLICE))
    remove_through = connection.remove_through
    monkeypatch.setattr(inflow, "remove_through", lambda *what: not first.file.exists() and remove_through(*what))

    def filled(self: opening.Opening, *what: Any) -> None:
        inherit(self, *what)
        full.is_full = True

    inherit = opening.Opening.inherit
    monkeypatch.setattr(opening.Opening, "inherit", filled)
    second.close()
    assert first.deliver(SLICE) == list(range(SLICE))
    eventually(lambda: first.clerk.is_failing)
    first.close()
    full.is_full = False
    assert owner().deliver(SLICE) == list(range(SLICE, 2 * SLICE))
