"""Detect idle watermarks, sources and partitions, and the sources that hold back a watermark.

The status has the same meaning as Flink's watermark status (FLIP-180). A query is IDLE when its watermark has not moved
for ``idle-timeout``. It is ACTIVE again when the watermark moves, or when one of its idle sources delivers rows. Spark
does not report the watermark of a source. Therefore a source, or one of its partitions, is IDLE when it has had no new
data for that time. Only changes of status emit events.

A pause counts only up to the last time that Spark checked for data, so a long batch or an infrequent trigger does not
make a watermark, source or partition idle. If Spark reports nothing, the clock alone decides, after a longer timeout.

The tracker reads the time from the records and from the argument of :meth:`WatermarkTracker.tick`. Therefore a replay
of an event log produces the same events with the same times as a live run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from spark_events.records.query_progress import SourceProgress, StreamingProgress
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.offsets import partitions
from spark_events.translate.queries import Run
from spark_events.translate.triggers import TriggerPeriod
from spark_events.translate.watermark_events import Subject, View, active, idle

__all__ = ["WatermarkTracker"]

#: If Spark reports nothing, the timeout is at least this number of trigger periods.
_PERIODS = 3
#: While the trigger period is unknown, the timeout is this multiple of the idle timeout, but at least ten minutes.
_UNKNOWN_PERIOD = 10
_UNKNOWN_MILLIS = 600_000
#: Largest backward step of the clock that is ignored as a routine correction, in milliseconds.
_SET_BACK_MILLIS = 1_000


class WatermarkTracker:
    """The watermark of one run of one query, its sources and their partitions.

    Args:
        run: the run; its policy for several watermarks decides which source can hold back the watermark.
        idle_timeout_millis: time without a change after which a subject (watermark, source or partition) is IDLE.
    """

    def __init__(self, run: Run, idle_timeout_millis: int) -> None:
        self._run = run
        self._timeout = max(1, idle_timeout_millis)
        self._period = TriggerPeriod()
        self._view = View(run)
        # Time of the last change. A later change never receives an earlier time, unless the clock was set back.
        self._now = 0
        self._last_seen = 0
        self._batch_ended = 0
        self._newest: int | None = None
        self._least_lag: int | None = None
        self._own: Subject | None = None
        self._sources: dict[int, Subject] = {}
        self._partitions: dict[int, dict[str, Subject]] = {}
        self._due: int | None = None
        self._closed = False

    @property
    def next_due(self) -> int | None:
        """Time at which the next subject becomes IDLE without further data, in milliseconds since the epoch."""
        return None if self._run.batches.is_running else self._due

    def close(self) -> None:
        """Stop tracking, because the run has ended or a new run has replaced it."""
        self._closed, self._due = True, None

    def progress(self, progress: StreamingProgress, at: int) -> Iterator[Draft]:
        """Apply a batch; yield the events of subjects that became IDLE or ACTIVE.

        Args:
            progress: the progress report of a committed batch.
            at: when the batch was committed, in milliseconds since the epoch.
        """
        watermark = progress.event_time.get("watermark")
        if watermark is None or self._closed:
            # A query without a watermark has no idle status.
            return
        began = iso_millis(progress.timestamp, at)
        self._note(began, at)
        at = max(at, self._now)
        self._period.note(began)
        self._batch_ended = at
        moved = self._own is None or watermark != self._own.position
        if moved:
            self._learn_lag(watermark)
        rows = sum(source.num_input_rows for source in progress.sources)
        pushing = self._pushing(progress, rows, watermark)
        # What became IDLE before this batch is described as it was then.
        past, holders = copy.copy(self._view), self._holders(before_move=moved)
        self._view.take(watermark, self._newest, rows_late(progress))
        woken: list[Subject] = []
        for index, source in enumerate(progress.sources):
            woken += self._source(index, source, at, rows, pushing, moved)
        awake = any(subject.kind == "source" for subject in woken)
        woken += self._query(watermark, at, rows, moved, awake)
        # Spark checked for data when the batch began; data that arrived later belongs to the next batch.
        yield from self._fall_idle(began, self._timeout, past, holders)
        for subject in woken:
            yield active(self._view, subject, at)

    def idle(self, at: int) -> Iterator[Draft]:
        """Apply a trigger without data; yield the events of subjects that became IDLE."""
        if not self._closed:
            self._note(at, at)
            self._period.note(at)
            yield from self._fall_idle(at, self._timeout)

    def tick(self, now: int) -> Iterator[Draft]:
        """Yield the events of subjects whose timeout has passed."""
        due = self.next_due
        if due is not None and now >= due:
            yield from self._fall_idle(now, self._patience())

    def clock_stepped(self, by: int) -> None:
        """Move all times by a step of the wall clock, in milliseconds; negative: back."""
        # The times of events recur after a step back.
        self._view.clocks += by < 0
        self._now, self._batch_ended = self._now + by, self._batch_ended + by
        self._last_seen += by
        self._due = None if self._due is None else self._due + by
        for subject in self._subjects():
            subject.clock_stepped(by)

    def lives_until(self, moment: int) -> bool:
        """Return whether the query may have run until the given time, that is, has missed fewer than two triggers."""
        period = self._period.millis
        return period is not None and moment - self._last_seen <= 2 * period

    def _note(self, began: int, ended: int) -> None:
        """Detect a clock that was set back.

        A query's reports arrive in order, so their times decrease only after the clock was set back.
        """
        if began < self._last_seen - _SET_BACK_MILLIS:
            self._view.clocks += 1
            self._now, self._batch_ended = min(self._now, began), min(self._batch_ended, began)
            for subject in self._subjects():
                subject.set_back(began)
        self._last_seen = ended

    def _source(
        self, index: int, source: SourceProgress, at: int, rows: int, pushing: int, moved: bool
    ) -> Iterator[Subject]:
        """Apply the data of a source; yield the subjects that became ACTIVE."""
        self._view.descriptions[index] = source.description
        end = bytes(source.end_offset)
        subject = self._sources.get(index)
        if subject is None:
            subject = self._sources[index] = Subject("source", at, end, index)
        # If Spark cannot assign rows to a source, compare offsets to find the source that moved.
        if source.num_input_rows > 0 or (rows == 0 and end != subject.position):
            if subject.moves(at, end):
                yield subject
        else:
            subject.stands_still(rows, pushing, moved)
        offsets = partitions(end)
        parts = self._partitions.setdefault(index, {})
        for name in [name for name in parts if offsets and name not in offsets]:
            del parts[name]
        for name, offset in offsets.items():
            part = parts.get(name)
            if part is None:
                parts[name] = Subject("partition", at, offset, index, name)
            elif offset == part.position:
                part.stands_still(rows, 0, moved)
            elif part.moves(at, offset):
                yield part

    def _query(self, watermark: str, at: int, rows: int, moved: bool, awake: bool) -> Iterator[Subject]:
        own = self._own
        if own is None:
            self._own = Subject("query", at, watermark, waiting=rows)
            return
        if moved:
            edge = own.moves(at, watermark)
        elif awake and own.status == "IDLE":
            # The sources are active again, but the watermark has not moved yet: restart its idle timeout.
            edge = own.wakes(at)
        else:
            own.stands_still(rows, rows, False)
            return
        own.waiting = rows
        if edge:
            yield own

    def _learn_lag(self, watermark: str) -> None:
        """Update the upper bound of the watermark's delay: the smallest lag right after a move."""
        now = iso_millis(watermark, 0)
        if self._own is not None and self._newest is not None and now > 0:
            lag = max(0, self._newest - now)
            self._least_lag = lag if self._least_lag is None else min(self._least_lag, lag)

    def _pushing(self, progress: StreamingProgress, rows: int, watermark: str) -> int:
        """Return the number of rows that should advance the watermark, provided that no source holds it back."""
        newest = iso_millis(progress.event_time.get("max", ""), -1)
        if newest < 0:
            return rows if self._newest is None else 0
        self._newest = max(newest, self._newest or 0)
        return rows if newest > iso_millis(watermark, 0) + (self._least_lag or 0) else 0

    def _holders(self, *, before_move: bool = False) -> list[Subject]:
        """Return the sources that hold back the watermark.

        Args:
            before_move: whether a batch that is about to be applied shows that the watermark has moved, so that the
                rows of the batch before it are no evidence.
        """
        if self._run.watermark_policy != "min":
            return []
        return [s for s in self._sources.values() if s.stalled + (0 if before_move else s.waiting) > 0]

    def _fall_idle(
        self, now: int, timeout: int, past: View | None = None, holders: list[Subject] | None = None
    ) -> Iterator[Draft]:
        """Make subjects IDLE if their timeout has passed; each event has the time at which the timeout passed.

        Args:
            now: the time up to which timeouts have passed.
            timeout: the timeout, in milliseconds.
            past: the numbers before the current batch, which were valid when the timeouts passed; None without a batch.
            holders: the sources that held back the watermark at that time.
        """
        due = [s for s in self._subjects() if s.status == "ACTIVE" and now >= s.quiet_since + timeout]
        for subject in due:
            subject.status = "IDLE"
            self._now = max(self._now, subject.quiet_since + timeout)
        if holders is None:
            holders = [s for s in self._sources.values() if s.stalled > 0 and self._run.watermark_policy == "min"]
        due.sort(key=lambda subject: subject.quiet_since)
        # After a batch, wait until the next batch is due, because its report is more reliable than the clock.
        pause = self._batch_ended + 2 * (self._period.millis or 0)
        waiting = [s.quiet_since for s in self._subjects() if s.status == "ACTIVE"]
        self._due = max(min(waiting) + self._patience(), pause) if waiting else None
        for subject in due:
            at = subject.quiet_since + timeout
            if past is not None and at < self._batch_ended:
                yield idle(past, subject, at, holders, subject.rows_before)
            else:
                yield idle(self._view, subject, at, holders, subject.rows)

    def _subjects(self) -> Iterator[Subject]:
        yield from self._sources.values()
        for parts in self._partitions.values():
            yield from parts.values()
        if self._own is not None:
            yield self._own

    def _patience(self) -> int:
        """Return the timeout for a query that reports nothing, when only the clock can decide."""
        period = self._period.millis
        if period is None:
            return max(_UNKNOWN_PERIOD * self._timeout, _UNKNOWN_MILLIS)
        return max(self._timeout, _PERIODS * period)


def rows_late(progress: StreamingProgress) -> int:
    """Return the number of rows that a batch dropped as older than the watermark."""
    return sum(operator.num_rows_dropped_by_watermark for operator in progress.state_operators)
