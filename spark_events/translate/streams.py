"""Recurring reports of streaming queries: commits and watermarks."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.bridge.records import QueryIdle, QueryProgress, QueryStarted, QueryTerminated
from spark_events.translate.commits import Commits, committed_at, is_commit
from spark_events.translate.config import TranslateConfig
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.queries import Queries, Run
from spark_events.translate.watermarks import WatermarkTracker

__all__ = ["Streams"]


class Streams:
    """The commits and watermarks of all running queries.

    Args:
        queries: the queries of the application.
        config: the settings of the events.
    """

    def __init__(self, queries: Queries, config: TranslateConfig) -> None:
        self._queries = queries
        self._config = config
        self._commits: dict[str, Commits] = {}
        self._watermarks: dict[str, WatermarkTracker] = {}

    @property
    def next_deadline(self) -> int | None:
        """Time of the next :meth:`tick` that may emit an event, in milliseconds since the epoch."""
        # This property is read for every record, so it creates no lists or generators.
        earliest: int | None = None
        for run_id, commits in self._commits.items():
            for deadline in (commits.next_deadline, self._watermarks[run_id].next_deadline):
                if deadline is not None and (earliest is None or deadline < earliest):
                    earliest = deadline
        return earliest

    @property
    def held_record(self) -> int | None:
        """Number of the oldest record with a held event."""
        oldest: int | None = None
        for commits in self._commits.values():
            record = commits.held_record
            if record is not None and (oldest is None or record < oldest):
                oldest = record
        return oldest

    def started(self, record: QueryStarted) -> Iterator[Draft]:
        """Report the start of a run; first close an earlier run whose end was not recorded."""
        earlier = self._queries.of_query(record.id)
        if earlier is not None and earlier.run_id != record.run_id:
            yield from self._close(earlier)
        yield from self._queries.started(record)

    def progress(self, record: QueryProgress) -> Iterator[Draft]:
        """Report the commit and the watermark changes of a trigger."""
        progress = record.progress
        run = self._queries.run(progress.id, progress.run_id, progress.name)
        at = committed_at(record)
        if not is_commit(progress):
            yield from self._nothing_to_do(run, at)
            return
        if not run.reported.add(progress.batch_id):
            return
        run.batch_runs = False
        if run.status.is_over:
            # This progress report arrived after its run ended. No later commit can be merged with it, so report it
            # immediately.
            late = Commits(run, self._config.batch_commit)
            yield from late.progress(record, at)
            yield from late.flush()
            return
        commits, watermark = self._of(run)
        yield from commits.progress(record, at)
        yield from watermark.progress(progress, at)

    def idle(self, record: QueryIdle) -> Iterator[Draft]:
        """Handle a trigger without data."""
        at = iso_millis(record.timestamp, record.at)
        yield from self._nothing_to_do(self._queries.run(record.id, record.run_id), at)

    def terminated(self, record: QueryTerminated) -> Iterator[Draft]:
        """Report the held events and then that the run ended; close the run's watermark."""
        yield from self.tick(record.at)
        ended = record.at
        watermark = self._watermarks.get(record.run_id)
        if watermark is not None and record.until is not None and watermark.lives_until(record.until):
            # An event log does not record when a run ended. Therefore, first report the events that are due before the
            # next line.
            for draft in self._tick(self._commits[record.run_id], watermark, record.until):
                ended = max(ended, draft.observed_ts_millis)
                yield draft
        yield from self._close(self._queries.run(record.id, record.run_id))
        yield from self._queries.terminated(record, ended)
        self._commits.pop(record.run_id, None)
        self._watermarks.pop(record.run_id, None)

    def tick(self, now: int) -> Iterator[Draft]:
        """Report all events due until now, in order of their deadlines."""
        while (deadline := self.next_deadline) is not None and deadline <= now:
            for commits in self._commits.values():
                yield from commits.flush(deadline)
            for watermark in self._watermarks.values():
                yield from watermark.tick(deadline)

    def _tick(self, commits: Commits, watermark: WatermarkTracker, now: int) -> Iterator[Draft]:
        """Report all events of one run that are due until now."""
        while True:
            due = [d for d in (commits.next_deadline, watermark.next_deadline) if d is not None and d <= now]
            if not due:
                return
            yield from commits.flush(min(due))
            yield from watermark.tick(min(due))

    def flush(self) -> Iterator[Draft]:
        """Report the held events and close all watermarks, because the application has ended."""
        for commits in self._commits.values():
            yield from commits.flush()
        for watermark in self._watermarks.values():
            watermark.close()

    def _nothing_to_do(self, run: Run, at: int) -> Iterator[Draft]:
        run.batch_runs = False
        if not run.status.is_over:
            commits, watermark = self._of(run)
            yield from commits.idle(at)
            yield from watermark.idle(at)

    def _close(self, run: Run) -> Iterator[Draft]:
        if run.run_id in self._commits:
            yield from self._commits[run.run_id].flush()
            self._watermarks[run.run_id].close()

    def _of(self, run: Run) -> tuple[Commits, WatermarkTracker]:
        if run.run_id not in self._commits:
            self._commits[run.run_id] = Commits(run, self._config.batch_commit)
            timeout = round(self._config.watermark.idle_timeout * 1000)
            self._watermarks[run.run_id] = WatermarkTracker(run, timeout)
        return self._commits[run.run_id], self._watermarks[run.run_id]
