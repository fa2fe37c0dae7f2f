"""The translator: routes each record to its handler, and completes the resulting events."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import msgspec

from spark_events.clocks import SYSTEM, Clocks
from spark_events.event import Attributes, AttributeValue, Event, Severity
from spark_events.records.types import (
    Added,
    ApplicationEnd,
    ApplicationStart,
    ApplicationTotals,
    BatchStarted,
    Dropped,
    Exclusion,
    ExecutorAdded,
    ExecutorRemoved,
    Inspection,
    JobEnd,
    JobStart,
    QueryIdle,
    QueryProgress,
    QueryStarted,
    QueryTerminated,
    Record,
    SqlExecutionEnd,
    SqlExecutionStart,
    StageCompleted,
    StageSubmitted,
    StageTasks,
    StageWaited,
    StatementTimedOut,
    Unknown,
    Unschedulable,
)
from spark_events.translate.added import added
from spark_events.translate.applications import Applications, named
from spark_events.translate.commits import committed_at
from spark_events.translate.config import TranslateConfig
from spark_events.translate.culprits import Culprits
from spark_events.translate.deadlines.deadlines import Deadlines
from spark_events.translate.deadlines.edges import Edges
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.drops import dropped
from spark_events.translate.executions import Executions
from spark_events.translate.executor_events import ExecutorEvents
from spark_events.translate.executors import Executors
from spark_events.translate.failures import Diagnostics
from spark_events.translate.heartbeats import Heartbeats
from spark_events.translate.incidents.incidents import Incidents
from spark_events.translate.incidents.keys import Keys
from spark_events.translate.incidents.links import Links
from spark_events.translate.jobs import Jobs
from spark_events.translate.last_failure import LastFailure
from spark_events.translate.queries import Queries
from spark_events.translate.sql import SqlExecutions
from spark_events.translate.stages import Stages
from spark_events.translate.statements import Statements
from spark_events.translate.streams import Streams
from spark_events.translate.summaries.application import ApplicationSummaries
from spark_events.translate.summaries.stages import StageSummaries

__all__ = ["Translator"]

#: Maximum plausible delay of a record, in milliseconds. A larger delay shows that the driver's clock differs from the
#: sidecar's clock.
_MOST_BEHIND = 60_000
_DIED = "its driver died without reporting its end"
_extend = dict.update
#: Types of the records that may arrive before the application's start.
_EARLY = frozenset({ExecutorAdded, ExecutorRemoved})


#: None: the record only changes the state.
_Handler: TypeAlias = Callable[[Any], Iterable[Draft] | None]
#: Time of a record in milliseconds since the epoch; 0 if the record contains none.
_Moment: TypeAlias = Callable[[Any], int]
_time: _Moment = operator.attrgetter("time")


def _timestamp(record: QueryStarted | QueryIdle) -> int:
    return iso_millis(record.timestamp, 0)


def _undated(_: object) -> int:
    return 0


def _nothing(_: object) -> None:
    pass


def _each(*handlers: _Handler) -> _Handler:
    def handle(record: Any) -> Iterator[Draft]:
        for handler in handlers:
            yield from handler(record) or ()

    return handle


class Translator:
    """Translates the records of one application to events, in order.

    Args:
        config: the settings of the events.
        first_sequence: the number of the first event; a restarted sidecar continues the preceding sidecar's numbers.
        misses_records: whether records were dropped. If so, work without an end record may have ended.
        clocks: the clocks of this process.

    Attributes:
        next_sequence: the number of the next event.
        defects: number of records and timers that caused an exception.
        dropped: number of dropped records, according to the records.
    """

    def __init__(
        self,
        config: TranslateConfig | None = None,
        first_sequence: int = 1,
        misses_records: bool = False,
        clocks: Clocks = SYSTEM,
    ) -> None:
        config = config or TranslateConfig()
        diagnostics = Diagnostics(config.failure.enrichers, config.failure.stacktrace_limit)
        executors = Executors()
        self.next_sequence = first_sequence
        self.defects = 0
        self.dropped = 0
        self._misses_records = misses_records
        # Executor records that arrived before the application's start; they are translated after the start record.
        self._early: list[ExecutorAdded | ExecutorRemoved] = []
        self._executors = executors
        self._provisional: ApplicationEnd | None = None
        self._behind = 0
        last_failure, executions, culprits = LastFailure(), Executions(), Culprits()
        self._last_failure = last_failure
        application = self._application = Applications(
            diagnostics, last_failure, config.identity.attributes, config.summary.compared
        )
        self._links = Links(config.link)
        self._keys = Keys(config.identity.key_attributes)
        self._incidents = Incidents(config.alarms, self._keys, self._links, application.event_id, config.deadline.is_on)
        self._queries = Queries(diagnostics, last_failure)
        self._streams = Streams(self._queries, config, last_failure)
        self._jobs = Jobs(
            self._queries,
            diagnostics,
            executors,
            config.streaming_jobs,
            last_failure,
            executions,
            self._incidents.watches_jobs,
            culprits,
        )
        self._sql = SqlExecutions(self._jobs, diagnostics, last_failure, culprits)
        statements = Statements(self._jobs, culprits)
        self._summaries = ApplicationSummaries(config.summary, self._application, self._queries)
        stages = StageSummaries(config.summary, executors, self._queries, executions)
        self._stages = Stages(
            self._queries, self._jobs, diagnostics, executors, config.streaming_stages, stages, executions
        )
        self._executor_events = ExecutorEvents(config.executor.max_per_minute)
        self._heartbeats = Heartbeats(
            config.heartbeat_interval, self._application, self._queries, self._jobs, executors, clocks
        )
        self._handlers: dict[type, tuple[_Moment, _Handler]] = {
            ApplicationStart: (_time, _each(self._application_started, self._heartbeats.schedule)),
            ApplicationEnd: (_time, _each(self._application_ended, self._heartbeats.schedule)),
            QueryStarted: (_timestamp, self._streams.started),
            QueryProgress: (
                committed_at,
                _each(self._summaries.progress, self._heartbeats.progress, self._streams.progress),
            ),
            QueryIdle: (_timestamp, self._streams.idle),
            QueryTerminated: (_undated, self._query_terminated),
            BatchStarted: (_undated, self._jobs.batch_started),
            JobStart: (_time, self._jobs.started),
            JobEnd: (_time, self._job_ended),
            SqlExecutionStart: (_time, _each(self._sql.started, executions.started)),
            SqlExecutionEnd: (_time, self._sql.ended),
            StatementTimedOut: (_time, statements.timed_out),
            StageSubmitted: (_time, self._stages.submitted),
            StageTasks: (_time, self._stages.tasks),
            StageCompleted: (_time, self._stages.completed),
            ApplicationTotals: (_time, self._summaries.ended),
            ExecutorAdded: (_time, _each(executors.added, self._executor_events.added)),
            ExecutorRemoved: (_time, _each(executors.removed, self._executor_events.removed)),
            Exclusion: (_time, self._executor_events.exclusion),
            Unschedulable: (_time, self._executor_events.unschedulable),
            Dropped: (_undated, self._dropped),
            Added: (_undated, lambda record: added(record, self._queries)),
        }
        edges = Edges(self._incidents, lambda: application.scope_variables)
        self.deadlines = Deadlines(config.deadline, self._queries, diagnostics, executions, edges)
        # The heartbeats read the clock, so do not ask them if they are off.
        beating = () if config.heartbeat_interval is None else (self._heartbeats,)
        self._timers: tuple[Heartbeats | Deadlines | ExecutorEvents, ...] = (
            *beating,
            self.deadlines,
            self._executor_events,
        )
        for kind, judge in self.deadlines.handlers.items():
            moment, handler = self._handlers.get(kind, (_undated, _nothing))
            # Run the deadline handler first, so that a recovery is reported before the event that ends the work.
            self._handlers[kind] = moment, _each(judge, handler, self.deadlines.schedule)

    @property
    def illegal(self) -> int:
        """Number of repeated records and of invalid status transitions."""
        return sum(part.illegal for part in (self._application, self._queries, self._jobs, self._stages))

    @property
    def next_deadline(self) -> int | None:
        """Time of the next :meth:`tick` that may emit an event, in milliseconds since the epoch."""
        due = [at for part in self._timers if (at := part.next_deadline) is not None]
        if self._streams.runs and (deadline := self._streams.next_deadline) is not None:
            due.append(deadline + self._behind)
        return min(due, default=None)

    @property
    def knows_application(self) -> bool:
        """Whether events carry the application's attributes."""
        return bool(self._application.scope_variables)

    @property
    def scope(self) -> dict[str, AttributeValue]:
        """The application's attributes and the key of its incident, for the mark of this run."""
        scope = self._application.scope_variables
        return {**scope, "incident.key": self._keys.of_application(scope)}

    @property
    def application_is_over(self) -> bool:
        """Whether the application has ended."""
        return self._application.status.is_over

    @property
    def jobs_without_start(self) -> int:
        """Number of finished jobs that are unreported because their start was not recorded."""
        return self._jobs.without_start

    def take_memory(self) -> str | None:
        """Return what the next sidecar must know besides the restored records; None if it has not changed."""
        return self._last_failure.take_memory() if self._last_failure.is_new else None

    def load_memory(self, memory: str) -> None:
        """Load the memory of the preceding sidecar."""
        self._last_failure.load_memory(memory)

    def assume_application(self, app_id: str, attempt_id: str | None) -> None:
        """Set the application's id and name, for a log that lacks the application's start."""
        self._application.assume(app_id, attempt_id)

    def translate(self, record: Record | StageWaited | Unknown) -> list[Event]:
        """Return the numbered events that a record causes; the list may be empty."""
        # Nearly all records take the short way.
        is_plain = not self._early and type(record) not in _EARLY
        return [self._event(draft) for draft in (self._handled if is_plain else self._drafts)(record)]

    def tick(self, now: int) -> list[Event]:
        """Return the time-driven events: idle watermarks, merged commits, heartbeats and counts of executors.

        Args:
            now: milliseconds since the epoch.
        """
        # The newest records may still be in Spark's listener bus.
        drafts = [*self._streams.tick(now - self._behind), *self._heartbeats.tick(now)]
        self.deadlines.tick(now)
        return [self._event(draft) for draft in (*drafts, *self._executor_events.flush(now))]

    def clock_stepped(self, by: int, now: int) -> None:
        """Continue all time limits after the wall clock was set.

        Args:
            by: milliseconds by which the clock was set ahead; negative: back.
            now: milliseconds since the epoch, after the step.
        """
        self._streams.clock_stepped(by)
        self.deadlines.clock_stepped(by, now)

    def flush(self) -> list[Event]:
        """Return merged commits and counts of executors; call this when no more records will arrive."""
        return [self._event(draft) for draft in self._merged()]

    def restore(self, record: object) -> None:
        """Apply a record that the preceding sidecar has already reported; emit no event."""
        if isinstance(record, Inspection):
            self.deadlines.restore(record)
            return
        if isinstance(record, ApplicationStart):
            self._executors.forget_number()
        with self._last_failure.unchanged():
            for draft in self._drafts(record):
                self._incidents.of(draft, {**self._application.scope_variables, **draft.attributes})

    def emit(self, draft: Draft) -> Event:
        """Return the event of a draft that no record caused, such as a report by the dispatcher."""
        return self._event(draft)

    def driver_lost(self, at: int, orderly: bool, how: str = _DIED) -> list[Event]:
        """Report that the driver exited without a record of the application's end.

        Args:
            at: milliseconds since the epoch.
            orderly: whether the JVM announced its shutdown, which proves that the driver was not killed.
            how: explanation of the loss, as a clause of the event's body.
        """
        if self._provisional is not None and not self._application.status.is_over:
            # The program had stopped Spark before the driver was killed, so the provisional end is the final one.
            stopped = msgspec.structs.replace(self._provisional, provisional=False)
            drafts = [*self._application_ended(stopped)]
        else:
            # Work that hung is over, so its incident is; the loss is an incident of its own.
            over = self.deadlines.driver_lost(at)
            drafts = [*self._merged(), *over, *self._application.lost(at, orderly, self._running(), how)]
        self._heartbeats.schedule()
        return [self._event(draft) for draft in drafts]

    def predecessor_ended(self, event: Event) -> Event:
        """Return an event about the end of an earlier run; it is no alarm if this run has succeeded since."""
        if event.severity < Severity.ERROR or self._incidents.predecessor_failed():
            return event
        attributes = Attributes({**event.attributes, "incident.role": "member"})
        body = f"{event.body}; a later run works"
        return msgspec.structs.replace(event, severity=Severity.WARN, body=body, attributes=attributes)

    def _merged(self) -> Iterator[Draft]:
        """Report what was merged or counted, because no more records will arrive."""
        yield from self._streams.flush()
        yield from self._executor_events.flush()

    def _running(self) -> list[str]:
        """Return the titles of the running queries and jobs, according to the records."""
        queries = [f"query '{title}'" for title in self._queries.running_titles()]
        # The record of a job's completion may be among the dropped records.
        return queries if self._misses_records else queries + self._jobs.running_titles()

    def _drafts(self, record: Any) -> Iterable[Draft]:
        if type(record) in _EARLY and not self.knows_application:
            self._early.append(record)
            return ()
        if not self._early:
            return self._handled(record)
        early, self._early = self._early, []
        records = [record, *early] if isinstance(record, ApplicationStart) else [*early, record]
        return itertools.chain.from_iterable(map(self._handled, records))

    def _handled(self, record: Any) -> Iterable[Draft]:
        known = self._handlers.get(type(record))
        if known is None:
            return ()
        moment_of, handler = known
        moment = moment_of(record)
        if not moment:
            return handler(record) or ()
        # Records of an event log do not pass through the shim, so they have no such delay.
        behind = record.at - moment
        self._behind = 0 if behind < 0 else behind if behind < _MOST_BEHIND else _MOST_BEHIND
        deadline = self._streams.next_deadline if self._streams.runs else None
        if deadline is None or deadline > moment:
            return handler(record) or ()
        return self._timed(moment, handler, record)

    def _timed(self, moment: int, handler: _Handler, record: Any) -> Iterator[Draft]:
        """Report the due time-driven events, then the events of the record."""
        yield from self._streams.tick(moment)
        yield from handler(record) or ()

    def _dropped(self, record: Dropped) -> Iterable[Draft]:
        self.dropped += sum(record.records.values())
        self._misses_records = True
        return dropped(record)

    def _application_started(self, record: ApplicationStart) -> Iterator[Draft]:
        self._links.started(record)
        return self._application.started(record)

    def _query_terminated(self, record: QueryTerminated) -> Iterator[Draft]:
        self._links.ui = record.ui or self._links.ui
        return self._streams.terminated(record)

    def _job_ended(self, record: JobEnd) -> Iterable[Draft]:
        self._links.ui = record.ui or self._links.ui
        return self._jobs.ended(record)

    def _application_ended(self, record: ApplicationEnd) -> Iterator[Draft]:
        yield from self._merged()
        if record.provisional:
            self._provisional = record
            return
        running = self._running()
        if not self._misses_records:
            yield from self._jobs.application_ended(record.time)
        yield from self._application.ended(record, self._queries.failed(), running)

    def _event(self, draft: Draft) -> Event:
        name, number, application = draft.name, self.next_sequence, self._application
        self.next_sequence = number + 1
        attributes = Attributes(application.scope_variables)
        # The caller does not have the dictionary yet, so changing it is safe.
        _extend(attributes, draft.attributes)
        if not draft.is_routine:
            self._summaries.observe(draft)
            _extend(attributes, self._incidents.of(draft, attributes))
        return Event(
            name=name,
            class_scope=draft.class_scope,
            body=named(draft.body, application.prefix) if draft.names_application else draft.body,
            severity=draft.severity,
            observed_ts_millis=draft.observed_ts_millis,
            event_id=application.event_id(name, draft.key),
            sequence=number,
            attributes=attributes,
        )
