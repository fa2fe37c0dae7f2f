"""Who is idle, and who holds the watermark back.

The meaning is that of Flink's watermark status (FLIP-180): IDLE and ACTIVE are about watermarks. A
query is IDLE when its watermark has stood still for ``idle-timeout``; a source, or one partition of it,
when it has brought nothing new for that long. Only the edges are events, and only after the timeout:
Spark itself repeats an idle report every few seconds.

Time is what the records say and what :meth:`Watermarks.tick` is told, so a replay of an event log
sees the same edges at the same moments as a live run.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator

from spark_events.bridge.records import Progress
from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, iso_millis, present
from spark_events.translate.offsets import partitions
from spark_events.translate.queries import Run

__all__ = ["WatermarkTracker"]

#: A trigger that fires seldom is not idleness: so many of its periods must pass as well.
_TRIGGERS = 3
#: Until two triggers have been seen, their period is not known: patience is so much longer.
_UNKNOWN_PERIOD = 5


@dataclasses.dataclass(slots=True)
class _Subject:
    """A query's watermark, a source, or a partition: when it last moved, and what it is therefore."""

    kind: str
    last_moved: int
    position: object = None
    status: str = "ACTIVE"
    rows_of_others: int = 0
    batches_since: int = 0
    # The watermark two batches after the last data: by then it contains all that this data can give.
    watermark_then: str | None = None

    def moved(self, at: int, position: object) -> bool:
        """Takes in a new position; whether this is the edge from IDLE to ACTIVE."""
        self.last_moved, self.position = at, position
        self.rows_of_others = self.batches_since = 0
        self.watermark_then = None
        edge = self.status == "IDLE"
        self.status = "ACTIVE"
        return edge


class WatermarkTracker:
    """The watermark of one run of one query, its sources and their partitions.

    Args:
        run: whose it is.
        idle_timeout_millis: how long something must stand still to be IDLE.
    """

    def __init__(self, run: Run, idle_timeout_millis: int) -> None:
        self.policy = "min"
        self._run = run
        self._timeout = idle_timeout_millis
        self._watermark: str | None = None
        self._max_event_time: str | None = None
        self._last_trigger = 0
        self._trigger_gaps: deque[int] = deque(maxlen=3)
        self._late_rows = 0
        self._own: _Subject | None = None
        self._sources: dict[int, _Subject] = {}
        self._partitions: dict[tuple[int, str], _Subject] = {}
        self._descriptions: dict[int, str] = {}

    @property
    def next_deadline(self) -> int | None:
        """When the next subject will be IDLE, if nothing moves; milliseconds since the epoch."""
        timeout = self._effective_timeout()
        return min((s.last_moved + timeout for s in self._subjects() if s.status == "ACTIVE"), default=None)

    def progress(self, progress: Progress, at: int) -> Iterator[Draft]:
        """What a trigger says: everything that has moved, and what it makes ACTIVE again.

        Args:
            progress: of a batch that was executed.
            at: when it was committed, in milliseconds since the epoch.
        """
        watermark = progress.event_time.get("watermark")
        if watermark is None:
            # Idleness is about watermarks: a query without one has none.
            return
        yield from self.tick(at)
        self._trigger_at(at)
        self._late_rows += sum(op.num_rows_dropped_by_watermark for op in progress.state_operators)
        self._max_event_time = max(self._max_event_time or "", progress.event_time.get("max", "")) or None
        rows = sum(source.num_input_rows for source in progress.sources)
        edges: list[Draft] = []
        for index, source in enumerate(progress.sources):
            self._descriptions[index] = source.description
            subject = self._sources.setdefault(index, _Subject("source", at))
            end = bytes(source.end_offset)
            if source.num_input_rows > 0:
                if subject.moved(at, end):
                    edges.append(self._active(subject, at, index))
            else:
                self._stands_still(subject, rows, watermark)
            for partition, offset in partitions(end).items():
                part = self._partitions.setdefault((index, partition), _Subject("partition", at, offset))
                if offset != part.position:
                    if part.moved(at, offset):
                        edges.append(self._active(part, at, index, partition))
                else:
                    self._stands_still(part, rows, watermark)
        if self._own is None:
            self._own = _Subject("query", at, watermark)
        elif watermark != self._own.position:
            if self._own.moved(at, watermark):
                edges.append(self._active(self._own, at))
        else:
            self._stands_still(self._own, rows, watermark)
        self._watermark = watermark
        yield from edges
        if edges:
            self._late_rows = 0

    def idle(self, at: int) -> Iterator[Draft]:
        """Spark says that the query has nothing to do; it is no edge by itself."""
        self._trigger_at(at)
        yield from self.tick(at)

    def tick(self, now: int) -> Iterator[Draft]:
        """Time has passed: what has stood still for long enough is IDLE, since the moment it was."""
        timeout = self._effective_timeout()
        due: list[tuple[int, Draft]] = []
        for index, subject in self._sources.items():
            if self._falls_idle(subject, now, timeout):
                due.append((subject.last_moved + timeout, self._idle(subject, timeout, index)))
        for (index, partition), subject in self._partitions.items():
            if self._falls_idle(subject, now, timeout):
                due.append((subject.last_moved + timeout, self._idle(subject, timeout, index, partition)))
        if self._own is not None and self._falls_idle(self._own, now, timeout):
            due.append((self._own.last_moved + timeout, self._idle(self._own, timeout)))
        due.sort(key=lambda edge: edge[0])
        yield from (draft for _, draft in due)

    def _subjects(self) -> Iterator[_Subject]:
        yield from self._sources.values()
        yield from self._partitions.values()
        if self._own is not None:
            yield self._own

    def _effective_timeout(self) -> int:
        if not self._trigger_gaps:
            return _UNKNOWN_PERIOD * self._timeout
        # The shortest of the last gaps: one long pause is not a period.
        return max(self._timeout, _TRIGGERS * min(self._trigger_gaps))

    def _trigger_at(self, at: int) -> None:
        if self._last_trigger:
            self._trigger_gaps.append(max(0, at - self._last_trigger))
        self._last_trigger = at

    def _stands_still(self, subject: _Subject, rows: int, watermark: str) -> None:
        subject.batches_since += 1
        subject.rows_of_others += rows
        if subject.batches_since == 2:
            subject.watermark_then = watermark

    @staticmethod
    def _falls_idle(subject: _Subject, now: int, timeout: int) -> bool:
        if subject.status == "IDLE" or now < subject.last_moved + timeout:
            return False
        subject.status = "IDLE"
        return True

    def _holds_back(self, subject: _Subject) -> bool:
        """Others brought rows and the watermark did not move: under ``min``, that is this one's doing."""
        stuck = subject.watermark_then is None or subject.watermark_then == self._watermark
        return self.policy == "min" and subject.rows_of_others > 0 and stuck

    def _holders(self) -> str | None:
        holders = [
            f"source {index} ({self._descriptions[index]})"
            for index, subject in self._sources.items()
            if subject.batches_since > 0 and self._holds_back(subject)
        ]
        return ", ".join(holders) or None

    def _idle(self, subject: _Subject, timeout: int, index: int | None = None, partition: str = "") -> Draft:
        at = subject.last_moved + timeout
        seconds = timeout // 1000
        name = self._name(subject, index, partition)
        stalled = subject.rows_of_others > 0
        if subject.kind == "query":
            holders = self._holders()
            body = f"The watermark of query '{self._run.title}' has stood still at {self._watermark} for {seconds} s"
            body += " while rows keep coming" if stalled else ""
            body += f", held back by {holders}" if holders else ""
            warn = stalled
        else:
            # One silent partition of a source that brings rows does not hold anything back by itself.
            warn = subject.kind == "source" and self._holds_back(subject)
            holders = name if warn else None
            body = f"{name[0].upper()}{name[1:]} of query '{self._run.title}' has been idle for {seconds} s"
            body += f" and holds back the watermark at {self._watermark}" if warn else ""
        return self._draft(
            subject, "ACTIVE", "IDLE", at, body, warn, index, partition, {"watermark.held_back_by": holders}
        )

    def _active(self, subject: _Subject, at: int, index: int | None = None, partition: str = "") -> Draft:
        name = self._name(subject, index, partition)
        body = f"{name[0].upper()}{name[1:]} of query '{self._run.title}' is active again"
        details: dict[str, AttributeValue | None] = {"rows.dropped_late": self._late_rows}
        if self._late_rows:
            body += f"; {self._late_rows:,} rows were dropped as late"
        return self._draft(subject, "IDLE", "ACTIVE", at, body, self._late_rows > 0, index, partition, details)

    def _name(self, subject: _Subject, index: int | None, partition: str) -> str:
        if index is None:
            return "the watermark"
        source = f"source {index} ({self._descriptions[index]})"
        return f"partition {partition} of {source}" if subject.kind == "partition" else source

    def _draft(
        self,
        subject: _Subject,
        old: str,
        new: str,
        at: int,
        body: str,
        warn: bool,
        index: int | None,
        partition: str,
        details: dict[str, AttributeValue | None],
    ) -> Draft:
        return Draft(
            name="WatermarkStatusChangeEvent",
            class_scope="spark.streaming.watermark",
            key=("watermark", self._run.run_id, subject.kind, str(index), partition, new, at),
            body=body,
            severity=Severity.WARN if warn else Severity.INFO,
            observed_ts_millis=at,
            attributes=present(
                {
                    **self._run.scope_variables,
                    "watermark.subject": subject.kind,
                    "status.old": old,
                    "status.new": new,
                    "source.index": index,
                    "source.description": None if index is None else self._descriptions[index],
                    "source.partition": partition or None,
                    "watermark": self._watermark,
                    "watermark.policy": self.policy,
                    "watermark.lag_ms": self._lag(),
                    "idle.since_millis": subject.last_moved if new == "IDLE" else None,
                    "idle.rows_of_others": subject.rows_of_others if new == "IDLE" else None,
                    **details,
                }
            ),
        )

    def _lag(self) -> int | None:
        """How far the watermark is behind the newest event, in milliseconds."""
        if self._max_event_time is None or self._watermark is None:
            return None
        newest = iso_millis(self._max_event_time, -1)
        watermark = iso_millis(self._watermark, -1)
        return newest - watermark if newest >= 0 and watermark > 0 else None
