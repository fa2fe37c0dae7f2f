"""The life of an incident: which event opens it, which events belong to it, and which event closes it.

Each event is judged at once, from its own record and from what was recorded before it. Nothing is held back, so a live
run, a replay, ``sync`` and ``async-queued`` decide alike.

=====================  ==========================================  ====================================================
incident of            opened by (``alarm``)                       closed by (``recovery``)
=====================  ==========================================  ====================================================
an application         its failure, or its loss                    its end with success, or a commit of a query; see
                                                                   :class:`Successes`
a streaming query      its failure                                 the first commit of a later run; its application's
                                                                   success, if it failed or ran without data
a job group            a failed job, if ``events.alarms.jobs``     the first success of a job that started later; its
                       matches the group                           application's success
work that hangs        its first overdue deadline, and again at    the end of the last overdue deadline of this work;
                       three times the limit                       the first success of a later run of the query or
                                                                   the application, if the driver was killed
a reporter             its open circuit breaker                    the closed circuit breaker
=====================  ==========================================  ====================================================

All other events of failures are ``member`` (a failed job, stage or SQL execution) or ``consequence`` (an application
that failed because of a query that is already an alarm). State of earlier runs is unknown: the first success of a run
closes what an earlier run may have left open, and closing an incident that is not open has no effect.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping

from spark_events.event import AttributeValue, Severity
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.translate.bounded import put
from spark_events.translate.draft import Draft
from spark_events.translate.incidents.incident_config import AlarmConfig
from spark_events.translate.incidents.incident_keys import FAILURE, OVERDUE, Keys, job_of, query_of
from spark_events.translate.incidents.links import Links
from spark_events.translate.incidents.successes import Successes
from spark_events.translate.pipelines import FLOW

__all__ = ["Incidents"]

#: Roles of events.
ALARM, RECOVERY, MEMBER, CONSEQUENCE = "alarm", "recovery", "member", "consequence"
_NOTHING: Mapping[str, AttributeValue] = {}
_RUN = "spark.streaming.query.run_id"
_FAILURE = "JobFailureEvent"
#: Maximum number of queries, of job groups, and of overdue work in memory; the oldest are forgotten beyond it.
_MOST = 10_000


class Incidents:
    """The incidents of one application.

    Args:
        config: which failed jobs are alarms.
        keys: the keys of incidents.
        links: adds links to failure events.
        event_id: returns the id of the event with a name and a key. The id of an incident is the id of the event that
            opens it, even before that event exists.
        has_deadlines: whether work may be overdue.
        successes: decides which commits close the application's incident.
    """

    def __init__(
        self,
        config: AlarmConfig,
        keys: Keys,
        links: Links,
        event_id: Callable[[str, tuple[str | int, ...]], str],
        has_deadlines: bool,
        successes: Successes,
    ) -> None:
        # Kinds of incidents that an earlier run may have left open: a killed driver does not report that its hanging
        # work has ended.
        self._kinds = (FAILURE, OVERDUE) if has_deadlines else (FAILURE,)
        self._jobs: re.Pattern[str] | None = config.jobs
        self._keys = keys
        self._links = links
        self._event_id = event_id
        self._successes = successes
        # The run of each query that has not committed; None if it has failed.
        self._runs: OrderedDict[str, AttributeValue | None] = OrderedDict()
        # By job group: the last failed job, or None if the incident is closed.
        self._groups: OrderedDict[str, int | None] = OrderedDict()
        # Overdue work: its incident, and the severity that it has reached.
        self._overdue: OrderedDict[str, tuple[str, Severity]] = OrderedDict()
        self._judges: dict[str, Callable[[Draft, Mapping[str, AttributeValue]], Mapping[str, AttributeValue]]] = {
            _FAILURE: self._failed,
            "JobStatusChangeEvent": self._changed,
            "BatchCommitEvent": self._committed,
            "EnrichmentEvent": self._enriched,
            "ReporterStatusChangeEvent": self._reporter_changed,
            HEARTBEAT: lambda _, attributes: self._named(attributes),
        }

    @property
    def watches_jobs(self) -> bool:
        """Whether the success of a job may close an incident."""
        return self._jobs is not None

    def of(self, draft: Draft, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        """Return the incident's attributes of an event; empty if the event belongs to no incident.

        Args:
            draft: the event. The severity of a failed job rises to ERROR if failed jobs of its group are alarms.
            attributes: all attributes of the event, those of its application included.
        """
        judge = self._judges.get(draft.name)
        # An event of the user's program may have any name.
        return _NOTHING if judge is None or not draft.names_application else judge(draft, attributes)

    def overdue(
        self, work: str, attributes: Mapping[str, AttributeValue], severity: Severity
    ) -> tuple[Severity, dict[str, AttributeValue]]:
        """Record that work is overdue; return the severity of its event, and the incident's attributes.

        One hang may exceed several limits. Only the first event of each severity is the alarm.

        Args:
            work: identifies the work.
            attributes: attributes that name the query or the job group, and the application.
            severity: WARN at the limit, ERROR at a multiple of it.
        """
        known = self._overdue.get(work)
        key = self._incident_of(attributes) if known is None else known[0]
        reached = max((level for other, level in self._overdue.values() if other == key), default=Severity.INFO)
        put(self._overdue, work, (key, severity), _MOST)
        if severity > reached:
            return severity, {"incident.key": key, "incident.role": ALARM}
        return Severity.INFO, {"incident.key": key, "incident.role": MEMBER}

    def _incident_of(self, attributes: Mapping[str, AttributeValue]) -> str:
        """Return the incident that overdue work joins."""
        key, of_application = self._keys.of(attributes, OVERDUE), self._keys.of_application(attributes, OVERDUE)
        if not self._overdue:
            return key
        # An application that runs too long while one of its jobs or queries hangs is the same hang. A query that hangs
        # in such an application has its own incident, because a stream may be meant to run for ever.
        if key == of_application:
            return next(iter(self._overdue.values()))[0]
        is_open = any(other == of_application for other, _ in self._overdue.values())
        return of_application if is_open and not query_of(attributes) else key

    def on_time(self, work: str) -> dict[str, AttributeValue]:
        """Record that overdue work has recovered or ended; return the incident's attributes."""
        key, _ = self._overdue.pop(work, ("", Severity.INFO))
        if not key:
            return {}
        is_over = all(other != key for other, _ in self._overdue.values())
        return {"incident.key": key, "incident.role": RECOVERY if is_over else MEMBER}

    def still_overdue(self, work: str, key: str, severity: Severity) -> None:
        """Restore overdue work that the preceding sidecar reported."""
        put(self._overdue, work, (key, severity), _MOST)

    def predecessor_failed(self) -> bool:
        """Record that an earlier run of this application is reported as lost or failed.

        Returns:
            Whether this is an alarm. It is none if this run has succeeded since: no later event would close it.
        """
        return not self._successes.has_begun

    def _failed(self, draft: Draft, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        entity = attributes.get("spark.entity")
        if entity == "job" and draft.culprit is None and (job := self._watched(attributes)):
            draft.severity = Severity.ERROR
            put(self._groups, job, int(attributes.get("spark.job.id", 0)), _MOST)
        is_alarm = draft.severity >= Severity.ERROR
        role = ALARM if is_alarm else CONSEQUENCE if entity == "application" else MEMBER
        return self._about_failure(draft, attributes, role)

    def _about_failure(
        self, draft: Draft, attributes: Mapping[str, AttributeValue], role: str
    ) -> Mapping[str, AttributeValue]:
        # If the failure of a query is the alarm, its application is a consequence.
        query = attributes.get("failure.query.name")
        keys = self._keys
        key = keys.of(attributes, FAILURE) if query is None else keys.of_query(attributes, str(query))
        about = {"incident.id": self._id(draft, attributes), "incident.key": key, "incident.role": role}
        return {**about, **self._links.of(attributes, key)}

    def _named(self, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        # A watcher, or the next run, that reports the loss of this application needs its key.
        return {"incident.key": self._keys.of_application(attributes)}

    def _id(self, draft: Draft, attributes: Mapping[str, AttributeValue]) -> str:
        """Return the id of the failure event of the query's run, of the job, or of the entity itself."""
        if draft.culprit is not None:
            return self._event_id(_FAILURE, draft.culprit)
        run, job = attributes.get(_RUN) or attributes.get("failure.query.run_id"), attributes.get("spark.job.id")
        if run is not None:
            return self._event_id(_FAILURE, ("query", str(run)))
        if job is not None:
            return self._event_id(_FAILURE, ("job", int(job)))
        if attributes.get("spark.entity") == "application" and draft.name == "JobStatusChangeEvent":
            is_lost = draft.key[-1] == "LOST"
            return self._event_id(draft.name, draft.key) if is_lost else self._event_id(_FAILURE, ("application",))
        return self._event_id(draft.name, draft.key)

    def _watched(self, attributes: Mapping[str, AttributeValue]) -> str:
        """Return the group or description of a job whose failure is an alarm; empty for other jobs."""
        if self._jobs is None or _RUN in attributes:
            return ""
        named = (str(attributes.get(name, "")) for name in ("spark.job.group", "spark.job.description"))
        return job_of(attributes) if any(self._jobs.search(name) for name in named if name) else ""

    def _enriched(self, draft: Draft, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        is_failed = attributes.get("spark.enrich.outcome") == "failed"
        return self._about_failure(draft, attributes, MEMBER) if is_failed else _NOTHING

    def _changed(self, draft: Draft, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        entity, new = attributes.get("spark.entity"), attributes.get("spark.status.new")
        if new == "FAILED" or draft.culprit is not None:
            if entity == "query":
                put(self._runs, query_of(attributes), None, _MOST)
            return self._about_failure(draft, attributes, MEMBER)
        if entity == "job" and new == "FINISHED":
            return self._job_succeeded(attributes)
        if entity == "query" and new == "RUNNING":
            put(self._runs, query_of(attributes), attributes.get(_RUN), _MOST)
        elif entity == "application" and new == "RUNNING":
            return self._named(attributes)
        elif entity == "application" and new == "FINISHED":
            return self._application_succeeded(attributes)
        elif entity == "application" and new == "LOST":
            return self._about_failure(draft, attributes, ALARM)
        return _NOTHING

    def _job_succeeded(self, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        job = self._watched(attributes)
        # Spark numbers jobs in the order of their starts; a job that started before the failure proves nothing.
        failed = self._groups.get(job, -1)
        if not job or failed is None or int(attributes.get("spark.job.id", 0)) <= failed:
            return _NOTHING
        put(self._groups, job, None, _MOST)
        return _closes(self._keys.of_job(attributes, job))

    def _application_succeeded(self, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        groups = [job for job, failed in self._groups.items() if failed is not None]
        queries = [self._keys.of_query(attributes, query, kind) for query in self._runs for kind in self._kinds]
        self._successes.has_begun = True
        self._runs.clear()
        self._groups.clear()
        return _closes(
            *(self._keys.of_application(attributes, kind) for kind in self._kinds),
            *queries,
            *(self._keys.of_job(attributes, job) for job in groups),
        )

    def _committed(self, draft: Draft, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        query, run, keys = query_of(attributes), attributes.get(_RUN), []
        if run is not None and self._runs.get(query) == run:
            del self._runs[query]
            keys += [self._keys.of(attributes, kind) for kind in self._kinds]
        if FLOW in attributes:
            # Only the end of a pipeline's run shows whether the pipeline works again.
            return _closes(*keys) if keys else _NOTHING
        # A streaming application may never end on its own, so a commit shows that it works again. An application that
        # is overdue still is, however often it commits.
        kinds = (FAILURE,) if self._successes.has_begun else self._kinds
        if self._successes.closes(draft.observed_ts_millis):
            keys += [self._keys.of_application(attributes, kind) for kind in kinds]
        return _closes(*keys) if keys else _NOTHING

    def _reporter_changed(self, _: Draft, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        new, key = attributes.get("spark.status.new"), self._keys.of_reporter(attributes)
        if new == "open":
            return {"incident.key": key, "incident.role": ALARM}
        return _closes(key) if new == "closed" else _NOTHING


def _closes(key: str, *more: str) -> Mapping[str, AttributeValue]:
    about: dict[str, AttributeValue] = {"incident.key": key, "incident.role": RECOVERY}
    if more:
        about["incident.more_keys"] = json.dumps(more)
    return about
