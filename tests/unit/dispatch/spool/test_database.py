"""The file: rows in order, in transactions, within a size; what is damaged is told from what may pass."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_events.dispatch.spool.database import DamagedError, Database, Extent, NewRow
from spark_events.dispatch.spool.salvage import Salvage

MEGABYTE = 1 << 20


def rows(*ids: int, size: int = 10, worth: int = 9) -> list[NewRow]:
    return [NewRow(i, f"{i:032d}", worth, float(i), b"%d" % i + b"." * size) for i in ids]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    made = Database(path, False, MEGABYTE)
    yield made
    made.close()


def ids(database: Database, after: int = 0) -> list[int]:
    return [row.id for row in database.read(after, 10_000)]


def test_rows_are_read_in_the_order_of_their_places(database: Database) -> None:
    """Whatever the order in which they were written: what had passed by comes to its place."""
    database.append(rows(4, 5, 6), (), 0)
    database.append(rows(-3, 1, 2, 7), (), 0)
    assert ids(database, -10) == [-3, 1, 2, 4, 5, 6, 7]
    assert [row.id for row in database.read(2, 2)] == [4, 5]
    assert database.extent(2) == Extent(4, 4, 7)
    assert database.extent(7) == Extent(0, 0, 0)


def after_a_kill(path: Path) -> list[int]:
    """What is in the file and its log, as a kill would leave them now."""
    copy = path.parent / "copy"
    copy.mkdir()
    for found in path.parent.glob("events.db*"):
        shutil.copy(found, copy)
    again = Database(copy / "events.db", False, MEGABYTE)
    try:
        return ids(again)
    finally:
        again.close()


def test_what_was_committed_is_there_without_a_close(database: Database, path: Path) -> None:
    """The file and its log have every row."""
    database.append(rows(1, 2, 3), (), 0)
    assert after_a_kill(path) == [1, 2, 3]


def test_a_log_that_was_removed_takes_nothing_with_it(database: Database, path: Path) -> None:
    """What is in it is still seen by who has it open, and comes into the file; then there is another."""
    log = path.with_name("events.db-wal")
    database.append(rows(1, 2, 3), (), 0)
    assert not database.tend_log()
    log.unlink()
    assert database.tend_log()
    assert not database.tend_log()
    database.append(rows(4), (), 0)
    assert after_a_kill(path) == [1, 2, 3, 4]


def test_a_log_that_was_put_back_is_not_the_one_that_is_written(database: Database, path: Path) -> None:
    """Whoever restores a folder has a file of that name, and nothing that comes later."""
    log = path.with_name("events.db-wal")
    database.append(rows(1, 2, 3), (), 0)
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)
    assert database.tend_log()
    assert not database.tend_log()
    database.append(rows(4), (), 0)
    assert after_a_kill(path) == [1, 2, 3, 4]


def test_what_is_removed_with_its_log_can_be_read_as_long_as_it_is_open(database: Database, path: Path) -> None:
    """The log goes first, as a rule, and is missed before the file has gone, too."""
    database.append(rows(1, 2, 3), (), 0)
    path.with_name("events.db-wal").unlink()
    # Seen with the first statement: by then the file has gone as well.
    database.connection.set_trace_callback(lambda _: path.unlink(missing_ok=True))
    with pytest.raises(FileNotFoundError):
        database.tend_log()
    database.connection.set_trace_callback(None)
    assert not database.is_in_place
    assert ids(database) == [1, 2, 3]


def test_a_log_that_is_not_folded_in_does_not_grow_for_ever(database: Database, path: Path) -> None:
    """SQLite tries that after a write and tells nobody that it failed; whoever asks for it is told."""
    database.connection.execute("PRAGMA wal_autocheckpoint = 0")
    for place in range(1, 200):
        database.append(rows(place, size=50_000), [place - 1], 0)
        database.tend_log()
    assert path.with_name("events.db-wal").stat().st_size < 2 * MEGABYTE
    assert ids(database) == [199]


def test_an_event_is_written_once(database: Database) -> None:
    """What the driver sends again and is still here is named as a duplicate, with the identifier it would have had."""
    database.append(rows(1, 2), (), 0)
    again = [row._replace(id=10 + row.id) for row in rows(2, 3)]
    appended = database.append(again, (), 0)
    assert (appended.duplicates, appended.added) == (frozenset({12}), frozenset({13}))
    assert ids(database) == [1, 2, 13]


def test_a_write_that_was_made_and_not_heard_of_is_no_duplicate(database: Database) -> None:
    """The same rows under the same identifiers are there, as they should be."""
    database.append(rows(1, 2), (), 0)
    appended = database.append(rows(1, 2, 3), (), 0)
    assert (appended.duplicates, appended.added) == (frozenset(), frozenset({1, 2, 3}))
    assert ids(database) == [1, 2, 3]


def test_a_place_that_is_another_s_makes_no_duplicate(database: Database) -> None:
    """It would be taken for written, and lost."""
    database.append(rows(1, 2), (), 0)
    with pytest.raises(DamagedError, match="another's"):
        database.append([row._replace(id=2) for row in rows(3)], (), 0)
    assert ids(database) == [1, 2]


def test_rows_that_are_done_go_in_the_same_transaction(database: Database) -> None:
    """What replaces them and what they were are never both there."""
    database.append(rows(1, 2, 3), (), 0)
    assert not database.is_empty
    database.append(rows(4), [1, 3], 0)
    assert ids(database) == [2, 4]
    database.append((), [2, 4], 0)
    assert database.is_empty


def test_the_least_worthy_make_room_the_oldest_first(path: Path) -> None:
    """Beyond the size, by worth and then by age; a newcomer that is worth least goes itself."""
    database = Database(path, False, MEGABYTE)
    database.append(rows(*range(100), size=4_000, worth=109), (), -1)
    database.append(rows(*range(100, 200), size=4_000, worth=9), (), -1)
    assert not database.append(rows(*range(200, 210), size=4_000, worth=13), (), -1).shed
    shed = [sorted(database.append(rows(n, n + 1, size=4_000, worth=9), (), -1).shed) for n in range(300, 360, 2)]
    assert shed[-1] == [shed[-2][-1] + 1, shed[-1][0] + 1]
    flat = [number for some in shed for number in some]
    assert flat == list(range(100, 100 + len(flat)))
    assert database.append(rows(400, size=4_000, worth=5), (), -1).shed == {400}
    kept = ids(database, -1)
    assert kept[:100] == list(range(100))
    assert set(kept) >= {*range(200, 210), *range(330, 360)}
    database.close()


def test_what_could_never_stay_makes_nobody_else_go(path: Path) -> None:
    """An event larger than the whole spool is lost alone; one that just fits may drive out others."""
    database = Database(path, False, MEGABYTE)
    database.append(rows(*range(100), size=4_000), (), -1)
    appended = database.append(rows(100, size=3 * MEGABYTE, worth=109), (), -1)
    assert (appended.added, appended.shed) == (frozenset(), frozenset({100}))
    assert ids(database, -1) == list(range(100))
    appended = database.append(rows(101, size=MEGABYTE * 9 // 10, worth=109), (), -1)
    assert appended.added == {101}
    assert ids(database, -1)[-1] == 101
    database.close()


def test_what_is_with_the_reporter_cannot_make_room(path: Path) -> None:
    """Rows up to the protected one stay; if there is nobody else, the spool is over its size for a while."""
    database = Database(path, False, MEGABYTE)
    database.append(rows(*range(300), size=4_000), (), 299)
    assert database.append(rows(300, size=4_000), (), 299).shed == {300}
    assert not database.append(rows(301, size=4_000), (), 301).shed
    assert ids(database, -1) == [*range(300), 301]
    database.close()


@pytest.mark.parametrize("size", [200, 700, 1_000, 1_500, 2_100, 3_000, 5_000, 16_000])
@pytest.mark.parametrize("worthy", [0, 20])
def test_the_file_is_not_larger_than_it_may_be(path: Path, size: int, worthy: int) -> None:
    """Whatever the size of events, and however much of what is worth most is scattered among the rest."""
    database = Database(path, False, MEGABYTE)
    number, shed = 0, 0
    while shed < 3 * MEGABYTE // size:
        new = rows(*range(number, number + 10), size=size)
        if worthy and number % worthy == 0:
            new[5] = new[5]._replace(worth=109)
        shed += len(database.append(new, (), -1).shed)
        number += 10
    database.close()
    assert path.stat().st_size <= MEGABYTE + 10 * (size + 8192)
    kept = path.stat().st_size
    db = Database(path, False, MEGABYTE)
    assert sum(len(row.event) for row in db.read(-1, 100_000)) >= 0.25 * kept
    db.close()


def test_the_log_stays_small(path: Path, database: Database) -> None:
    """It is folded in again and again: an eighth of the size, or what one transaction needs."""
    for start in range(0, 40_000, 500):
        written = database.append(rows(*range(start, start + 500), size=500), (), 0)
        database.append((), list(written.added), 0)
    assert path.with_name("events.db-wal").stat().st_size <= MEGABYTE // 8 + 1_000_000


def test_the_disk_gets_back_what_is_not_needed(path: Path, database: Database) -> None:
    """After an outage the file is as small as before it, but for what the next one needs first."""
    database.close()
    database = Database(path, False, 10 * MEGABYTE)
    written = database.append(rows(*range(6_000), size=800), (), 0)
    database.append((), list(written.added), 0)
    assert path.stat().st_size > 5 * MEGABYTE
    for _ in range(10):
        database.shrink()
    database.close()
    assert path.stat().st_size <= 1.2 * MEGABYTE


def test_room_is_what_rows_leave_and_have_left(path: Path, database: Database) -> None:
    """Not what the file leaves, which is as large as it ever was."""
    at_first = database.room
    assert 0.9 * MEGABYTE < at_first < MEGABYTE
    written = database.append(rows(*range(1_500), size=500), (), 0)
    assert database.room < 0.1 * MEGABYTE
    database.append((), list(written.added), 0)
    assert database.room >= at_first - 4096
    database.close()
    assert path.stat().st_size > 0.9 * MEGABYTE


@pytest.mark.parametrize("damage", ["garbage", "header", "version", "columns", "tables"])
def test_a_file_that_is_no_spool_is_damaged(path: Path, damage: str) -> None:
    """It will not become one by waiting, and is told from a disk that does not work."""
    if damage == "garbage":
        path.write_bytes(b"this was never a database" * 1000)
    else:
        Database(path, False, MEGABYTE).close()
        if damage == "header":
            path.write_bytes(b"x" * 100 + path.read_bytes()[100:])
        else:
            db = sqlite3.connect(path)
            statement = {
                "version": "PRAGMA user_version = 7",
                "columns": "ALTER TABLE events RENAME COLUMN worth TO value",
                "tables": "DROP TABLE events",
            }[damage]
            db.execute(statement)
            db.commit()
            db.close()
    with pytest.raises(sqlite3.DatabaseError) as caught:
        Database(path, False, MEGABYTE)
    assert type(caught.value) in (sqlite3.DatabaseError, DamagedError)


def test_pages_that_were_overwritten_are_found_when_it_is_opened(path: Path) -> None:
    """Not when a row of them is read, days later."""
    database = Database(path, False, MEGABYTE)
    database.append(rows(*range(1000), size=300), (), -1)
    database.close()
    content = bytearray(path.read_bytes())
    content[40 * 4096 : 41 * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError):
        Database(path, False, MEGABYTE)


def test_a_large_file_tells_that_it_gets_on_while_it_is_opened(path: Path) -> None:
    """Read from the disk, checked and counted: each of these may take longer than a disk may stand still."""
    database = Database(path, False, 20 * MEGABYTE)
    database.append(rows(*range(5_000), size=1_000), (), -1)
    database.close()
    # The log is there from the moment on at which SQLite has the file.
    log, told = path.with_name("events.db-wal"), list[bool]()
    database = Database(path, False, 20 * MEGABYTE, lambda: told.append(log.exists()))
    assert told.count(False) >= path.stat().st_size // MEGABYTE
    # A row that is checked takes a step at least.
    assert told.count(True) >= 5
    told.clear()
    assert database.extent().rows == 5_000
    assert told
    database.close()


def test_a_disk_that_does_not_work_may_pass(tmp_path: Path) -> None:
    """A path that cannot be opened is no damage."""
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        Database(tmp_path / "missing" / "events.db", False, MEGABYTE)


def test_a_file_that_was_removed_or_replaced_is_missed(path: Path, database: Database) -> None:
    """SQLite itself goes on writing into nothing."""
    in_place = [database.is_in_place]
    path.unlink()
    in_place.append(database.is_in_place)
    path.write_bytes(b"")
    in_place.append(database.is_in_place)
    assert in_place == [True, False, False]
    database.append(rows(1), (), 0)
    assert ids(database) == [1]


@pytest.mark.parametrize(("fsync", "synchronous"), [(False, 1), (True, 2)])
def test_fsync_is_what_was_asked_for(path: Path, fsync: bool, synchronous: int) -> None:
    """NORMAL waits for the disk when the log is folded in, FULL at every commit."""
    database = Database(path, fsync, MEGABYTE)
    assert database.connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
    assert database.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()


# --- salvage --------------------------------------------------------------------------------------


def salvaged(path: Path, after: int = -1) -> tuple[list[int], Salvage]:
    db = sqlite3.connect(path)
    salvage = Salvage(after)
    found = [row.id for piece in salvage.read(db, is_patient=False) for row in piece.rows]
    db.close()
    return found, salvage


def test_a_sound_file_is_salvaged_whole(path: Path) -> None:
    """In order, behind the identifier that is asked for."""
    database = Database(path, False, MEGABYTE)
    database.append(rows(*range(1200)), (), -1)
    database.close()
    found, salvage = salvaged(path, 99)
    assert found == list(range(100, 1200))
    assert (salvage.is_whole, salvage.lost, salvage.found) == (True, 0, 1100)


@pytest.mark.parametrize("page", range(5, 100, 7))
def test_rows_around_a_damaged_page_are_saved(path: Path, page: int) -> None:
    """Wherever the damage is: what can be read is, in order, and with what is counted as lost it is all there was."""
    database = Database(path, False, 4 * MEGABYTE)
    database.append(rows(*range(1200), size=300), (), -1)
    database.close()
    content = bytearray(path.read_bytes())
    assert len(content) > 101 * 4096
    content[page * 4096 : (page + 1) * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    found, salvage = salvaged(path)
    assert found == sorted(set(found))
    assert len(found) + salvage.lost == 1200
    assert len(found) >= 1200 - 15


def with_place(path: Path, row: int, place: int) -> None:
    """As a disk would do that flips some bits: the identifier of a row is another, both of two bytes in the file."""

    def two_bytes(number: int) -> bytes:
        return bytes((0x80 | number >> 7, number & 0x7F))

    content = path.read_bytes()
    # Behind it is the record: its header, of seven bytes, then the identifier of the event.
    (found,) = re.finditer(re.escape(two_bytes(row)) + b"\\x07.{6}" + b"%032d" % row, content, re.DOTALL)
    path.write_bytes(content[: found.start()] + two_bytes(place) + content[found.start() + 2 :])


@pytest.mark.parametrize(
    ("row", "place"),
    [(1199, 130), (499, 130), (499, 1500), (300, 1500), (300, 130)],
    ids=["the last goes back", "a slice's last goes back", "a slice's last goes far", "one goes far", "one goes back"],
)
def test_a_row_in_a_wrong_place_takes_no_other_with_it(path: Path, row: int, place: int) -> None:
    """SQLite takes their order for granted: where one is out of it, the salvage neither ends early nor never."""
    database = Database(path, False, 4 * MEGABYTE)
    database.append(rows(*range(1200), size=300), (), -1)
    database.close()
    with_place(path, row, place)
    found: list[int] = []
    db = sqlite3.connect(path)
    salvage = Salvage(-1)
    for piece in salvage.read(db, is_patient=False):
        found += [row.id for row in piece.rows]
        assert len(found) < 2_000
    db.close()
    assert found == sorted(set(found))
    assert len(found) >= 1200 - 15
    assert not salvage.is_whole
    # A row that has two places, by the table and by its indexes, may count as two.
    assert 1200 <= len(found) + salvage.lost <= 1201


def test_a_file_that_was_cut_off_gives_what_is_left(path: Path) -> None:
    """Half a file is not nothing."""
    database = Database(path, False, 4 * MEGABYTE)
    database.append(rows(*range(1200), size=300), (), -1)
    database.close()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    found, salvage = salvaged(path)
    assert found == sorted(set(found))
    assert len(found) > 100
    assert not salvage.is_whole


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000], ids=["empty", "garbage"])
def test_nothing_comes_of_nothing(path: Path, content: bytes) -> None:
    """And that is no error: who salvages has trouble enough."""
    path.write_bytes(content)
    found, salvage = salvaged(path)
    assert (found, salvage.is_whole) == ([], False)


def test_values_that_are_no_event_are_lost(path: Path) -> None:
    """A row of other types is not taken over."""
    database = Database(path, False, MEGABYTE)
    database.append(rows(1, 2, 3), (), 0)
    database.connection.execute("UPDATE events SET event = 'text' WHERE id = 2")
    database.close()
    found, salvage = salvaged(path)
    assert (found, salvage.lost, salvage.is_whole) == ([1, 3], 1, False)
