"""Events that report idle and active watermarks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from spark_events.event import AttributeValue, Severity
from spark_events.event.text import lasting
from spark_events.translate.draft import Draft, counted, iso_millis, present
from spark_events.translate.queries import Run

__all__ = ["Subject", "View", "active", "idle"]

_WAS = ("was", "were")


@dataclasses.dataclass(slots=True)
class Subject:
    """Subject of idle tracking: a query's watermark, one of its sources, or a partition of a source.

    Attributes:
        quiet_since: start of the idle timeout.
        idle_since: time of the last change before this subject became ACTIVE again.
        rows: rows that the query has read since the last change.
        rows_before: the same, before the last batch.
        stalled: number of ``rows`` that should have advanced the watermark but did not.
        waiting: rows of the last batch; only the next batch shows whether they advance the watermark.
    """

    kind: str
    last_moved: int
    position: object = None
    index: int | None = None
    partition: str = ""
    status: str = "ACTIVE"
    quiet_since: int = 0
    idle_since: int = 0
    rows: int = 0
    rows_before: int = 0
    stalled: int = 0
    waiting: int = 0

    def __post_init__(self) -> None:
        self.quiet_since = self.last_moved

    def moves(self, at: int, position: object) -> bool:
        """Store a new position; return whether this subject becomes ACTIVE."""
        edge = self.wakes(at)
        self.last_moved, self.position = at, position
        return edge

    def wakes(self, at: int) -> bool:
        """Restart the idle timeout; return whether this subject becomes ACTIVE."""
        edge = self.status == "IDLE"
        self.status, self.idle_since, self.quiet_since = "ACTIVE", self.last_moved, at
        self.rows = self.rows_before = self.stalled = self.waiting = 0
        return edge

    def clock_stepped(self, by: int) -> None:
        """Move all times by a step of the wall clock, in milliseconds."""
        self.last_moved += by
        self.quiet_since += by
        self.idle_since += by

    def set_back(self, now: int) -> None:
        """Limit all stored times to the current time, after the clock was set back."""
        self.last_moved, self.quiet_since = min(self.last_moved, now), min(self.quiet_since, now)
        self.idle_since = min(self.idle_since, now)

    def stands_still(self, rows: int, pushing: int, watermark_moved: bool) -> None:
        """Count a batch that did not advance this watermark, source or partition.

        ``pushing`` is the number of rows of the batch that should advance the watermark.
        """
        self.rows_before = self.rows
        self.rows += rows
        self.stalled = 0 if watermark_moved else self.stalled + self.waiting
        self.waiting = pushing


class View:
    """A query's watermark and sources, as events describe them.

    Attributes:
        clocks: how often the clock was set back; part of each event's key, because times recur after the clock is set
            back.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.descriptions: dict[int, str] = {}
        self.watermark = ""
        self.rows_late = 0
        self.clocks = 0
        self._newest: int | None = None

    def take(self, watermark: str, newest: int | None, rows_late: int) -> None:
        """Set the values of the last batch."""
        self.watermark, self._newest, self.rows_late = watermark, newest, rows_late

    @property
    def lag(self) -> int | None:
        """Difference between the newest event time and the watermark, in milliseconds."""
        watermark = iso_millis(self.watermark, -1)
        return self._newest - watermark if self._newest is not None and watermark > 0 else None

    def name(self, subject: Subject) -> str:
        """Return the subject's name for event bodies and for ``spark.watermark.held_back_by``."""
        if subject.index is None:
            return "the watermark"
        description = self.descriptions[subject.index]
        source = f"source {subject.index} ({description})" if description else f"source {subject.index}"
        return f"partition {subject.partition} of {source}" if subject.kind == "partition" else source


def idle(view: View, subject: Subject, at: int, holders: Sequence[Subject], rows: int) -> Draft:
    """Return the event for a change to IDLE.

    Args:
        at: when the idle timeout passed.
        holders: the sources that hold back the watermark.
        rows: rows that the query had read at that time.
    """
    query, name = view.run.subject, view.name(subject)
    waited = f"for {lasting(at - subject.last_moved)}"
    if subject.kind == "query":
        stalled = subject.stalled > 0
        names = ", ".join(view.name(holder) for holder in holders) if stalled else ""
        body = f"The watermark of {query} has not moved from {view.watermark} {waited}"
        body += f" while {counted(rows, 'row', _WAS)} read" if stalled else ""
        body += f", held back by {names}" if names else ""
    else:
        # If its source delivers rows, a partition without rows does not hold back the watermark.
        stalled = subject in holders
        names = name if stalled else ""
        body = f"{name} of {query} has had no new data {waited}"
        body += f" and holds back the watermark at {view.watermark}" if stalled else ""
    body += f", {lasting(view.lag)} behind the newest event" if stalled and view.lag else ""
    details: dict[str, AttributeValue | None] = {
        "spark.watermark.idle_since_millis": subject.last_moved,
        "spark.watermark.idle_rows_read": rows,
        "spark.watermark.held_back_by": names or None,
    }
    key = ("IDLE", subject.quiet_since)
    return _draft(view, subject, ("ACTIVE", "IDLE"), key, at, body, stalled, details)


def active(view: View, subject: Subject, at: int) -> Draft:
    """Return the event for a change to ACTIVE, with the number of rows dropped as late."""
    query, name = view.run.subject, view.name(subject)
    waited = f"after {lasting(at - subject.idle_since)}"
    if subject.kind != "query":
        body = f"{name} of {query} is active again {waited}"
    elif subject.last_moved == at:
        body = f"The watermark of {query} moves again {waited}"
    else:
        body = f"The watermark of {query} is active again {waited}: rows arrive, but it is still at {view.watermark}"
    body += f"; {counted(view.rows_late, 'row', _WAS)} dropped as late" if view.rows_late else ""
    details: dict[str, AttributeValue | None] = {
        "spark.watermark.idle_since_millis": subject.idle_since,
        "spark.watermark.idle_duration_ms": at - subject.idle_since,
        "spark.watermark.rows_dropped_late": view.rows_late,
    }
    return _draft(view, subject, ("IDLE", "ACTIVE"), ("ACTIVE", at), at, body, view.rows_late > 0, details)


def _draft(
    view: View,
    subject: Subject,
    change: tuple[str, str],
    key: tuple[str, int],
    at: int,
    body: str,
    warn: bool,
    details: dict[str, AttributeValue | None],
) -> Draft:
    index, old, new = subject.index, *change
    moment = (*key, view.clocks) if view.clocks else key
    return Draft(
        name="WatermarkStatusChangeEvent",
        class_scope="spark.streaming.watermark",
        key=("watermark", view.run.run_id, subject.kind, str(index), subject.partition, *moment),
        body=body,
        severity=Severity.WARN if warn else Severity.INFO,
        observed_ts_millis=at,
        attributes=present(
            {
                **view.run.scope_variables,
                "spark.watermark.subject": subject.kind,
                "spark.status.old": old,
                "spark.status.new": new,
                "spark.source.index": index,
                "spark.source.description": None if index is None else view.descriptions[index],
                "spark.source.partition": subject.partition or None,
                "spark.watermark.time": view.watermark,
                "spark.watermark.policy": view.run.watermark_policy,
                "spark.watermark.lag_ms": view.lag,
                **details,
            }
        ),
    )
