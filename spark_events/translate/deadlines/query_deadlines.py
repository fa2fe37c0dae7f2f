"""Deadlines of the runs of all queries."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from spark_events.records.types import Inspection, QueryIdle, QueryProgress, QueryStarted, QueryTerminated
from spark_events.translate.commits import committed_at, is_commit
from spark_events.translate.deadlines.deadline_config import DeadlineConfig
from spark_events.translate.deadlines.edges import Edges
from spark_events.translate.deadlines.hanging_places import Place, place_of
from spark_events.translate.deadlines.run_deadlines import RunDeadlines
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.failures import Diagnostics
from spark_events.translate.queries import Queries, Run

__all__ = ["QueryDeadlines"]

_LOG = logging.getLogger(__name__)


class QueryDeadlines:
    """Deadlines of the running queries.

    Args:
        edges: the overdue deadlines of the application.
        config: the limits.
        queries: the queries of the application.
        diagnostics: recognises the user's own code.
    """

    def __init__(self, edges: Edges, config: DeadlineConfig, queries: Queries, diagnostics: Diagnostics) -> None:
        self._edges = edges
        self._config = config
        self._queries = queries
        self._diagnostics = diagnostics
        self._backlogs = config.backlog_limits()
        self._runs: dict[str, RunDeadlines] = {}
        self._unseen = set(config.queries)

    @property
    def has_limits(self) -> bool:
        """Whether any query has a limit."""
        return self._config.watches_queries or bool(self._backlogs)

    def due(self) -> list[int]:
        """Return the times at which deadlines are due, in milliseconds since the epoch."""
        return [at for run in self._runs.values() for at in run.due()]

    def asked(self, until: int) -> list[str]:
        """Return the ids of the runs with a deadline that is due until this time."""
        return [run_id for run_id, run in self._runs.items() if any(at <= until for at in run.due())]

    def started(self, record: QueryStarted) -> Iterator[Draft]:
        """Watch a run; end the deadlines of the query's earlier runs."""
        run = self._queries.run(record.id, record.run_id, record.name)
        for earlier in [known for known in self._runs.values() if known.run.query_id == record.id]:
            if earlier.run is not run:
                yield from self._forget(earlier.run.run_id, iso_millis(record.timestamp, record.at))
        self._watch(run, record.name, iso_millis(record.timestamp, record.at))

    def progress(self, record: QueryProgress) -> Iterator[Draft]:
        """Note a commit, or that a query had nothing to do."""
        progress = record.progress
        run = self._queries.run(progress.id, progress.run_id, progress.name)
        at = committed_at(record)
        if run.status.is_over:
            return
        watched = self._watch(run, progress.name, at)
        if is_commit(progress):
            yield from watched.committed(progress, iso_millis(progress.timestamp, at), at, record.seq == 0)
        else:
            yield from watched.idle(at)

    def idle(self, record: QueryIdle) -> Iterator[Draft]:
        """Note that a query had nothing to do."""
        run = self._runs.get(record.run_id)
        if run is not None:
            yield from run.idle(iso_millis(record.timestamp, record.at))

    def terminated(self, record: QueryTerminated) -> Iterator[Draft]:
        """End the deadlines of a run."""
        yield from self._forget(record.run_id, record.at)

    def inspected(self, record: Inspection, asked: Collection[str], forgiven: int) -> Iterator[Draft]:
        """Report overdue runs.

        Args:
            record: the answer of the shim.
            asked: the ids of the runs that the request named.
            forgiven: time until which all limits are forgiven, in milliseconds since the epoch.
        """
        threads = {thread.run_id: thread for thread in record.queries}
        for run_id, run in self._runs.items():
            thread = threads.get(run_id)
            # A run that became due after the request was sent has no stack frames yet; the next request covers the run.
            if thread is None or thread.frames or run_id in asked or thread.continuous:
                place: Place | None = None
                if thread is not None and thread.frames:
                    stages = [s for s in record.stages if s.properties.get("sql.streaming.queryId") == run.run.query_id]
                    place = place_of(thread, stages, record.at, self._diagnostics.code)
                yield from run.inspected(thread, record.at, forgiven, place)

    def clock_stepped(self, by: int) -> None:
        """Continue all limits after the wall clock was set by some milliseconds."""
        for run in self._runs.values():
            run.clock_stepped(by)

    def application_ended(self, at: int) -> Iterator[Draft]:
        """End the deadlines of all runs."""
        for run in self._runs.values():
            yield from run.ended(at)

    def warn_of_unseen(self) -> None:
        """Log the names in the settings that no query had."""
        for name in sorted(self._unseen):
            _LOG.warning(
                "events.deadline.query.%s.batch: no query of this name has started, so this limit had no effect;"
                " correct the name or remove the key",
                name,
            )

    def _watch(self, run: Run, name: str | None, began: int) -> RunDeadlines:
        known = self._runs.get(run.run_id)
        if known is None:
            self._unseen.discard(name or "")
            seconds = {
                "batch": self._config.queries.get(name or "", self._config.batch),
                "progress": self._config.progress,
            }
            limits = {rule: round(limit * 1000) for rule, limit in seconds.items() if limit is not None}
            known = self._runs[run.run_id] = RunDeadlines(run, self._edges, limits, self._backlogs, began)
        return known

    def _forget(self, run_id: str, at: int) -> Iterator[Draft]:
        run = self._runs.pop(run_id, None)
        if run is not None:
            yield from run.ended(at)
