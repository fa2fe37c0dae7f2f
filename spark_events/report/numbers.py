"""Numbers per application, query and cause, computed in SQL over the events of the period."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from typing import Any

import msgspec

from spark_events.report.report_model import (
    CommitNumbers,
    EnrichmentNumbers,
    FailureGroup,
    Lost,
    SlowCommit,
    SlowStage,
    Watermark,
)
from spark_events.report.runs import CAUSE, FAILURE, GROUP, RunKey
from spark_events.report.table import NO_APPLICATION, EventTable
from spark_events.translate.call_sites import user_call_site

_WARN = 4
_MOST_SLOW = 10_000
_MOST_GROUPS = 1_000
_MOST_STAGES = 1_000
_MOST_STACK = 16_384
_MOST_SUBJECTS = 50

QUERY = "'q:' || app || '/' || coalesce(query_name, query_id)"
DURATION = "(trigger_ms / greatest(coalesce(batches, 1), 1))"
#: Lag of the watermark. A watermark of 0 (1970) means that the query has not read a row yet; such a watermark has no
#: lag.
LAG = "CASE WHEN watermark > 0 THEN coalesce(lag_ms, newest_row - watermark) END"

_COMMITS = f"""
SELECT * EXCLUDE quantiles, quantiles[1] AS p50_ms, quantiles[2] AS p95_ms, quantiles[3] AS p99_ms FROM (
  SELECT {QUERY} AS subject, count(*) AS events, sum(greatest(coalesce(batches, 1), 1)) AS batches,
    coalesce(sum(rows_in), 0) AS rows, quantile_cont({DURATION}, [0.5, 0.95, 0.99]) AS quantiles,
    max({DURATION}) AS max_ms, min(ts) AS first, max(ts) AS last, count(*) FILTER ({{slow}}) AS over_sla
  FROM period WHERE name = 'BatchCommitEvent' AND coalesce(query_id, query_name) IS NOT NULL GROUP BY subject
)
"""
_SLOW = f"""
SELECT {QUERY} AS subject, ts AS at, batch_id, {DURATION} AS duration_ms, rows_in AS rows FROM period
WHERE name = 'BatchCommitEvent' AND coalesce(query_id, query_name) IS NOT NULL AND {{slow}}
ORDER BY duration_ms DESC, ts LIMIT {_MOST_SLOW}
"""
_WATERMARKS = f"""
SELECT {QUERY} AS subject, arg_max({LAG}, (ts, sequence)) FILTER (({LAG}) IS NOT NULL) AS lag_ms,
  arg_max(watermark, (ts, sequence)) FILTER (watermark > 0) AS last, max({LAG}) AS max_lag_ms,
  coalesce(sum(late_rows), 0) AS rows_dropped_late
FROM period WHERE watermark IS NOT NULL AND coalesce(query_id, query_name) IS NOT NULL GROUP BY subject
"""
_ENRICHMENT = f"""
SELECT coalesce({QUERY}, 'a:' || app) AS subject, coalesce("function", '?') AS function, count(*) AS batches,
  count(*) FILTER (outcome = 'failed') AS failed_batches, coalesce(sum(calls), 0) AS calls,
  coalesce(sum(attempts), 0) AS attempts, coalesce(sum(retries), 0) AS retries, coalesce(sum(timeouts), 0) AS timeouts,
  coalesce(sum(unanswered), 0) AS unanswered_rows, max(p99_ms) AS p99_ms
FROM period WHERE name = 'EnrichmentEvent' GROUP BY 1, 2 ORDER BY 1, 2
"""
# Events of earlier releases have no incident.id: each alarm is an incident, and the failures that belong to it are not.
_INCIDENTS = "coalesce(nullif(count(DISTINCT coalesce(nullif(incident_id, ''), alarm)), 0), count(*))"
_ALARMS = """LEFT JOIN (SELECT DISTINCT event_id AS known, CAST(event_id AS VARCHAR) AS alarm FROM spark_events_failures
  WHERE incident_role = 'alarm') ON known = id"""
_GROUPS = f"""
SELECT key, coalesce(arg_max(coalesce(error_type, status), (ts, sequence)), '?') AS error_type,
  coalesce(arg_max(cause, (ts, sequence)), '?') AS cause, arg_max(label, (ts, sequence)) AS label,
  arg_max(location, (ts, sequence)) AS location, count(*) AS count, count(*) FILTER (will_retry = 'true') AS retried,
  min(ts) AS first, max(ts) AS last, histogram(coalesce(entity, '?')) AS entities,
  list_sort(list(DISTINCT app))[:{_MOST_SUBJECTS}] AS applications,
  coalesce(list_sort(list(DISTINCT coalesce(query_name, query_id)) FILTER (query_id IS NOT NULL)), [])
    [:{_MOST_SUBJECTS}] AS queries,
  arg_max(left(stack, {_MOST_STACK}), (ts, sequence)) FILTER (stack IS NOT NULL) AS stack,
  coalesce(arg_max(failure_class, (ts, sequence)) FILTER (failure_class <> 'UNKNOWN'), max(failure_class))
    AS failure_class,
  arg_max(retry_useful = 'true', (ts, sequence)) AS retry_useful,
  {_INCIDENTS} AS incidents
FROM (SELECT *, {GROUP} AS key, {CAUSE} AS cause FROM period WHERE {FAILURE}) {_ALARMS}
GROUP BY key ORDER BY count(*) DESC, min(ts) LIMIT {_MOST_GROUPS}
"""
_BY_SUBJECT = f"""
WITH failure AS (SELECT *, {GROUP} AS key FROM period WHERE {FAILURE})
SELECT 'a:' || app AS subject, key, count(*) FROM failure WHERE app <> '{NO_APPLICATION}' GROUP BY 1, 2
UNION ALL
SELECT {QUERY}, key, count(*) FROM failure WHERE coalesce(query_id, query_name) IS NOT NULL GROUP BY 1, 2
ORDER BY 1, 3 DESC, 2
"""
_INCIDENTS_BY_SUBJECT = f"""
WITH failure AS (SELECT * FROM (SELECT * FROM period WHERE {FAILURE}) {_ALARMS})
SELECT 'a:' || app AS subject, {_INCIDENTS} FROM failure WHERE app <> '{NO_APPLICATION}' GROUP BY 1
UNION ALL
SELECT {QUERY}, {_INCIDENTS} FROM failure WHERE coalesce(query_id, query_name) IS NOT NULL GROUP BY 1
"""
_EXECUTORS_LOST = """
SELECT 'a:' || app, coalesce(loss, 'UNKNOWN'), count(*) FROM period
WHERE name = 'ExecutorStatusChangeEvent' AND status = 'LOST' AND executor IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 3 DESC
"""
_LOST = """
SELECT app AS application, coalesce(dropped_where, '?') AS "where", coalesce(dropped_reason, '?') AS reason,
  sum(coalesce(dropped, 1)) AS count
FROM period WHERE name = 'EventsDroppedEvent' GROUP BY 1, 2, 3
UNION ALL
SELECT app, 'reporters', 'see its DispatcherReportEvent', sum(lost - coalesce(lost_records, 0)) FROM period
WHERE name = 'DispatcherReportEvent' AND lost > coalesce(lost_records, 0) GROUP BY 1
ORDER BY 1, 2, 3
"""
#: Each summary contains the sums since the start of its run, so only the last summary of each run counts.
_COSTS = """
SELECT 'a:' || app AS subject, sum(core_hours) AS core_hours, sum(core_hours_used) AS core_hours_used,
  sum(core_hours_idle) AS core_hours_idle, sum(cost) AS cost
FROM (
  SELECT app, app_id, attempt, arg_max(core_hours, (ts, sequence)) AS core_hours,
    arg_max(core_hours_used, (ts, sequence)) AS core_hours_used,
    arg_max(core_hours_idle, (ts, sequence)) AS core_hours_idle, arg_max(cost, (ts, sequence)) AS cost
  FROM period WHERE name = 'ApplicationSummaryEvent' GROUP BY app, app_id, attempt
) GROUP BY subject
"""
_SLOW_STAGES = f"""
SELECT app AS application, app_id, coalesce(stage_id, -1) AS stage, coalesce(stage_attempt, 0) AS attempt,
  coalesce(stage_name, '?') AS name, ts AS at, stage_ms AS duration_ms, coalesce(stage_lost_ms, 0) AS lost_ms,
  string_split(problems, chr(30)) AS problems, body AS text
FROM period WHERE name = 'StageSummaryEvent' AND problems IS NOT NULL
ORDER BY lost_ms DESC, duration_ms DESC, ts, sequence LIMIT {_MOST_STAGES}
"""
_REPORTERS = """
SELECT app AS application, [app, coalesce(app_id, ''), coalesce(attempt, ''), NULL] AS run,
  coalesce(reporter, '?') AS reporter, arg_max(status, (ts, sequence)) AS status, max(ts) AS since,
  coalesce(arg_max(reason, (ts, sequence)), '') AS reason
FROM event WHERE name = 'ReporterStatusChangeEvent' GROUP BY 1, 2, 3
HAVING arg_max(event.status, (ts, sequence)) IN ('open', 'disabled') ORDER BY application, reporter, since
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ReporterTrouble:
    """Reporter that is disabled, or whose circuit breaker is open, since its last event in a run."""

    application: str
    run: RunKey
    reporter: str
    status: str
    since: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers by key of the application or query; failures by cause."""

    commits: dict[str, CommitNumbers]
    watermarks: dict[str, Watermark]
    enrichment: dict[str, tuple[EnrichmentNumbers, ...]]
    groups: tuple[FailureGroup, ...]
    failures: dict[str, tuple[tuple[int, int], ...]]
    incidents: dict[str, int]
    executors_lost: dict[str, tuple[tuple[str, int], ...]]
    lost: tuple[Lost, ...]
    reporters: tuple[ReporterTrouble, ...]
    costs: dict[str, dict[str, float | None]]
    slow_stages: tuple[SlowStage, ...]
    slow_stage_count: int


def numbers_of(table: EventTable, sla_ms: int | None, uptimes: dict[str, int]) -> Numbers:
    """Compute all numbers.

    Args:
        table: the events; the view ``period`` contains the events of the period.
        sla_ms: limit for the duration of a commit.
        uptimes: milliseconds that each application or query ran, for throughputs.
    """
    slow = f"severity >= {_WARN}" if sla_ms is None else f"{DURATION} > {sla_ms}"
    lost_executors = defaultdict(list)
    for subject, loss, count in table.run(_EXECUTORS_LOST):
        lost_executors[subject].append((loss, count))
    groups, failures = _failures(table)
    return Numbers(
        commits=_commits(table, slow, uptimes),
        watermarks={subject: some[0] for subject, some in table.by_subject(Watermark, _WATERMARKS).items()},
        enrichment=table.by_subject(EnrichmentNumbers, _ENRICHMENT),
        groups=groups,
        failures=failures,
        incidents=dict(table.run(_INCIDENTS_BY_SUBJECT)),
        executors_lost={subject: tuple(some) for subject, some in lost_executors.items()},
        lost=tuple(table.records(Lost, _LOST)),
        reporters=tuple(table.records(ReporterTrouble, _REPORTERS)),
        costs={row.pop("subject"): row for row in table.rows(_COSTS)},
        slow_stages=tuple(map(_slow_stage, table.rows(_SLOW_STAGES))),
        slow_stage_count=int(
            table.run("SELECT count(*) FROM period WHERE name = 'StageSummaryEvent' AND problems IS NOT NULL")[0][0]
        ),
    )


def _slow_stage(row: dict[str, Any]) -> SlowStage:
    problems = [problem.split("\x1f", 1) for problem in row["problems"]]
    name = user_call_site(row["name"]) or "?"
    return msgspec.convert({**row, "name": name, "problems": problems}, SlowStage)


def _commits(table: EventTable, slow: str, uptimes: dict[str, int]) -> dict[str, CommitNumbers]:
    slowest = table.by_subject(SlowCommit, _SLOW.format(slow=slow))
    found = {}
    for query, (commits,) in table.by_subject(CommitNumbers, _COMMITS.format(slow=slow)).items():
        up = uptimes.get(query, 0)
        rate = commits.rows * 1000 / up if up else None
        found[query] = dataclasses.replace(commits, rows_per_second=rate, slow=slowest.get(query, ()))
    return found


def _failures(table: EventTable) -> tuple[tuple[FailureGroup, ...], dict[str, tuple[tuple[int, int], ...]]]:
    """Return the failures by cause, most frequent first, and the number of failures by application or query.

    If there are more than a thousand causes, the failures with other causes form one group with an empty key.
    """
    groups = table.records(FailureGroup, _GROUPS)
    indexes = {group.key: index for index, group in enumerate(groups)}
    by_subject: dict[str, Counter[int]] = defaultdict(Counter)
    for subject, key, count in table.run(_BY_SUBJECT):
        by_subject[subject][indexes.get(key, len(groups))] += count
    total, first, last = table.run(f"SELECT count(*), min(ts), max(ts) FROM period WHERE {FAILURE}")[0]
    if others := total - sum(group.count for group in groups):
        text = f"{others:,} failures of other causes; choose an application with --app, or a period with --since"
        groups.append(
            FailureGroup("", "?", text, None, None, others, 0, first, last, {}, (), (), None, incidents=others)
        )
    return tuple(groups), {subject: tuple(some.items()) for subject, some in by_subject.items()}
