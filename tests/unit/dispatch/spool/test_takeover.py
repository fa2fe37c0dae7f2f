"""Rows of an earlier file, which keep their places as long as nobody else has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_events.dispatch.spool.database import BEFORE_ALL, Database, NewRow
from spark_events.dispatch.spool.salvage import Salvage, Slice
from spark_events.dispatch.spool.takeover import Takeover


def row(place: int, event_id: str) -> NewRow:
    return NewRow(place, event_id, 9, 0.0, b"{}")


class Slices(Salvage):
    """Two, as of a file that is read."""

    def read(self, db: Any, is_patient: bool) -> Iterator[Slice]:
        yield Slice([row(1, "a"), row(2, "b")], 2, 0)
        yield Slice([row(3, "c"), row(4, "d")], 4, 0)


def test_what_is_behind_a_row_whose_place_is_taken_comes_behind_it(tmp_path: Path) -> None:
    """Also where its own place is free: order is kept before places."""
    database = Database(tmp_path / "events.db", fsync=False, max_bytes=1 << 20)
    database.append([row(1, "another")], (), BEFORE_ALL)
    takeover = Takeover(database, BEFORE_ALL, 100, frozenset(), lambda: None)
    takeover.keep(database.connection, Slices(BEFORE_ALL), is_patient=False)
    rows = database.connection.execute("SELECT id, event_id FROM events ORDER BY id").fetchall()
    assert rows == [(1, "another"), (100, "a"), (101, "b"), (102, "c"), (103, "d")]
    database.close()
