"""Deadlines of streaming queries: batches, progress, and the backlog of sources.

Spark has no callback for the start of a trigger. Therefore the time is measured from the latest of three moments: the
query's start, its last commit or idle report, and the end of the last pause of its thread. The shim samples the thread
to find the pauses. A query that waits for its next trigger is on time, whatever the interval. With `availableNow` and
`once`, triggers follow each other without a pause. The time of a real-time batch includes its planned duration, which
no public interface of Spark provides. Continuous queries have no deadline for batches or progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spark_events.records.query_progress import StreamingProgress
from spark_events.records.types import QueryThread
from spark_events.translate.deadlines.backlog_deadlines import BacklogDeadlines, BacklogLimit
from spark_events.translate.deadlines.edges import Edges, Work
from spark_events.translate.deadlines.hanging_places import Place
from spark_events.translate.draft import Draft
from spark_events.translate.queries import Run

__all__ = ["RunDeadlines"]


class RunDeadlines:
    """The deadlines of one run of one query.

    Args:
        run: the run.
        edges: the overdue deadlines of the application.
        limits: milliseconds by rule: ``batch``, ``progress``; a missing rule is disabled.
        backlogs: limits of backlogs, by rule; a missing rule is disabled.
        began: when the run began, in milliseconds since the epoch.
    """

    def __init__(
        self, run: Run, edges: Edges, limits: Mapping[str, int], backlogs: Mapping[str, BacklogLimit], began: int
    ) -> None:
        self.run = run
        self._edges = edges
        self._limits = limits
        self._backlogs = BacklogDeadlines(run, edges, backlogs)
        self._since = began
        self._episodes = 0
        self._is_continuous = False

    def due(self) -> Iterator[int]:
        """Yield the times at which events are due without further records."""
        if not self._is_continuous:
            for rule, limit in self._limits.items():
                if (at := self._edges.due(self._name(rule), self._since, limit)) is not None:
                    yield at
        yield from self._backlogs.due()

    def clock_stepped(self, by: int) -> None:
        """Move all times by the step of the wall clock, in milliseconds."""
        self._since += by
        self._backlogs.clock_stepped(by)

    def committed(self, progress: StreamingProgress, began: int, at: int, proven: bool) -> Iterator[Draft]:
        """Apply a commit; yield the events of deadlines that have recovered.

        Args:
            progress: the progress of the batch.
            began: start time of its trigger.
            at: time of its commit.
            proven: whether the record is from an event log, whose times prove how long the trigger took.
        """
        if proven:
            self._since = max(self._since, began)
            yield from self._judge(at, None)
        yield from self._recovered(at, f"committed batch {progress.batch_id}")
        self._since, self._episodes = max(self._since, at), 0
        yield from self._backlogs.committed(progress, at, proven)

    def idle(self, at: int) -> Iterator[Draft]:
        """Apply a trigger without data."""
        yield from self._recovered(at, "found no new data")
        self._since = max(self._since, at)

    def ended(self, at: int) -> Iterator[Draft]:
        """End all deadlines, because the run has ended; yield the events of overdue deadlines that this closes."""
        yield from self._recovered(at, "ended")
        yield from self._backlogs.ended(at)

    def inspected(self, thread: QueryThread | None, now: int, forgiven: int, place: Place | None) -> Iterator[Draft]:
        """Apply a sample of the query's thread; yield the events that are due.

        Args:
            thread: the thread; None if the run has ended.
            now: when the sample was taken.
            forgiven: end of the driver's last pause; the time before this moment does not count.
            place: where the query hangs.
        """
        self._is_continuous = thread is not None and thread.continuous
        self._since = max(self._since, forgiven, now if thread is None else thread.busy_since or now)
        if thread is None:
            # The query has ended, but the record of its end was lost.
            yield from self.ended(now)
        elif not self._is_continuous:
            yield from self._judge(now, place)
        yield from self._backlogs.inspected(now, forgiven)

    def _judge(self, now: int, place: Place | None) -> Iterator[Draft]:
        where = "" if place is None else f": {place.text}"
        attributes = {} if place is None else place.attributes
        for rule, limit in self._limits.items():
            work = self._work(rule)._replace(attributes={**self._attributes, **attributes})
            missing = self._batch if rule == "batch" else "a batch, nor reported itself idle,"
            sentence = f"{self.run.subject} has not committed {missing}"
            yield from self._edges.judge(work, limit, self._since, now, sentence, where)

    def _recovered(self, at: int, how: str) -> Iterator[Draft]:
        for rule in self._limits:
            if self._edges.since(self._name(rule)) is not None:
                self._episodes += 1
                yield from self._edges.close(self._work(rule), at, f"{self.run.subject} {how}")

    def _work(self, rule: str) -> Work:
        next_batch = self.run.batches.last_committed + 1
        key = (self.run.run_id, next_batch, self._episodes)
        return Work(self._name(rule), rule, key, self._attributes)

    def _name(self, rule: str) -> str:
        return f"{rule}|{self.run.run_id}|"

    @property
    def _batch(self) -> str:
        batch = self.run.batches.under_way
        return "its first batch" if batch is None else f"batch {batch}"

    @property
    def _attributes(self) -> dict[str, str | int | float | bool | None]:
        return {**self.run.scope_variables, "spark.batch.id": self.run.batches.under_way}
