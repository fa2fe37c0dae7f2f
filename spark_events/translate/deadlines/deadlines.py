"""Deadlines of the application, and the requests that ask the shim about overdue work.

The clock alone is not sufficient to report work as overdue. When a limit has passed, the sidecar asks the shim which
work is still running. The answer, an :class:`~spark_events.records.types.Inspection`, follows all records of earlier
events, so work that has ended is never reported. A driver that is paused in a debugger does not answer.

The request contains the overdue deadlines, and the answer repeats them. The shim resends its last answer to a restarted
sidecar, so that the sidecar does not report a deadline twice.

::

    clock ─▶ due? ─▶ request ─▶ shim: threads, stages, tasks ─▶ Inspection ─▶ events
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from spark_events.records.types import (
    ApplicationEnd,
    ApplicationStart,
    Inspection,
    JobEnd,
    JobStart,
    QueryIdle,
    QueryProgress,
    QueryStarted,
    QueryTerminated,
    StageWaited,
)
from spark_events.translate.commits import committed_at, is_commit
from spark_events.translate.deadlines.config import DeadlineConfig
from spark_events.translate.deadlines.edges import Edges
from spark_events.translate.deadlines.places import Place, place_of
from spark_events.translate.deadlines.runs import RunDeadlines
from spark_events.translate.deadlines.work import ApplicationDeadline, JobDeadlines, StageDeadline
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.executions import Executions
from spark_events.translate.failures import Diagnostics
from spark_events.translate.queries import Queries, Run

__all__ = ["Deadlines"]

#: Time without an answer after which the sidecar repeats a request, in milliseconds; Spark or the shim may drop an
#: answer.
_PATIENCE = 10_000
#: If an answer takes longer than this, in milliseconds, the driver was paused. All limits restart after a pause.
_STOOD_STILL = 5_000
#: A request also covers work that becomes due within this time, in milliseconds.
_SOON = 1_000
_LOG = logging.getLogger(__name__)


class Deadlines:
    """Deadlines of one application.

    Args:
        config: the limits.
        queries: the queries of the application.
        diagnostics: recognises the user's own code.
        executions: the SQL executions of the application.
        edges: the overdue deadlines of the application.

    Attributes:
        handlers: functions that convert a record to events, by the record's type. Only enabled rules have handlers.
        next_deadline: time of the next request, in milliseconds since the epoch; None: never.
    """

    def __init__(
        self,
        config: DeadlineConfig,
        queries: Queries,
        diagnostics: Diagnostics,
        executions: Executions,
        edges: Edges,
    ) -> None:
        self._config = config
        self._queries = queries
        self._diagnostics = diagnostics
        self._edges = edges
        self._backlogs = config.backlog_limits()
        self._runs: dict[str, RunDeadlines] = {}
        self._unseen = set(config.queries)
        self._jobs = JobDeadlines(self._edges, config.job, queries, executions)
        self._stage = StageDeadline(self._edges, config.resources, queries, executions)
        self._application = ApplicationDeadline(self._edges, config.application)
        self._asked: int | None = None
        self._sent: int | None = None
        self._question: dict[str, Any] | None = None
        self._asked_runs: frozenset[str] = frozenset()
        self._asked_jobs: list[int] = []
        self._forgiven = 0
        self._is_over = False
        self.next_deadline: int | None = None
        self.handlers = self._all_handlers() if config.is_on else {}

    def _all_handlers(self) -> dict[type, Callable[[Any], Iterable[Draft] | None]]:
        handlers: dict[type, Callable[[Any], Iterable[Draft] | None]] = {
            ApplicationStart: self._application_started,
            ApplicationEnd: self._application_ended,
            Inspection: self._inspected,
        }
        if self._config.watches_queries or self._backlogs:
            handlers |= {
                QueryStarted: self._query_started,
                QueryProgress: self._progress,
                QueryIdle: self._idle,
                QueryTerminated: self._terminated,
            }
        if self._config.job is not None:
            handlers |= {JobStart: self._jobs.started, JobEnd: self._jobs.ended}
        if self._config.resources is not None:
            handlers[StageWaited] = self._stage.waited
        return handlers

    def schedule(self, _: object = None) -> None:
        """Set the time of the next request; call this method after each handler."""
        moments = [at for run in self._runs.values() for at in run.due()]
        moments += [*self._jobs.due(), *self._stage.due(), *self._application.due()]
        due = None if self._is_over else min(moments, default=None)
        self.next_deadline = due if due is None or self._asked is None else max(due, self._asked + _PATIENCE)

    def tick(self, now: int) -> None:
        """Prepare a request, if one is due.

        Args:
            now: milliseconds since the epoch.
        """
        if self.next_deadline is None or now < self.next_deadline:
            return
        self._asked = self._sent = now
        self.schedule()
        soon = now + _SOON
        runs = [run_id for run_id, run in self._runs.items() if any(at <= soon for at in run.due())]
        self._asked_runs = frozenset(runs)
        self._asked_jobs = self._jobs.asked(soon)
        self._question = {"asked": now, "overdue": self._edges.dump(), "runs": runs, "jobs": self._asked_jobs}

    def clock_stepped(self, by: int, now: int) -> None:
        """Continue all limits after the wall clock was set, without a jump in the time that has passed.

        Args:
            by: milliseconds by which the clock was set ahead; negative: back.
            now: milliseconds since the epoch, after the step.
        """
        for run in self._runs.values():
            run.clock_stepped(by)
        self._jobs.clock_stepped(by, now)
        self._stage.clock_stepped(by, now)
        self._application.clock_stepped(by)
        self._edges.clock_stepped(by)
        self._forgiven = self._forgiven and self._forgiven + by
        self._asked = None if self._asked is None else self._asked + by
        self.schedule()

    def take_question(self) -> dict[str, Any] | None:
        """Return the fields of the prepared request and clear it; None without a request."""
        question, self._question = self._question, None
        return question

    def restore(self, record: Inspection) -> None:
        """Load the overdue deadlines that the preceding sidecar reported."""
        if self.handlers:
            self._edges.load(record.overdue)
            for _ in self._inspected(record):
                pass
            self.schedule()

    def _inspected(self, record: Inspection) -> Iterator[Draft]:
        # A late answer to an earlier request does not show whether the jobs of the last request are running.
        is_last = record.asked == self._sent and self._asked is not None
        asked_jobs = self._asked_jobs if is_last else []
        asked = self._asked if is_last and self._asked is not None else record.asked
        self._asked = None
        now = record.at
        if now - asked > _STOOD_STILL:
            self._forgiven = now
        threads = {thread.run_id: thread for thread in record.queries}
        for run_id, run in self._runs.items():
            thread = threads.get(run_id)
            # A run that became due after the request was sent has no stack frames yet; the next request covers the run.
            if thread is None or thread.frames or run_id in self._asked_runs or thread.continuous:
                place: Place | None = None
                if thread is not None and thread.frames:
                    stages = [s for s in record.stages if s.properties.get("sql.streaming.queryId") == run.run.query_id]
                    place = place_of(thread, stages, now, self._diagnostics.code)
                yield from run.inspected(thread, now, self._forgiven, place)
        yield from self._jobs.inspected(record, asked_jobs, self._forgiven)
        yield from self._stage.inspected(record, self._forgiven)
        yield from self._application.inspected(record, self._forgiven)

    def _application_started(self, record: ApplicationStart) -> None:
        self._application.started(record)
        self._stage.begins(record.time)

    def _application_ended(self, record: ApplicationEnd) -> Iterator[Draft]:
        if self._is_over:
            return
        self._is_over = True
        for run in self._runs.values():
            yield from run.ended(record.time)
        is_proven = record.seq == 0
        yield from self._jobs.application_ended(record.time, is_proven)
        yield from self._stage.application_ended(record.time)
        yield from self._application.ended(record.time, is_proven)
        for name in sorted(self._unseen):
            _LOG.warning(
                "events.deadline.query.%s.batch: no query of this name has started, so this limit had no effect;"
                " correct the name or remove the key",
                name,
            )

    def driver_lost(self, at: int) -> Iterator[Draft]:
        """End all deadlines, because the driver was killed; yield the events of those that were overdue."""
        if self._is_over or not self._config.is_on:
            return
        self._is_over = True
        for run in self._runs.values():
            yield from run.ended(at)
        yield from self._jobs.application_ended(at, False)
        yield from self._stage.application_ended(at)
        yield from self._application.ended(at, False)

    def _query_started(self, record: QueryStarted) -> Iterator[Draft]:
        run = self._queries.run(record.id, record.run_id, record.name)
        for earlier in [known for known in self._runs.values() if known.run.query_id == record.id]:
            if earlier.run is not run:
                yield from self._forget(earlier.run.run_id, iso_millis(record.timestamp, record.at))
        self._watch(run, record.name, iso_millis(record.timestamp, record.at))

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

    def _progress(self, record: QueryProgress) -> Iterator[Draft]:
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

    def _idle(self, record: QueryIdle) -> Iterator[Draft]:
        run = self._runs.get(record.run_id)
        if run is not None:
            yield from run.idle(iso_millis(record.timestamp, record.at))

    def _terminated(self, record: QueryTerminated) -> Iterator[Draft]:
        yield from self._forget(record.run_id, record.at)

    def _forget(self, run_id: str, at: int) -> Iterator[Draft]:
        run = self._runs.pop(run_id, None)
        if run is not None:
            yield from run.ended(at)
