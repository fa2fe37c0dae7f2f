"""What is idle or active as events, and the sentences that tell it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, iso_millis, present
from spark_events.translate.queries import Run

__all__ = ["Subject", "View", "active", "idle"]


@dataclasses.dataclass(slots=True)
class Subject:
    """A query's watermark, a source, or a partition: when it last moved, and what it is therefore.

    Attributes:
        quiet_since: from when its timeout is counted.
        rows: what the query has read since it last moved.
        stalled: of these, the rows that had to move the watermark and did not.
        waiting: rows of the last batch, of which only the next batch can tell that.
    """

    kind: str
    last_moved: int
    position: object = None
    index: int | None = None
    partition: str = ""
    status: str = "ACTIVE"
    quiet_since: int = 0
    rows: int = 0
    stalled: int = 0
    waiting: int = 0

    def __post_init__(self) -> None:
        self.quiet_since = self.last_moved

    def moves(self, at: int, position: object) -> bool:
        """Takes in a new position; whether this is the edge from IDLE to ACTIVE."""
        edge = self.status == "IDLE"
        if not edge:
            self.last_moved = at
        self.status, self.position, self.quiet_since = "ACTIVE", position, at
        self.rows = self.stalled = self.waiting = 0
        return edge

    def stands_still(self, rows: int, pushing: int, watermark_moved: bool) -> None:
        """A batch without anything new from it; ``pushing`` of the rows should move the watermark."""
        self.rows += rows
        self.stalled = 0 if watermark_moved else self.stalled + self.waiting
        self.waiting = pushing


class View:
    """What there is to say of a query's watermark at a moment."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.descriptions: dict[int, str] = {}
        self.watermark = ""
        self.rows_late = 0
        self._newest: int | None = None

    def take(self, watermark: str, newest: int | None, rows_late: int) -> None:
        """After a batch."""
        self.watermark, self._newest, self.rows_late = watermark, newest, rows_late

    @property
    def lag(self) -> int | None:
        """How far the watermark is behind the newest event, in milliseconds."""
        watermark = iso_millis(self.watermark, -1)
        return self._newest - watermark if self._newest is not None and watermark > 0 else None

    def name(self, subject: Subject) -> str:
        """For sentences and for ``watermark.held_back_by``."""
        if subject.index is None:
            return "the watermark"
        description = self.descriptions[subject.index]
        source = f"source {subject.index} ({description})" if description else f"source {subject.index}"
        return f"partition {subject.partition} of {source}" if subject.kind == "partition" else source
