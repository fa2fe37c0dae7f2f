"""Recurring reports of streaming queries: commits and watermarks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from spark_events.records.types import QueryIdle, QueryProgress, QueryStarted, QueryTerminated
from spark_events.translate.commits import Commits, committed_at, is_commit
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.queries import Queries, Run
from spark_events.translate.standing_failures import StandingFailures
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.watermarks import WatermarkTracker

__all__ = ["Streams"]


class _Tracked(NamedTuple):
    """Commits and watermark of one run."""

    commits: Commits
    watermark: WatermarkTracker


class Streams:
    """The commits and watermarks of all running queries.

    Args:
        queries: the queries of the application.
        config: the settings of the events.
        standing: the failures that stand.

    Attributes:
        runs: the commits and the watermark of each run that has not ended, by the run's id.
    """

    def __init__(self, queries: Queries, config: TranslateConfig, standing: StandingFailures) -> None:
        self._queries = queries
        self._standing = standing
        self._config = config
        self.runs: dict[str, _Tracked] = {}

    @property
    def next_due(self) -> int | None:
        """Time of the next :meth:`tick` that may emit an event, in milliseconds since the epoch."""
        return _earliest(self.runs.values())

    def started(self, record: QueryStarted) -> Iterator[Draft]:
        """Report the start of a run; first close an earlier run whose end was not recorded."""
        earlier = self._queries.of_query(record.id)
        if earlier is not None and earlier.run_id != record.run_id:
            yield from self._close(earlier.run_id)
        yield from self._queries.started(record)

    def progress(self, record: QueryProgress) -> Iterator[Draft]:
        """Report the commit and the watermark changes of a trigger."""
        progress = record.progress
        run = self._queries.run(progress.id, progress.run_id, progress.name)
        at = committed_at(record)
        if not is_commit(progress):
            yield from self._nothing_to_do(run, at, record.committed_through)
            return
        if progress.batch_id <= run.batches.last_reported:
            return
        run.batches.last_reported = progress.batch_id
        run.batches.is_running = False
        run.failed_job = None
        self._standing.committed(run.work, iso_millis(progress.timestamp, 0))
        if run.status.is_over:
            # This progress report arrived after its run ended. No later commit can be merged with it, so report it
            # immediately.
            late = Commits(run, self._config.batch_commit)
            yield from late.progress(record, at)
            yield from late.flush()
            return
        commits, watermark = self._of(run)
        yield from commits.progress(record, at)
        yield from commits.written(record.committed_through, at)
        yield from watermark.progress(progress, at)

    def idle(self, record: QueryIdle) -> Iterator[Draft]:
        """Handle a trigger without data."""
        at = iso_millis(record.timestamp, record.at)
        yield from self._nothing_to_do(self._queries.run(record.id, record.run_id), at, record.committed_through)

    def terminated(self, record: QueryTerminated) -> Iterator[Draft]:
        """Report the merged commits and then that the run ended; close the run's watermark."""
        yield from self.tick(record.at)
        ended = record.at
        run = self.runs.get(record.run_id)
        if run is not None and record.until is not None and run.watermark.lives_until(record.until):
            # An event log does not record when a run ended. Therefore, first report the events that are due before the
            # next line.
            for draft in _tick([run], record.until):
                ended = max(ended, draft.observed_ts_millis)
                yield draft
        if run is not None:
            yield from run.commits.written(record.committed_through, ended)
        yield from self._close(record.run_id)
        yield from self._queries.terminated(record, ended)
        self.runs.pop(record.run_id, None)

    def tick(self, now: int) -> Iterator[Draft]:
        """Report all events due until now, in order of their times."""
        return _tick(self.runs.values(), now)

    def clock_stepped(self, by: int) -> None:
        """Continue the idle timeouts after the wall clock was set by some milliseconds."""
        for run in self.runs.values():
            run.watermark.clock_stepped(by)

    def flush(self) -> Iterator[Draft]:
        """Report the merged commits and close all watermarks, because the application has ended."""
        for run_id in self.runs:
            yield from self._close(run_id)

    def _nothing_to_do(self, run: Run, at: int, through: int | None) -> Iterator[Draft]:
        run.batches.is_running = False
        if not run.status.is_over:
            commits, watermark = self._of(run)
            yield from commits.idle(at)
            yield from commits.written(through, at)
            yield from watermark.idle(at)

    def _close(self, run_id: str) -> Iterator[Draft]:
        run = self.runs.get(run_id)
        if run is not None:
            yield from run.commits.close()
            run.watermark.close()

    def _of(self, run: Run) -> _Tracked:
        if run.run_id not in self.runs:
            timeout = round(self._config.watermark.idle_timeout * 1000)
            self.runs[run.run_id] = _Tracked(Commits(run, self._config.batch_commit), WatermarkTracker(run, timeout))
        return self.runs[run.run_id]


def _earliest(runs: Iterable[_Tracked]) -> int | None:
    # The time is read for every record, so this function creates no lists or generators.
    earliest: int | None = None
    for run in runs:
        for due in (run.commits.next_due, run.watermark.next_due):
            if due is not None and (earliest is None or due < earliest):
                earliest = due
    return earliest


def _tick(runs: Collection[_Tracked], now: int) -> Iterator[Draft]:
    while (due := _earliest(runs)) is not None and due <= now:
        for run in runs:
            yield from run.commits.flush(due)
        for run in runs:
            yield from run.watermark.tick(due)
