"""Runs of applications and queries: outcomes, uptime, downtime.

- A query's run ends at the latest when its application ends.
- If no event reports that a run ended, but another run of the same application or query started after the last event of
  this run, this run is UNKNOWN and ends with its last event. Otherwise the run is still active.
- Time after a run that failed, was lost, or is UNKNOWN is downtime until another run starts. Time after an orderly
  termination is neither uptime nor downtime.
- Runs of one application or query may overlap: uptime is the time in which at least one run is active.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from spark_events.report.model import Downtime
from spark_events.report.table import NO_APPLICATION, EventTable
from spark_events.report.wording import shortened

BAD = frozenset({"FAILED", "LOST", "UNKNOWN"})
#: Identity of a run: application, application id, attempt and, for a query, run id.
RunKey: TypeAlias = tuple[str, str, str, str | None]

#: SQL expression for the text of a failure.
CAUSE = "coalesce(nullif(root_cause, ''), nullif(message, ''), body)"
# Prepend the error's type to a message; a root cause already begins with its type.
_FIRST_LINE = "left(split_part({}, chr(10), 1), 300)"
#: SQL expression for the key of a failure's cause.
GROUP = (
    "coalesce(CASE WHEN name = 'JobStatusChangeEvent' THEN 'LOST' END, "
    f"nullif(fingerprint, {{empty}}), {_FIRST_LINE.format('nullif(root_cause, {empty})')},"
    f" concat(error_type, chr(10), {_FIRST_LINE.format(CAUSE)}))"
).format(empty="''")
#: Condition for events that are failures. The condition includes LOST, because a lost application has no
#: JobFailureEvent.
FAILURE = "(name = 'JobFailureEvent' OR (name = 'JobStatusChangeEvent' AND status = 'LOST'))"


@dataclasses.dataclass(slots=True)
class SubjectRun:
    """One run of an application or query; ``end`` is None while it runs.

    Attributes:
        subject: key of the application or query.
        heartbeat_ms: interval of the run's heartbeats; None if there are none.
        last_failure: root cause of the last alarm in the run of an application; None if a recovery followed. Failures
            that the program survived are no alarms.
    """

    key: RunKey
    subject: str
    name: str
    start: int
    end: int | None
    status: str
    start_known: bool
    last: int
    heartbeat_ms: int | None
    has_queries: bool
    cause: str | None = None
    ends_before_start: bool = False
    last_failure: str | None = None

    @property
    def is_bad(self) -> bool:
        """Whether the application or query is down after this run."""
        return self.status in BAD


_STATUS = "name = 'JobStatusChangeEvent' AND entity = '{entity}'"
#: A failure that opens an incident; events without a role are not from this version.
_ALARM = "(name = 'JobFailureEvent' AND coalesce(role, 'alarm') = 'alarm' AND coalesce(will_retry, '') <> 'true')"
_RUNS = """
SELECT key, subject, coalesce(nullif(name, ''), substr(subject, 3)) AS name, coalesce(started, first) AS start,
  CASE WHEN ended IS NOT NULL THEN greatest(coalesce(started, first), ended) END AS "end",
  coalesce(status, 'RUNNING') AS status, started IS NOT NULL AS start_known, last, heartbeat_ms, has_queries,
  coalesce(cause || ' (at ' || location || ')', cause, end_reason) AS cause,
  CASE WHEN last_role = 'alarm' THEN last_alarm END AS last_failure,
  coalesce(ended < started, false) AS ends_before_start
FROM (
  SELECT [app, coalesce(app_id, ''), coalesce(attempt, ''), {run}] AS key, {subject} AS subject, max({name}) AS name,
    min(ts) FILTER ({status} AND status = 'RUNNING') AS started,
    max(ts) FILTER ({status} AND status <> 'RUNNING') AS ended,
    arg_max(status, (status <> 'ENDED', ts, sequence)) FILTER ({status} AND status <> 'RUNNING') AS status,
    min(ts) AS first, max(ts) AS last, max(heartbeat_ms) AS heartbeat_ms, bool_or(query_id IS NOT NULL) AS has_queries,
    arg_max({cause}, (ts, sequence)) FILTER (name = 'JobFailureEvent' AND entity = '{entity}') AS cause,
    arg_max(location, (ts, sequence)) FILTER (name = 'JobFailureEvent' AND entity = '{entity}') AS location,
    arg_max(end_reason, (ts, sequence)) FILTER ({status} AND end_reason <> 'UNKNOWN') AS end_reason,
    arg_max({cause}, (ts, sequence)) FILTER ({alarm}) AS last_alarm,
    arg_max(coalesce(role, 'alarm'), (ts, sequence)) FILTER (role = 'recovery' OR {alarm}) AS last_role
  FROM event WHERE {condition} GROUP BY 1, 2
) ORDER BY started, first
"""


def runs_of(table: EventTable) -> dict[str, list[SubjectRun]]:
    """Return the runs by application or query, oldest first."""
    applications = _read(
        table,
        entity="application",
        condition=f"(name <> 'TestEvent' AND app <> '{NO_APPLICATION}')",
        run="NULL",
        subject="'a:' || app",
        name="app",
    )
    queries = _read(
        table,
        entity="query",
        condition="coalesce(query_id, query_name) IS NOT NULL",
        run="coalesce(run_id, '')",
        subject="'q:' || coalesce(query_id, query_name)",
        name="query_name",
    )
    of_applications = _settled(applications)
    of_application = {run.key[:3]: run for run in applications}
    for run in queries:
        application = of_application.get(run.key[:3])
        if application is not None and application.end is not None and run.end is None:
            run.end, run.status = max(run.start, application.end), application.status
            run.cause = run.cause or application.cause
    return of_applications | _settled(queries)


def _read(table: EventTable, *, entity: str, **parts: str) -> list[SubjectRun]:
    status = _STATUS.format(entity=entity)
    found = table.records(SubjectRun, _RUNS.format(entity=entity, status=status, cause=CAUSE, alarm=_ALARM, **parts))
    for run in found:
        run.cause = shortened(run.cause) or None
    return found


def _settled(runs: Sequence[SubjectRun]) -> dict[str, list[SubjectRun]]:
    """Return the runs by subject, oldest first, and set the end of each run that was not reported as ended."""
    found: dict[str, list[SubjectRun]] = {}
    for run in sorted(runs, key=lambda run: (run.start, run.last)):
        found.setdefault(run.subject, []).append(run)
    for some in found.values():
        for run in some:
            if run.end is None and some[-1].start > run.last:
                run.end, run.status = run.last, "UNKNOWN"
                run.cause = run.cause or "the end of the run is missing"
    return found


def latest(runs: Iterable[SubjectRun]) -> SubjectRun:
    """Return the run that determines the outcome: an active run, else the run that ended last."""
    return max(runs, key=lambda run: (run.end is None, run.end or 0, run.start))


def uptime(runs: Iterable[SubjectRun], since: int, until: int) -> int:
    """Return how long at least one run was active in the period, in milliseconds."""
    total, covered = 0, since
    for run in runs:
        start, end = max(run.start, covered), min(until if run.end is None else run.end, until)
        if end > start:
            total += end - start
            covered = end
    return total


def downtimes(runs: Sequence[SubjectRun], since: int, until: int) -> list[Downtime]:
    """Return the downtimes, clipped to the period. The runs must be sorted by start."""
    found = []
    last: SubjectRun | None = None
    covered = -1
    for run in runs:
        if last is not None and last.is_bad and run.start > covered:
            found.append(Downtime(covered, run.start, False, last.cause or last.status))
        end = until if run.end is None else run.end
        if last is None or end >= covered:
            last, covered = run, end
    if last is not None and last.is_bad and covered < until:
        found.append(Downtime(covered, until, True, last.cause or last.status))
    clipped = (
        dataclasses.replace(down, start=max(down.start, since), end=min(down.end, until))
        for down in found
        if down.end > since and down.start < until
    )
    return list(clipped)


def overlapping(runs: Sequence[SubjectRun]) -> int:
    """Return the number of runs that started while an earlier run was active."""
    count, covered = 0, -1
    for run in runs:
        count += run.start < covered
        covered = max(covered, run.last if run.end is None else run.end)
    return count
