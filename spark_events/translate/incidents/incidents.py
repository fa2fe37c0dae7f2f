"""Decide which event of one failure is the alarm.

A failed stage fails its job, its SQL execution, its query and its application. The queue in this module holds events,
in order, until the role of each failure is decided. A role is decided when the level above reports its failure, when
the program continues with other work, or when the settle time ends::

    stage ──▶ job ──▶ SQL execution, enrichment ──▶ query ──▶ application
    INFO      held     held                          held       decided at once

The failure of the highest level becomes the alarm (ERROR); the failures below it become consequences (INFO). A failure
that the level above survives becomes WARN. A decision is never changed.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import zip_longest

import msgspec

from spark_events.event import Attributes, Event, Severity
from spark_events.translate.incidents.config import IncidentConfig
from spark_events.translate.incidents.links import Links
from spark_events.translate.incidents.recoveries import incident_key
from spark_events.translate.last_failure import same_cause

__all__ = ["Incidents"]

_WARN = Severity.WARN.number
_STATUS = "JobStatusChangeEvent"
_FAILURE = "JobFailureEvent"
_STAGE, _JOB, _SQL, _QUERY, _APPLICATION = range(1, 6)
_LEVELS = {"stage": _STAGE, "job": _JOB, "sql": _SQL, "query": _QUERY, "application": _APPLICATION}
_RUN = "spark.streaming.query.run_id"
_EXECUTION = "spark.sql.execution.id"
#: Longest time between a failure and the failure at the level above in the same incident, in milliseconds.
_MEMORY = 60_000
_MOST_REMEMBERED = 256
#: Maximum number of queued events. Beyond it, all roles are decided immediately, so that the released events fit into a
#: mailbox.
_MOST_WAITING = 256

_ALARM, _CONSEQUENCE, _SURVIVED = "alarm", "consequence", "survived"
_SEVERITIES = {_ALARM: Severity.ERROR, _CONSEQUENCE: Severity.INFO, _SURVIVED: Severity.WARN}


@dataclasses.dataclass(eq=False, slots=True)
class _Failed:
    """One failed stage, job, execution, query or application.

    Attributes:
        run: id of the run of the streaming query that the failure belongs to.
        at: when the failure was reported; milliseconds since the epoch.
        fallback: the outcome if the role is still undecided when the settle time ends.
        outcome: the role of the failure's event; None while the role is undecided.
        alarmed: whether an event of the same incident is already an alarm.
        claimed: whether a failure at a higher level already includes this failure.
    """

    id: str
    key: str
    level: int
    cause: str
    run: str | None
    execution: str | None
    at: int
    fallback: str
    outcome: str | None = None
    alarmed: bool = False
    claimed: bool = False

    def decide(self, outcome: str) -> None:
        """Set the role of the failure's event, once; ignore later calls."""
        if self.outcome is None:
            self.outcome = outcome
            self.alarmed = outcome == _ALARM

    def includes(self, lower: _Failed) -> bool:
        """Return whether a failure at a lower level belongs to this failure."""
        if lower.claimed or lower.level >= self.level:
            return False
        is_open = lower.outcome is None
        if self.level == _JOB:
            # Spark reports the end of a job immediately after the failed stage of the job.
            return (lower.run, lower.execution) == (self.run, self.execution)
        if self.level == _SQL:
            # Only an enrichment follows the failure of its jobs; a SQL execution with a failed job is not reported.
            return not self.cause and lower.run == self.run
        if self.level == _QUERY:
            if lower.run == self.run:
                return is_open or same_cause(lower.cause, self.cause)
            # A job of foreachBatch may run on a thread without the query's properties. A job that is already an alarm
            # may be unrelated, and a query that fails must have its own alarm.
            return is_open and lower.run is None and same_cause(lower.cause, self.cause)
        return is_open or same_cause(lower.cause, self.cause)


class _Waiting(msgspec.Struct, gc=False):
    """Event in the queue.

    ``is_alarm`` is False for a status change that only repeats the failure event that follows.
    """

    event: Event
    record: int
    failed: _Failed | None
    is_alarm: bool


class Incidents:
    """Queue that holds failure events, and all later events, until the roles are decided.

    Args:
        config: the settle time.
        links: adds links to failure events.

    Attributes:
        held: the events in the queue.
    """

    def __init__(self, config: IncidentConfig, links: Links) -> None:
        self._settle = round(config.settle * 1000)
        self._links = links
        self.held: deque[_Waiting] = deque()
        self._recent: deque[_Failed] = deque(maxlen=_MOST_REMEMBERED)

    @property
    def held_record(self) -> int | None:
        """Number of the oldest record with an event in this queue."""
        return min((held.record for held in self.held), default=0) or None

    @property
    def next_deadline(self) -> int | None:
        """Time of the next :meth:`tick` that decides a role; milliseconds since the epoch."""
        if not self.held:
            return None
        return min((failed.at + self._settle for failed in self._undecided()), default=None)

    def take(self, events: list[Event], record: int, at: int) -> list[Event]:
        """Enqueue the events of one record; return the events that may be sent now, in order.

        Args:
            events: the events that the translator has created.
            record: number of the oldest record that caused these events.
            at: time of the record, in milliseconds since the epoch; 0 if the record contains none.
        """
        if not self.held:
            # Nearly all records end here. Compare numbers, because comparing `Severity` members is slow.
            for event in events:
                if event.severity.number >= _WARN:
                    break
            else:
                return events
        self._expire(at)
        repeated: _Failed | None = None
        for event, following in zip_longest(events, events[1:]):
            if following is not None and _repeats(event, following):
                repeated = self._fail(following, at)
                self.held.append(_Waiting(event, record, repeated, False))
                continue
            failed, repeated = repeated or self._judge(event, at), None
            self.held.append(_Waiting(event, record, failed, True))
        self._expire(at)
        return self.flush() if len(self.held) > _MOST_WAITING else self._released()

    def execution_succeeded(self, at: int) -> list[Event]:
        """Record that the program continued after its failures; return the events that are now decided."""
        self._expire(at)
        self._survive(failed for failed in self._undecided() if failed.run is None)
        return self._released()

    def tick(self, now: int) -> list[Event]:
        """Return the events whose settle time has ended.

        Args:
            now: milliseconds since the epoch.
        """
        self._expire(now)
        return self._released()

    def flush(self) -> list[Event]:
        """Decide all roles now; call this when no more records will arrive."""
        for failed in self._undecided():
            failed.decide(failed.fallback)
        return self._released()

    def _undecided(self) -> Iterator[_Failed]:
        return (failed for failed in list(self._recent) if failed.outcome is None)

    def _expire(self, at: int) -> None:
        for failed in self._undecided():
            if failed.at + self._settle <= at:
                failed.decide(failed.fallback)

    @staticmethod
    def _survive(failures: Iterable[_Failed]) -> None:
        for failed in failures:
            # A failed query has ended, so later work of the program does not show that the query survived its failure.
            if failed.level < _QUERY:
                failed.decide(_SURVIVED)

    def _judge(self, event: Event, at: int) -> _Failed | None:
        """Return the failure that an event reports; None for an event that reports no failure.

        If an event without a failure shows that the program survived earlier failures, decide their roles.
        """
        attributes = event.attributes
        new = attributes.get("spark.status.new")
        entity = attributes.get("spark.entity") if event.name == _STATUS else None
        # Check the scope too, because a program may add an event with the same name.
        is_failure = event.name == _FAILURE and event.class_scope.startswith("spark.")
        if is_failure or (entity == "application" and new == "LOST") or _is_failed_enrichment(event):
            return self._fail(event, at)
        if event.name == "BatchCommitEvent":
            run = attributes.get(_RUN)
            self._survive(failed for failed in self._undecided() if failed.run == run)
        elif entity == "job" and new == "RUNNING" and _RUN not in attributes:
            execution = attributes.get(_EXECUTION)
            # Spark may have started another job of the execution before it noticed the failure.
            self._survive(
                failed
                for failed in self._undecided()
                if failed.run is None and (execution is None or failed.execution != execution)
            )
        elif entity == "application" and new != "RUNNING":
            if new == "FINISHED":
                self._survive(self._undecided())
            for failed in self._undecided():
                failed.decide(failed.fallback)
        return None

    def _fail(self, event: Event, at: int) -> _Failed:
        attributes = event.attributes
        level = _LEVELS.get(str(attributes.get("spark.entity")), _SQL)
        run, execution = attributes.get(_RUN), attributes.get(_EXECUTION)
        is_error = event.severity >= Severity.ERROR
        failed = _Failed(
            id=event.event_id,
            key=incident_key(attributes),
            level=level,
            cause=str(attributes.get("failure.root_cause", "")),
            run=None if run is None else str(run),
            execution=None if execution is None else str(execution),
            at=at,
            # A query that still runs has survived its job's failure. If the query fails later, that failure is a new
            # alarm.
            fallback=_ALARM if is_error and (run is None or level >= _QUERY) else _SURVIVED,
        )
        while self._recent and self._recent[0].at < at - _MEMORY and self._recent[0].outcome is not None:
            self._recent.popleft()
        lower = [other for other in self._recent if failed.includes(other)]
        if lower:
            # Use the latest incident id that may already have been sent to a reporter, else the id of the first
            # failure.
            failed.id = next((other.id for other in reversed(lower) if other.outcome is not None), lower[0].id)
            failed.key = lower[-1].key if level == _APPLICATION else failed.key
            is_alarmed = any(other.alarmed for other in lower)
            for other in lower:
                if other.outcome is None:
                    other.id = failed.id
                other.decide(_CONSEQUENCE)
                other.claimed = True
            if is_alarmed:
                failed.outcome, failed.alarmed = _CONSEQUENCE, True
        if level == _STAGE:
            # If Spark does not retry a stage, the stage's job fails, and the job's failure is the next record.
            failed.decide(_CONSEQUENCE if is_error else _SURVIVED)
        elif level == _APPLICATION:
            failed.decide(_ALARM)
        elif level == _JOB and not is_error:
            # A cancelled job is not a failure.
            failed.decide(_SURVIVED)
        if len(self._recent) == _MOST_REMEMBERED:
            self._recent[0].decide(self._recent[0].fallback)
        self._recent.append(failed)
        return failed

    def _released(self) -> list[Event]:
        released = []
        while self.held:
            first = self.held[0]
            if first.failed is None:
                released.append(first.event)
            elif first.failed.outcome is None:
                break
            else:
                role = first.failed.outcome if first.is_alarm else _CONSEQUENCE
                released.append(self._with_role(first.event, first.failed, role))
            self.held.popleft()
        return released

    def _with_role(self, event: Event, failed: _Failed, role: str) -> Event:
        """Return the event with its role and the severity of that role."""
        given, severity = event.attributes, _SEVERITIES[role]
        about = {"incident.id": failed.id, "incident.key": failed.key, "incident.role": role}
        return msgspec.structs.replace(
            event,
            severity=event.severity if event.severity is Severity.FATAL else severity,
            attributes=Attributes({**given, **about, **self._links.of(given, failed.key)}),
        )


def _repeats(event: Event, following: Event) -> bool:
    """Return whether a status change reports the same failure as the next event."""
    return (
        event.name == _STATUS
        and following.name == _FAILURE
        and event.class_scope == following.class_scope
        and all(event.attributes.get(key) == following.attributes.get(key) for key in ("spark.entity", "spark.job.id"))
    )


def _is_failed_enrichment(event: Event) -> bool:
    return event.class_scope == "spark_events.enrich" and event.severity >= Severity.ERROR
