"""Tests of one spool file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from spools import spoil

from spark_events.dispatch.entries import weight_for
from spark_events.dispatch.spool.spool_database import CorruptFileError, SpoolDatabase, is_corruption

MANY = 1 << 30


def rows(*which: int, priority: int = 9, size: int = 10) -> list[tuple[str, int, float, bytes]]:
    return [(str(n), priority, 0.0, b"x" * size) for n in which]


def ids(database: SpoolDatabase, after: int = 0) -> list[int]:
    return [number for number, _, _ in database.read(after, 100_000)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


@pytest.fixture
def database(path: Path) -> Iterator[SpoolDatabase]:
    opened = SpoolDatabase(path, False, MANY)
    yield opened
    opened.close()


def test_rows_are_read_in_order_and_deleted_when_settled(database: SpoolDatabase) -> None:
    assert database.append(rows(1, 2, 3), 0, 0).ids == [1, 2, 3]
    assert database.append(rows(4), 2, 2).ids == [4]
    assert ids(database) == [3, 4]
    assert ids(database, 3) == [4]


def test_fewer_rows_are_read_if_they_are_large(database: SpoolDatabase) -> None:
    database.append(rows(1, 2, 3, size=100_000), 0, 0)
    weight = weight_for(100_000)
    assert weight > 1
    assert len(database.read(0, 2 * weight)) == 2


def test_an_event_is_stored_once(database: SpoolDatabase) -> None:
    database.append(rows(1, 2), 0, 0)
    assert database.append(rows(2, 3), 0, 0) == ([0, 4], 1, 0)


def test_committed_rows_survive_without_a_close(path: Path, database: SpoolDatabase) -> None:
    database.append(rows(1, 2), 0, 0)
    copy = path.with_name("copy")
    copy.mkdir()
    for part in ("events.db", "events.db-wal"):
        (copy / part).write_bytes(path.with_name(part).read_bytes())
    again = SpoolDatabase(copy / "events.db", False, MANY)
    assert (again.rows, again.last_id, ids(again)) == (2, 2, [1, 2])
    again.close()


def test_rows_of_a_commit_reported_as_failed_are_deleted(path: Path, database: SpoolDatabase) -> None:
    database.append(rows(*range(1, 6)), 0, 0)
    database.close()
    again = SpoolDatabase(path, False, MANY, after=1, last_id=3)
    assert (again.rows, ids(again)) == (2, [1, 2, 3])
    assert again.append(rows(9), 0, 0).ids == [4]
    again.close()


def test_the_oldest_of_the_lowest_priority_is_shed_first(path: Path) -> None:
    database = SpoolDatabase(path, False, 1)
    database.append(rows(*range(1, 11), priority=1, size=4_000), 0, 0)
    database.append(rows(*range(11, 21), priority=9, size=4_000), 0, 0)
    appended = database.append(rows(*range(21, 71), priority=5, size=4_000), 0, 3)
    left = ids(database)
    assert left[:3] == [1, 2, 3], "rows in memory are not shed"
    assert set(range(11, 21)) <= set(left)
    assert left[13:] == list(range(left[13], 71)), "the oldest are shed first"
    assert appended.shed == 7
    assert [n for n in appended.ids if n] == left[13:]
    database.close()


def test_an_event_larger_than_the_spool_is_shed_alone(path: Path) -> None:
    database = SpoolDatabase(path, False, 1)
    database.append(rows(1, 2), 0, 0)
    assert database.append(rows(3, priority=99, size=300_000), 0, 0) == ([0], 0, 0)
    assert ids(database) == [1, 2]
    database.close()


@pytest.mark.parametrize("size", [10, 700, 3_000, 9_000])
def test_the_file_and_its_log_stay_within_the_limit(path: Path, size: int) -> None:
    most = 1 << 20
    database = SpoolDatabase(path, False, most)
    for first in range(0, 6_000, 100):
        database.append(rows(*range(first, first + 100), priority=first % 7, size=size), 0, 0)
    one_write = 100 * (size + 4_096)
    assert path.stat().st_size <= most + one_write
    assert path.with_name("events.db-wal").stat().st_size <= most // 8 + 2 * one_write
    database.close()


@pytest.mark.parametrize("damage", ["no database", "older version", "newer version", "no table", "another table"])
def test_another_file_is_reported_as_corrupt(path: Path, damage: str) -> None:
    SpoolDatabase(path, False, MANY).close()
    db = sqlite3.connect(path)
    for statement in {
        "older version": ("PRAGMA user_version = 1",),
        "newer version": ("PRAGMA user_version = 77",),
        "no table": ("DROP TABLE events",),
        "another table": ("PRAGMA user_version = 0",),
    }.get(damage, ()):
        db.execute(statement)
    db.close()
    if damage == "no database":
        spoil(path)
    with pytest.raises(sqlite3.DatabaseError) as raised:
        SpoolDatabase(path, False, MANY)
    assert is_corruption(raised.value)


def test_a_failing_disk_is_not_reported_as_corruption(tmp_path: Path) -> None:
    (tmp_path / "events.db").mkdir()
    with pytest.raises(sqlite3.OperationalError) as raised:
        SpoolDatabase(tmp_path / "events.db", False, MANY)
    assert not is_corruption(raised.value)


@pytest.mark.parametrize("replaced", [False, True])
def test_the_next_write_detects_a_deleted_file(path: Path, database: SpoolDatabase, replaced: bool) -> None:
    """The next write detects a deleted file. SQLite alone would continue to write to the deleted file."""
    path.rename(path.with_name("elsewhere"))
    if replaced:
        path.touch()
    with pytest.raises(CorruptFileError):
        database.append(rows(1), 0, 0)


@pytest.mark.parametrize(("fsync", "synchronous"), [(False, 1), (True, 2)])
def test_fsync_follows_the_setting(path: Path, fsync: bool, synchronous: int) -> None:
    database = SpoolDatabase(path, fsync, MANY)
    assert database._number("PRAGMA synchronous") == synchronous
    database.close()
