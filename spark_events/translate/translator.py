"""The translator: connects the parts that translate the records of one application.

::

    record ─▶ Router ─▶ Jobs, Stages, Streams, … ─▶ drafts ─▶ EventFactory ─▶ events
"""

from __future__ import annotations

import operator
from collections.abc import Iterable

import msgspec

from spark_events.clocks import SYSTEM, Clocks
from spark_events.event import Attributes, AttributeValue, Event, Severity
from spark_events.records.types import (
    Added,
    ApplicationEnd,
    ApplicationStart,
    ApplicationTotals,
    BatchStarted,
    DataWritten,
    Dropped,
    Exclusion,
    ExecutorAdded,
    ExecutorRemoved,
    Inspection,
    JobEnd,
    JobStart,
    PipelineCommandCancelled,
    PipelineCommandEnded,
    PipelineCommandStarted,
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
    StatementFailed,
    StatementStarted,
    StatementTimedOut,
    Unknown,
    Unschedulable,
)
from spark_events.translate.added import added
from spark_events.translate.applications import Applications
from spark_events.translate.commits import committed_at
from spark_events.translate.culprits import Culprits
from spark_events.translate.deadlines.deadlines import Deadlines
from spark_events.translate.deadlines.edges import Edges
from spark_events.translate.draft import Draft, iso_millis
from spark_events.translate.drops import Drops
from spark_events.translate.endings import DIED, Endings
from spark_events.translate.event_factory import EventFactory
from spark_events.translate.executions import Executions
from spark_events.translate.executor_events import ExecutorEvents
from spark_events.translate.executors import Executors
from spark_events.translate.failures import Diagnostics
from spark_events.translate.handover import Handover
from spark_events.translate.heartbeats import Heartbeats
from spark_events.translate.incidents.incident_keys import Keys
from spark_events.translate.incidents.incidents import Incidents
from spark_events.translate.incidents.links import Links
from spark_events.translate.incidents.successes import Successes
from spark_events.translate.jobs import Jobs
from spark_events.translate.pipelines import Pipelines
from spark_events.translate.queries import Queries
from spark_events.translate.router import Handler, Moment, Router, each
from spark_events.translate.sql_executions import SqlExecutions
from spark_events.translate.stages import Stages
from spark_events.translate.standing_failures import StandingFailures
from spark_events.translate.statements import Statements
from spark_events.translate.streams import Streams
from spark_events.translate.summaries.application import ApplicationSummaries
from spark_events.translate.summaries.stage_summaries import StageSummaries
from spark_events.translate.timed_parts import TimedParts
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.writes import Writes

__all__ = ["Translator"]

_time: Moment = operator.attrgetter("time")


def _timestamp(record: QueryStarted | QueryIdle) -> int:
    return iso_millis(record.timestamp, 0)


def _undated(_: object) -> int:
    return 0


def _nothing(_: object) -> None:
    pass


def _with_ui(links: Links, handler: Handler) -> Handler:
    """Return a handler that first keeps the address of the driver's UI, which records of failures contain."""

    def handle(record: JobEnd | QueryTerminated) -> Iterable[Draft] | None:
        links.ui = record.ui or links.ui
        return handler(record)

    return handle


class Translator:
    """Translates the records of one application to events, in order.

    Args:
        config: the settings of the events.
        first_sequence: the number of the first event; a restarted sidecar continues the preceding sidecar's numbers.
        misses_records: whether records were dropped. If so, work without an end record may have ended.
        clocks: the clocks of this process.

    Attributes:
        defects: number of records and timers that caused an exception.
        deadlines: asks the driver about overdue work.
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
        executors, standing, culprits = Executors(), StandingFailures(), Culprits()
        pipelines = Pipelines(diagnostics)
        application = Applications(
            diagnostics, standing, pipelines, config.identity.attributes, config.summary.compared
        )
        links, keys = Links(config.link), Keys(config.identity.key_attributes)
        successes = Successes(config.heartbeat_interval)
        incidents = Incidents(config.alarms, keys, links, application.event_id, config.deadline.is_on, successes)
        queries = Queries(diagnostics, standing, pipelines)
        executions = Executions(queries, pipelines)
        streams = Streams(queries, config, standing)
        jobs = Jobs(
            queries,
            diagnostics,
            executors,
            config.streaming_jobs,
            standing,
            executions,
            incidents.watches_jobs,
            culprits,
        )
        sql = SqlExecutions(jobs, executions, diagnostics, standing, culprits)
        writes = Writes(executions, queries, config.data_written, config.streams_written)
        statements = Statements(jobs, executions, culprits, diagnostics, standing, pipelines)
        summaries = ApplicationSummaries(config.summary, application, queries)
        of_stages = StageSummaries(config.summary, executors, queries, executions)
        stages = Stages(queries, jobs, diagnostics, executors, config.streaming_stages, of_stages, executions)
        executor_events = ExecutorEvents(config.executor.max_per_minute, stages.attributes)
        heartbeats = Heartbeats(config.heartbeat_interval, application, queries, jobs, executors, clocks)
        edges = Edges(incidents, lambda: application.scope_variables)
        deadlines = Deadlines(config.deadline, queries, diagnostics, executions, edges)
        beating = None if config.heartbeat_interval is None else heartbeats
        timed, drops = TimedParts(streams, beating, deadlines, executor_events), Drops(misses_records)
        endings = Endings(application, queries, jobs, deadlines, heartbeats, timed, drops)
        handlers: dict[type, tuple[Moment, Handler]] = {
            ApplicationStart: (
                _time,
                each(links.started, pipelines.application_started, application.started, heartbeats.schedule),
            ),
            ApplicationEnd: (_time, each(endings.ended, heartbeats.schedule)),
            QueryStarted: (_timestamp, streams.started),
            QueryProgress: (committed_at, each(summaries.progress, heartbeats.progress, streams.progress)),
            QueryIdle: (_timestamp, streams.idle),
            QueryTerminated: (_undated, _with_ui(links, streams.terminated)),
            BatchStarted: (_undated, jobs.batch_started),
            JobStart: (_time, jobs.started),
            JobEnd: (_time, _with_ui(links, jobs.ended)),
            SqlExecutionStart: (_time, each(sql.started, executions.started)),
            SqlExecutionEnd: (_time, sql.ended),
            DataWritten: (_time, writes.written),
            StatementStarted: (_time, statements.started),
            StatementTimedOut: (_time, statements.timed_out),
            StatementFailed: (_time, statements.failed),
            PipelineCommandStarted: (_time, pipelines.started),
            PipelineCommandEnded: (_time, pipelines.ended),
            PipelineCommandCancelled: (_time, pipelines.cancelled),
            StageSubmitted: (_time, stages.submitted),
            StageTasks: (_time, stages.tasks),
            StageCompleted: (_time, stages.completed),
            ApplicationTotals: (_time, summaries.ended),
            ExecutorAdded: (_time, each(executors.added, executor_events.added)),
            ExecutorRemoved: (_time, each(executors.removed, executor_events.removed)),
            Exclusion: (_time, executor_events.exclusion),
            Unschedulable: (_time, executor_events.unschedulable),
            Dropped: (_undated, drops.dropped),
            Added: (_undated, lambda record: added(record, queries)),
        }
        for kind, judge in deadlines.handlers.items():
            moment, handler = handlers.get(kind, (_undated, _nothing))
            # Run the deadline handler first, so that a recovery is reported before the event that ends the work.
            handlers[kind] = moment, each(judge, handler, deadlines.schedule)
        self.defects = 0
        self.deadlines = deadlines
        self._application = application
        self._jobs = jobs
        self._executors = executors
        self._incidents = incidents
        self._keys = keys
        self._handover = Handover(standing, pipelines)
        self._checked = (application, queries, jobs, stages)
        self._drops = drops
        self._timed = timed
        self._endings = endings
        self._events = EventFactory(application, incidents, (summaries, pipelines), first_sequence)
        self._event_of = self._events.of
        self._router = Router(handlers, timed, lambda: bool(application.scope_variables))

    @property
    def next_sequence(self) -> int:
        """Number of the next event."""
        return self._events.next_sequence

    @property
    def dropped(self) -> int:
        """Number of lost records, according to the records."""
        return self._drops.count

    @property
    def illegal(self) -> int:
        """Number of repeated records and of invalid status transitions."""
        return sum(part.illegal for part in self._checked)

    @property
    def next_due(self) -> int | None:
        """Time of the next :meth:`tick` that may emit an event, in milliseconds since the epoch."""
        return self._timed.next_due

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
        return self._handover.take()

    def load_memory(self, memory: str) -> None:
        """Load the memory of the preceding sidecar."""
        self._handover.load(memory)

    def assume_application(self, app_id: str, attempt_id: str | None) -> None:
        """Set the application's id and name, for a log that lacks the application's start."""
        self._application.assume(app_id, attempt_id)

    def translate(self, record: Record | StageWaited | Unknown) -> list[Event]:
        """Return the numbered events that a record causes; the list may be empty."""
        # This method runs for every record, and most records cause one event or none, so it needs no map object.
        event_of = self._event_of
        events: list[Event] = []
        for draft in self._router.drafts(record):
            events.append(event_of(draft))
        return events

    def tick(self, now: int) -> list[Event]:
        """Return the time-driven events: idle watermarks, merged commits, heartbeats and counts of executors.

        Args:
            now: milliseconds since the epoch.
        """
        return [*map(self._event_of, self._timed.tick(now))]

    def clock_stepped(self, by: int, now: int) -> None:
        """Continue all time limits after the wall clock was set.

        Args:
            by: milliseconds by which the clock was set ahead; negative: back.
            now: milliseconds since the epoch, after the step.
        """
        self._timed.clock_stepped(by, now)

    def flush(self) -> list[Event]:
        """Return merged commits and counts of executors; call this when no more records will arrive."""
        return [*map(self._event_of, self._timed.flush())]

    def restore(self, record: object) -> None:
        """Apply a record that the preceding sidecar has already reported; emit no event."""
        if isinstance(record, Inspection):
            self.deadlines.restore(record)
            return
        if isinstance(record, ApplicationStart):
            self._executors.forget_number()
        with self._handover.unchanged():
            for draft in self._router.drafts(record):
                self._events.restore(draft)

    def emit(self, draft: Draft) -> Event:
        """Return the event of a draft that no record caused, such as a report by the dispatcher."""
        return self._events.of(draft)

    def driver_lost(self, at: int, orderly: bool, how: str = DIED) -> list[Event]:
        """Report that the driver exited without a record of the application's end.

        Args:
            at: milliseconds since the epoch.
            orderly: whether the JVM announced its shutdown, which proves that the driver was not killed.
            how: explanation of the loss, as a clause of the event's body.
        """
        return [*map(self._event_of, self._endings.driver_lost(at, orderly, how))]

    def predecessor_ended(self, event: Event) -> Event:
        """Return an event about the end of an earlier run; it is no alarm if this run has succeeded since."""
        if event.severity < Severity.ERROR or self._incidents.predecessor_failed():
            return event
        attributes = Attributes({**event.attributes, "incident.role": "member"})
        body = f"{event.body}; a later run works"
        return msgspec.structs.replace(event, severity=Severity.WARN, body=body, attributes=attributes)
