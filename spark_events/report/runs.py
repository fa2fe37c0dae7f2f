"""Runs of applications and queries, read from the table ``spark_events_runs``: outcomes, uptime, downtime."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from spark_events.report.report_model import Downtime
from spark_events.report.table import EventTable
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
        up: beginning and end of the time in which no other run was active yet.
        down: beginning and end of the downtime after the run; equal without downtime.
    """

    key: RunKey
    subject: str
    name: str
    start: int
    end: int | None
    status: str
    start_known: bool
    last: int
    has_queries: bool
    up: tuple[int, int]
    down: tuple[int, int]
    cause: str | None = None
    ends_before_start: bool = False

    @property
    def is_bad(self) -> bool:
        """Whether the application or query is down after this run."""
        return self.status in BAD

    @property
    def is_doubtful(self) -> bool:
        """Whether the run ended after a failure, with an unknown exit code."""
        return self.status == "ENDED" and self.cause is not None


_RUNS = f"""
WITH failed AS (
  SELECT entity, coalesce(app_id, app) AS app_id, coalesce(attempt, '') AS attempt, coalesce(run_id, '') AS run_id,
    arg_max({CAUSE}, (ts, sequence)) AS cause, arg_max(location, (ts, sequence)) AS location
  FROM event WHERE name = 'JobFailureEvent' AND entity IN ('application', 'query') GROUP BY 1, 2, 3, 4
), reason AS (
  SELECT coalesce(app_id, app) AS app_id, coalesce(attempt, '') AS attempt,
    arg_max(end_reason, (ts, sequence)) AS end_reason
  FROM event WHERE name = 'JobStatusChangeEvent' AND entity = 'application' AND end_reason <> 'UNKNOWN' GROUP BY 1, 2
)
SELECT [app_name, coalesce(run.app_id, ''), coalesce(app_attempt_id, ''),
    CASE run.entity WHEN 'query' THEN coalesce(query_run_id, '') END] AS key,
  CASE run.entity WHEN 'query' THEN 'q:' ELSE 'a:' END || subject AS subject, name, started_ts_millis AS start,
  ended_ts_millis AS "end", status, start_known, last_ts_millis AS last, is_long_running AS has_queries,
  [up_from_ts_millis, up_until_ts_millis] AS up, [down_from_ts_millis, down_until_ts_millis] AS down,
  coalesce(own.cause || ' (at ' || own.location || ')', own.cause,
    CASE WHEN run.entity = 'application' OR status <> 'FINISHED' THEN
      coalesce(of_application.cause || ' (at ' || of_application.location || ')', of_application.cause, end_reason) END,
    CASE WHEN status = 'UNKNOWN' THEN 'the end of the run is missing' END) AS cause,
  ends_before_start
FROM spark_events_runs AS run
LEFT JOIN failed AS own ON own.entity = run.entity AND own.app_id = run.app_id
  AND own.attempt = coalesce(app_attempt_id, '') AND own.run_id = coalesce(query_run_id, '')
LEFT JOIN failed AS of_application ON of_application.entity = 'application' AND of_application.app_id = run.app_id
  AND of_application.attempt = coalesce(app_attempt_id, '') AND status IN ('FAILED', 'LOST')
LEFT JOIN reason ON reason.app_id = run.app_id AND reason.attempt = coalesce(app_attempt_id, '')
  AND run.entity = 'application'
WHERE subject IS NOT NULL ORDER BY start, last
"""


def runs_of(table: EventTable) -> dict[str, list[SubjectRun]]:
    """Return the runs by application or query, oldest first."""
    found: dict[str, list[SubjectRun]] = {}
    for run in table.records(SubjectRun, _RUNS):
        run.cause = shortened(run.cause) or None
        found.setdefault(run.subject, []).append(run)
    return found


def latest(runs: Iterable[SubjectRun]) -> SubjectRun:
    """Return the run that determines the outcome: an active run, else the run that ended last."""
    return max(runs, key=lambda run: (run.end is None, run.end or 0, run.start))


def uptime(runs: Iterable[SubjectRun], since: int, until: int) -> int:
    """Return how long at least one run was active in the period, in milliseconds."""
    return sum(max(0, min(run.up[1], until) - max(run.up[0], since)) for run in runs)


def downtimes(runs: Sequence[SubjectRun], since: int, until: int) -> list[Downtime]:
    """Return the downtimes, clipped to the period."""
    last, found = latest(runs), []
    for run in runs:
        start, end = max(run.down[0], since), min(run.down[1], until)
        if end > start:
            # The run that lasted longest may have begun before this one.
            failed = next((one for one in runs if one.end == run.down[0] and one.is_bad), run)
            found.append(Downtime(start, end, last.is_bad and run.down[1] > until - 1, failed.cause or failed.status))
    return found


def overlapping(runs: Sequence[SubjectRun]) -> int:
    """Return the number of runs that started while an earlier run was active."""
    count, covered = 0, -1
    for run in runs:
        count += run.start < covered
        covered = max(covered, run.last if run.end is None else run.end)
    return count
