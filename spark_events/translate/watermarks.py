"""Who is idle, and who holds the watermark back.

The meaning is that of Flink's watermark status (FLIP-180): IDLE and ACTIVE are about watermarks. A
query is IDLE when its watermark has stood still for ``idle-timeout``, and ACTIVE when it moves, or when
one of its idle sources brings rows again. Spark tells nothing of a source's own watermark, so a source,
or one partition of it, is IDLE when it has brought nothing new for that long. Only edges are events.

Standing still counts only as far as Spark has looked for data: the time of a batch that runs is nobody's
idleness, nor is the pause before a trigger that fires seldom. Where Spark says nothing at all, time itself
decides, but with more patience.

Time is what the records say and what :meth:`WatermarkTracker.tick` is told, so a replay of an event log
sees the same edges at the same moments as a live run.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.bridge.progress import Progress, SourceProgress
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.offsets import partitions
from spark_events.translate.queries import Run
from spark_events.translate.triggers import TriggerPeriod
from spark_events.translate.watermark_events import Subject, View, active, idle

__all__ = ["WatermarkTracker"]

#: Without a word of Spark so many periods of the trigger must pass as well.
_PERIODS = 3
#: Until the period is known, patience is so much longer, and at least ten minutes.
_UNKNOWN_PERIOD = 10
_UNKNOWN_MILLIS = 600_000
#: Clocks are put right by less all the time.
_SET_BACK_MILLIS = 1_000


class WatermarkTracker:
    """The watermark of one run of one query, its sources and their partitions.

    Args:
        run: whose it is; its policy of several watermarks decides who can hold it back.
        idle_timeout_millis: how long something must stand still to be IDLE.
    """

    def __init__(self, run: Run, idle_timeout_millis: int) -> None:
        self._run = run
        self._timeout = max(1, idle_timeout_millis)
        self._period = TriggerPeriod()
        self._view = View(run)
        self._batch = -1
        # Edges never go back in time, whatever order the records come in; unless the clock itself does.
        self._now = 0
        self._heard = 0
        self._batch_ended = 0
        self._newest: int | None = None
        self._least_lag: int | None = None
        self._own: Subject | None = None
        self._sources: dict[int, Subject] = {}
        self._partitions: dict[int, dict[str, Subject]] = {}
        self._deadline: int | None = None
        self._closed = False

    @property
    def next_deadline(self) -> int | None:
        """When the next subject will be IDLE, if nothing moves; milliseconds since the epoch."""
        return None if self._run.batch_runs else self._deadline

    def close(self) -> None:
        """The run is over, or another one has taken its place."""
        self._closed, self._deadline = True, None

    def progress(self, progress: Progress, at: int) -> Iterator[Draft]:
        """What a trigger says: everything that has moved, what it makes ACTIVE and what it shows to be IDLE.

        Args:
            progress: of a batch that was executed.
            at: when it was committed, in milliseconds since the epoch.
        """
        watermark = progress.event_time.get("watermark")
        if watermark is None or self._closed or progress.batch_id <= self._batch:
            # Idleness is about watermarks: a query without one has none. What is told late is no news.
            return
        self._batch = progress.batch_id
        began = iso_millis(progress.timestamp, at)
        self._hear(began, at)
        at = max(at, self._now)
        self._period.word(began)
        self._batch_ended = at
        moved = self._own is None or watermark != self._own.position
        if moved:
            self._learn_lag(watermark)
        rows = sum(source.num_input_rows for source in progress.sources)
        pushing = self._pushing(progress, rows, watermark)
        self._view.take(watermark, self._newest, rows_late(progress))
        woken: list[Subject] = []
        for index, source in enumerate(progress.sources):
            woken += self._source(index, source, at, rows, pushing, moved)
        awake = any(subject.kind == "source" for subject in woken)
        woken += self._query(watermark, at, rows, moved, awake)
        # Spark looked when the batch began; what arrived while it ran is in the next one.
        yield from self._fall_idle(began, self._timeout)
        for subject in woken:
            yield active(self._view, subject, at)

    def idle(self, at: int) -> Iterator[Draft]:
        """Spark says that it has looked and there was nothing to do; it is no edge by itself."""
        if not self._closed:
            self._hear(at, at)
            self._period.word(at)
            yield from self._fall_idle(at, self._timeout)

    def tick(self, now: int) -> Iterator[Draft]:
        """Time has passed: what has stood still for long enough is IDLE."""
        deadline = self.next_deadline
        if deadline is not None and now >= deadline:
            yield from self._fall_idle(now, self._patience())

    def lives_until(self, moment: int) -> bool:
        """Whether the query may have run until then, though it said nothing more: less than two triggers passed."""
        period = self._period.millis
        return period is not None and moment - self._heard <= 2 * period

    def _hear(self, began: int, ended: int) -> None:
        """What a query says comes in the order in which it happened: where its times do not, the clock was set back."""
        if began < self._heard - _SET_BACK_MILLIS:
            self._view.clocks += 1
            self._now, self._batch_ended = min(self._now, began), min(self._batch_ended, began)
            for subject in self._subjects():
                subject.set_back(began)
        self._heard = ended

    def _source(
        self, index: int, source: SourceProgress, at: int, rows: int, pushing: int, moved: bool
    ) -> Iterator[Subject]:
        """Takes in what a source has brought; yields what is thereby ACTIVE again."""
        self._view.descriptions[index] = source.description
        end = bytes(source.end_offset)
        subject = self._sources.get(index)
        if subject is None:
            subject = self._sources[index] = Subject("source", at, end, index)
        # Where Spark cannot tell which source the rows are from, the offsets still tell who moved.
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
            # Its sources are back, its watermark is where it was: the wait begins anew.
            edge = own.wakes(at)
        else:
            own.stands_still(rows, rows, False)
            return
        own.waiting = rows
        if edge:
            yield own

    def _learn_lag(self, watermark: str) -> None:
        """The watermark's delay is at most what it lags behind when it has just moved."""
        now = iso_millis(watermark, 0)
        if self._own is not None and self._newest is not None and now > 0:
            lag = max(0, self._newest - now)
            self._least_lag = lag if self._least_lag is None else min(self._least_lag, lag)

    def _pushing(self, progress: Progress, rows: int, watermark: str) -> int:
        """How many rows of a batch must move the watermark, unless somebody holds it back."""
        newest = iso_millis(progress.event_time.get("max", ""), -1)
        if newest < 0:
            return rows if self._newest is None else 0
        self._newest = max(newest, self._newest or 0)
        return rows if newest > iso_millis(watermark, 0) + (self._least_lag or 0) else 0

    def _fall_idle(self, now: int, timeout: int) -> Iterator[Draft]:
        """What has stood still until now, for so long, is IDLE since its time was up."""
        due = [s for s in self._subjects() if s.status == "ACTIVE" and now >= s.quiet_since + timeout]
        for subject in due:
            subject.status = "IDLE"
            self._now = max(self._now, subject.quiet_since + timeout)
        holders = [s for s in self._sources.values() if s.stalled > 0 and self._run.watermark_policy == "min"]
        due.sort(key=lambda subject: subject.quiet_since)
        # A batch that has just ended is given the time to be followed by the next, which tells more.
        pause = self._batch_ended + 2 * (self._period.millis or 0)
        waiting = [s.quiet_since for s in self._subjects() if s.status == "ACTIVE"]
        self._deadline = max(min(waiting) + self._patience(), pause) if waiting else None
        for subject in due:
            yield idle(self._view, subject, subject.quiet_since + timeout, holders)

    def _subjects(self) -> Iterator[Subject]:
        yield from self._sources.values()
        for parts in self._partitions.values():
            yield from parts.values()
        if self._own is not None:
            yield self._own

    def _patience(self) -> int:
        """How long silence must last, where nothing but the clock tells."""
        period = self._period.millis
        if period is None:
            return max(_UNKNOWN_PERIOD * self._timeout, _UNKNOWN_MILLIS)
        return max(self._timeout, _PERIODS * period)


def rows_late(progress: Progress) -> int:
    """Rows that a batch has dropped because the watermark had passed them."""
    return sum(operator.num_rows_dropped_by_watermark for operator in progress.state_operators)
