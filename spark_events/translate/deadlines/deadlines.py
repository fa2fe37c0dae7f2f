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

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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
from spark_events.translate.deadlines.deadline_config import DeadlineConfig
from spark_events.translate.deadlines.edges import Edges
from spark_events.translate.deadlines.query_deadlines import QueryDeadlines
from spark_events.translate.deadlines.work_deadlines import ApplicationDeadline, JobDeadlines, StageDeadline
from spark_events.translate.draft import Draft
from spark_events.translate.executions import Executions
from spark_events.translate.failures import Diagnostics
from spark_events.translate.queries import Queries

__all__ = ["Deadlines"]

#: Time without an answer after which the sidecar repeats a request, in milliseconds; Spark or the shim may drop an
#: answer.
_PATIENCE = 10_000
#: If an answer takes longer than this, in milliseconds, the driver was paused. All limits restart after a pause.
_STOOD_STILL = 5_000
#: A request also covers work that becomes due within this time, in milliseconds.
_SOON = 1_000


class _Request(NamedTuple):
    """The last request: when it was sent, and the runs and jobs that it names."""

    sent: int | None = None
    runs: frozenset[str] = frozenset()
    jobs: Sequence[int] = ()


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
        next_due: time of the next request, in milliseconds since the epoch; None: never.
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
        self._edges = edges
        self._runs = QueryDeadlines(self._edges, config, queries, diagnostics)
        self._jobs = JobDeadlines(self._edges, config.job, queries, executions)
        self._stage = StageDeadline(self._edges, config.resources, queries, executions)
        self._application = ApplicationDeadline(self._edges, config.application)
        self._asked: int | None = None
        self._request = _Request()
        self._question: dict[str, Any] | None = None
        self._forgiven = 0
        self._is_over = False
        self.next_due: int | None = None
        self.handlers = self._all_handlers() if config.is_on else {}

    def _all_handlers(self) -> dict[type, Callable[[Any], Iterable[Draft] | None]]:
        handlers: dict[type, Callable[[Any], Iterable[Draft] | None]] = {
            ApplicationStart: self._application_started,
            ApplicationEnd: self._application_ended,
            Inspection: self._inspected,
        }
        if self._runs.has_limits:
            handlers |= {
                QueryStarted: self._runs.started,
                QueryProgress: self._runs.progress,
                QueryIdle: self._runs.idle,
                QueryTerminated: self._runs.terminated,
            }
        if self._config.job is not None:
            handlers |= {JobStart: self._jobs.started, JobEnd: self._jobs.ended}
        if self._config.resources is not None:
            handlers[StageWaited] = self._stage.waited
        return handlers

    def schedule(self, _: object = None) -> None:
        """Set the time of the next request; call this method after each handler."""
        moments = [*self._runs.due(), *self._jobs.due(), *self._stage.due(), *self._application.due()]
        due = None if self._is_over else min(moments, default=None)
        self.next_due = due if due is None or self._asked is None else max(due, self._asked + _PATIENCE)

    def tick(self, now: int) -> None:
        """Prepare a request, if one is due.

        Args:
            now: milliseconds since the epoch.
        """
        if self.next_due is None or now < self.next_due:
            return
        self._asked = now
        self.schedule()
        runs, jobs = self._runs.asked(now + _SOON), self._jobs.asked(now + _SOON)
        self._request = _Request(now, frozenset(runs), jobs)
        self._question = {"asked": now, "overdue": self._edges.dump(), "runs": runs, "jobs": jobs}

    def clock_stepped(self, by: int, now: int) -> None:
        """Continue all limits after the wall clock was set, without a jump in the time that has passed.

        Args:
            by: milliseconds by which the clock was set ahead; negative: back.
            now: milliseconds since the epoch, after the step.
        """
        self._runs.clock_stepped(by)
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
        is_last = record.asked == self._request.sent and self._asked is not None
        asked_jobs = self._request.jobs if is_last else ()
        asked = self._asked if is_last and self._asked is not None else record.asked
        self._asked = None
        if record.at - asked > _STOOD_STILL:
            self._forgiven = record.at
        yield from self._runs.inspected(record, self._request.runs, self._forgiven)
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
        yield from self._runs.application_ended(record.time)
        is_proven = record.seq == 0
        yield from self._jobs.application_ended(record.time, is_proven)
        yield from self._stage.application_ended(record.time)
        yield from self._application.ended(record.time, is_proven)
        self._runs.warn_of_unseen()

    def driver_lost(self, at: int) -> Iterator[Draft]:
        """End all deadlines, because the driver was killed; yield the events of those that were overdue."""
        if self._is_over or not self._config.is_on:
            return
        self._is_over = True
        yield from self._runs.application_ended(at)
        yield from self._jobs.application_ended(at, False)
        yield from self._stage.application_ended(at)
        yield from self._application.ended(at, False)
