"""What a disk that fails in the middle of a salvage costs: time; and what it never gives, which is counted."""

from __future__ import annotations

import shutil
import sqlite3
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fakes import eventually

from spark_events.dispatch.spool import attempts, clerk
from spark_events.dispatch.spool.connection import UnreadableError, refuse_to_wait
from spark_events.dispatch.spool.database import Database, NewRow
from spark_events.dispatch.spool.salvage import Salvage

from .conftest import Open, Owner, tried_at_once, write_slices

SLICE = 500


class FailingDisk:
    """One that fails whoever reads rows of some file, from a place on; it was read through a moment before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails = True
        self.fails_for = ""
        self.fails_after = SLICE
        self.failed = 0
        self.error: sqlite3.Error = sqlite3.OperationalError("disk I/O error")
        disk = self

        class Failing(sqlite3.Connection):
            def __init__(self, path: Path, *how: Any, **about: Any) -> None:
                super().__init__(path, *how, **about)
                self.path = str(path)

            def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
                if statement.startswith("SELECT id, event_id"):
                    disk.read(self.path, *values)
                return super().execute(statement, values)

        monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Failing))

    def read(self, path: str, place: int = 0) -> None:
        if self.fails and self.fails_for in path and place >= self.fails_after:
            self.failed += 1
            raise self.error


def two_spools(owner: Open, monkeypatch: pytest.MonkeyPatch) -> tuple[Owner, Owner, FailingDisk]:
    """The second has three slices, of which the disk gives the first alone."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    first, second = owner(), owner()
    write_slices(second, range(3 * SLICE))
    disk = FailingDisk(monkeypatch)
    disk.fails_for = second.file.parent.name
    return first, second, disk


@pytest.mark.parametrize(
    "error",
    [
        sqlite3.OperationalError("disk I/O error"),
        # Of a page for which the disk gives EIO.
        sqlite3.DatabaseError("database disk image is malformed"),
    ],
    ids=["some", "EIO"],
)
@pytest.mark.parametrize("is_there", [False, True], ids=["at the start", "in a life"])
def test_an_orphan_that_cannot_be_read_to_its_end_goes_on_where_it_was(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, error: sqlite3.Error
) -> None:
    """It is not damaged; what has come of it is delivered once, and nobody else takes it meanwhile."""
    first, second, disk = two_spools(owner, monkeypatch)
    disk.error = error
    if is_there:
        second.close()
    else:
        first.close()
        second.close()
        first = owner()
    assert first.deliver(SLICE) == list(range(SLICE))
    eventually(lambda: disk.failed > 2)
    other = owner()
    other.write(10_000)
    assert other.deliver(1) == [10_000]
    disk.fails_after = 2 * SLICE
    assert first.deliver(SLICE) == list(range(SLICE, 2 * SLICE))
    disk.fails = False
    assert first.deliver(SLICE) == list(range(2 * SLICE, 3 * SLICE))
    assert (first.counts().accepted, first.counts().dropped) == (3 * SLICE, {})
    eventually(lambda: not second.file.exists())
    assert not list(tmp_path.rglob("*.corrupt-*"))


def test_what_is_settled_of_an_orphan_goes_there_when_it_can_be_read_again(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should this process be killed before all has come, nobody delivers that again."""
    first, second, disk = two_spools(owner, monkeypatch)
    second.close()
    assert first.deliver(SLICE) == list(range(SLICE))
    disk.fails_after = 2 * SLICE
    assert first.deliver(1) == [SLICE]
    failed = disk.failed
    eventually(lambda: disk.failed > failed)
    # As a kill would leave it.
    parent = second.file.parent.parent
    shutil.copytree(parent, tmp_path / "killed" / parent.name)
    shutil.rmtree(tmp_path / "killed" / parent.name / first.file.parent.name)
    disk.fails = False
    assert owner(tmp_path / "killed").deliver(2 * SLICE) == list(range(SLICE, 3 * SLICE))


@pytest.mark.parametrize("is_old", [False, True], ids=["young", "old"])
def test_what_was_set_aside_and_cannot_be_read_to_its_end_goes_on_where_it_was(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """As long as it gets on, however long ago it was set aside."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    left = owner()
    write_slices(left, range(4 * SLICE))
    left.close()
    since = time.time_ns() - int(3600e9 if is_old else 0)
    damaged = left.file.parent.rename(f"{left.file.parent}.damaged-{since}")
    disk = FailingDisk(monkeypatch)
    disk.fails_for = damaged.name
    read = disk.read

    def read_one_slice(path: str, place: int = 0) -> None:
        """At each attempt one more."""
        try:
            read(path, place)
        except sqlite3.Error:
            disk.fails_after += SLICE
            raise

    monkeypatch.setattr(disk, "read", read_one_slice)
    one = owner()
    one.write(10_000)
    told = one.deliver(4 * SLICE + 1)
    assert [n for n in told if n < 10_000] == list(range(4 * SLICE))
    assert (one.counts().accepted, one.counts().dropped) == (4 * SLICE + 1, {})
    assert disk.failed == 4
    eventually(lambda: list(tmp_path.glob("*/*.corrupt-*")))
    one.close()
    assert one.counts().spooled == 0


def test_a_disk_that_fails_for_ever_costs_what_it_does_not_give(
    owner: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that is told: then the rest is counted as lost, and the file is kept."""
    monkeypatch.setattr(clerk, "_RIVALS_SECONDS", 0.01)
    tried_at_once(monkeypatch)
    monkeypatch.setattr(attempts, "HOPEFUL_SECONDS", 0.0)
    monkeypatch.setattr(attempts, "_HOPEFUL_PAUSE", 0.0)
    first, second = owner(), owner()
    write_slices(second, range(2 * SLICE))
    disk = FailingDisk(monkeypatch)
    disk.fails_for = second.file.parent.name
    disk.fails_after = SLICE
    second.close()
    assert first.deliver(SLICE) == list(range(SLICE))
    eventually(lambda: first.counts().dropped)
    eventually(lambda: list(tmp_path.glob("*/*.corrupt-*")))
    counts = first.counts()
    assert (counts.accepted, counts.dropped) == (2 * SLICE, {"spool-corrupt": SLICE})


def _failed(message: str, code: int | None, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind(message)
    if code is not None:
        error.sqlite_errorcode = code  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(
    ("error", "may_pass"),
    [
        (_failed("disk I/O error", 8458), True),
        (_failed("disk I/O error", None), True),
        (_failed("unable to open database file", 14), True),
        (_failed("unable to open database file", None), True),
        (MemoryError(), True),
        (_failed("no such table: events", 1), False),
        (_failed("no such table: events", None), False),
        (_failed("database disk image is malformed", 11, sqlite3.DatabaseError), False),
        (_failed("file is not a database", 26, sqlite3.DatabaseError), False),
    ],
    ids=str,
)
def test_a_disk_that_fails_is_told_from_damage(error: sqlite3.Error, may_pass: bool) -> None:
    """By SQLite's code, where Python tells it."""
    refuse_to_wait(error, is_patient=False)
    if may_pass:
        with pytest.raises(UnreadableError):
            refuse_to_wait(error, is_patient=True)
    else:
        refuse_to_wait(error, is_patient=True)


@pytest.mark.parametrize(
    ("checked", "may_pass"),
    [
        ("ok", True),
        ("unable to get the page. error code=8458", True),
        ("On tree page 2 cell 3: failed to get page 22", True),
        ("unable to get the page. error code=11", False),
        # May be damage as well: that was waited for before.
        ("Failed to read ptrmap key=22", False),
        (sqlite3.DatabaseError("database disk image is malformed"), False),
        (sqlite3.OperationalError("disk I/O error"), True),
    ],
    ids=str,
)
def test_what_sqlite_takes_for_damage_is_told_by_its_check(checked: str | sqlite3.Error, may_pass: bool) -> None:
    """Of a page for which the disk gives EIO, a query says that it is damaged."""

    class Checked(sqlite3.Connection):
        def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
            assert statement == "PRAGMA quick_check(1)"
            if isinstance(checked, sqlite3.Error):
                raise checked
            return super().execute("SELECT ?", (checked,))

    db = sqlite3.connect(":memory:", factory=Checked)
    error = _failed("database disk image is malformed", 11, sqlite3.DatabaseError)
    refuse_to_wait(error, False, db)
    if may_pass:
        with pytest.raises(UnreadableError):
            refuse_to_wait(error, True, db)
    else:
        refuse_to_wait(error, True, db)
    db.close()


def test_tables_that_cannot_be_read_now_are_not_taken_for_gone(tmp_path: Path) -> None:
    """For a salvage SQLite is told to read whatever tables it finds."""
    path = tmp_path / "events.db"
    database = Database(path, False, 1 << 20)
    database.append([NewRow(1, "one", 9, 0.0, b"{}")], (), 0)
    database.close()
    looked: list[str] = []

    class Attentive(sqlite3.Connection):
        def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
            looked.append(statement)
            return super().execute(statement, values)

    db = sqlite3.connect(path, factory=Attentive)
    (piece,) = Salvage(0).read(db, is_patient=True)
    db.close()
    assert [row.id for row in piece.rows] == [1]
    assert looked.index("SELECT 1 FROM sqlite_master LIMIT 0") < looked.index("PRAGMA writable_schema = ON")
