"""What runs of queries do: commits, and the movement of their watermarks."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.bridge.records import QueryIdle, QueryProgress, QueryTerminated
from spark_events.translate.commits import Commits, committed_at, is_commit
from spark_events.translate.config import TranslateConfig
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.queries import Queries, Run
from spark_events.translate.watermarks import WatermarkTracker

__all__ = ["Streams"]


class Streams:
    """The commits and watermarks of every run that is under way.

    Args:
        queries: whose runs they are.
        config: what is reported of them.
    """

    def __init__(self, queries: Queries, config: TranslateConfig) -> None:
        self._queries = queries
        self._config = config
        self._commits: dict[str, Commits] = {}
        self._watermarks: dict[str, WatermarkTracker] = {}

    @property
    def next_deadline(self) -> int | None:
        """When :meth:`tick` has something to do, if no record comes before; milliseconds since the epoch."""
        deadlines = [commits.next_deadline for commits in self._commits.values()]
        deadlines += [watermark.next_deadline for watermark in self._watermarks.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def held_record(self) -> int | None:
        """The oldest record whose event is still to come."""
        held = [commits.held_record for commits in self._commits.values()]
        return min((record for record in held if record is not None), default=None)

    def progress(self, record: QueryProgress) -> Iterator[Draft]:
        """A trigger of a query."""
        progress = record.progress
        run = self._queries.run(progress.id, progress.run_id, progress.name)
        commits, watermark = self._of(run)
        at = committed_at(record)
        if not is_commit(progress):
            yield from watermark.idle(at)
            return
        yield from commits.progress(record, at)
        watermark.policy = run.watermark_policy
        yield from watermark.progress(progress, at)

    def idle(self, record: QueryIdle) -> Iterator[Draft]:
        """A query says that it has nothing to do."""
        _, watermark = self._of(self._queries.run(record.id, record.run_id))
        yield from watermark.idle(iso_millis(record.timestamp, record.at))

    def terminated(self, record: QueryTerminated) -> Iterator[Draft]:
        """A run is over: what was held is reported before that, and its watermark moves no more."""
        commits = self._commits.pop(record.run_id, None)
        self._watermarks.pop(record.run_id, None)
        if commits is not None:
            yield from commits.flush()
        yield from self._queries.terminated(record)

    def tick(self, now: int) -> Iterator[Draft]:
        """Time has passed."""
        for commits in self._commits.values():
            yield from commits.flush(now)
        for watermark in self._watermarks.values():
            yield from watermark.tick(now)

    def flush(self) -> Iterator[Draft]:
        """The application is over: nothing is held back any more."""
        for commits in self._commits.values():
            yield from commits.flush()

    def _of(self, run: Run) -> tuple[Commits, WatermarkTracker]:
        if run.run_id not in self._commits:
            self._commits[run.run_id] = Commits(run, self._config.batch_commit)
            timeout = round(self._config.watermark.idle_timeout * 1000)
            self._watermarks[run.run_id] = WatermarkTracker(run, timeout)
        return self._commits[run.run_id], self._watermarks[run.run_id]
