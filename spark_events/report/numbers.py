"""Numbers per application, query and cause, computed in SQL over the events of the period."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from spark_events.report.model import (
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
from spark_events.report.wording import shortened

_WARN = 4
_MOST_SLOW = 10_000
_MOST_GROUPS = 1_000
_MOST_STAGES = 1_000
_MOST_STACK = 16_384
_MOST_SUBJECTS = 50

QUERY = "'q:' || coalesce(query_id, query_name)"
DURATION = "(trigger_ms / greatest(coalesce(batches, 1), 1))"
#: Lag of the watermark. A watermark of 0 (1970) means that the query has not read a row yet; such a watermark has no
#: lag.
LAG = "CASE WHEN watermark > 0 THEN coalesce(lag_ms, newest_row - watermark) END"

_COMMITS = f"""
SELECT {QUERY}, count(*), sum(greatest(coalesce(batches, 1), 1)), coalesce(sum(rows_in), 0),
  quantile_cont({DURATION}, [0.5, 0.95, 0.99]), max({DURATION}), min(ts), max(ts), count(*) FILTER ({{slow}})
FROM period WHERE name = 'BatchCommitEvent' AND coalesce(query_id, query_name) IS NOT NULL GROUP BY 1
"""
_SLOW = f"""
SELECT {QUERY}, ts, batch_id, {DURATION} AS took, rows_in FROM period
WHERE name = 'BatchCommitEvent' AND coalesce(query_id, query_name) IS NOT NULL AND {{slow}}
ORDER BY took DESC, ts LIMIT {_MOST_SLOW}
"""
_WATERMARKS = f"""
SELECT {QUERY}, arg_max(watermark, (ts, sequence)) FILTER (watermark > 0),
  arg_max({LAG}, (ts, sequence)) FILTER (({LAG}) IS NOT NULL), max({LAG}), coalesce(sum(late_rows), 0)
FROM period WHERE watermark IS NOT NULL AND coalesce(query_id, query_name) IS NOT NULL GROUP BY 1
"""
_ENRICHMENT = """
SELECT coalesce('q:' || query_id, 'a:' || app), coalesce("function", '?'), count(*),
  count(*) FILTER (outcome = 'failed'), coalesce(sum(calls), 0), coalesce(sum(attempts), 0), coalesce(sum(retries), 0),
  coalesce(sum(timeouts), 0), coalesce(sum(unanswered), 0), max(p99_ms)
FROM period WHERE name = 'EnrichmentEvent' GROUP BY 1, 2 ORDER BY 1, 2
"""
_GROUPS = f"""
SELECT grp, arg_max(coalesce(error_type, status), (ts, sequence)), arg_max(cause, (ts, sequence)),
  arg_max(label, (ts, sequence)),
  arg_max(location, (ts, sequence)), count(*), count(*) FILTER (will_retry = 'true'), min(ts), max(ts),
  list_sort(list(DISTINCT app)), list_sort(list(DISTINCT coalesce(query_name, query_id)) FILTER (query_id IS NOT NULL)),
  arg_max(left(stack, {_MOST_STACK}), (ts, sequence)) FILTER (stack IS NOT NULL), histogram(coalesce(entity, '?')),
  arg_max(failure_class, (ts, sequence)), arg_max(retry_useful, (ts, sequence))
FROM (SELECT *, {GROUP} AS grp, {CAUSE} AS cause FROM period WHERE {FAILURE})
GROUP BY 1 ORDER BY count(*) DESC, min(ts) LIMIT {_MOST_GROUPS}
"""
_BY_SUBJECT = f"""
WITH failure AS (SELECT *, {GROUP} AS grp FROM period WHERE {FAILURE})
SELECT 'a:' || app AS subject, grp, count(*) FROM failure GROUP BY 1, 2
UNION ALL
SELECT {QUERY}, grp, count(*) FROM failure WHERE coalesce(query_id, query_name) IS NOT NULL GROUP BY 1, 2
ORDER BY 1, 3 DESC, 2
"""
_EXECUTORS_LOST = """
SELECT 'a:' || app, coalesce(loss, 'UNKNOWN'), count(*) FROM period
WHERE name = 'ExecutorStatusChangeEvent' AND status = 'LOST' AND executor IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 3 DESC
"""
_LOST = """
SELECT app, coalesce(dropped_where, '?'), coalesce(dropped_reason, '?'), sum(coalesce(dropped, 1)) FROM period
WHERE name = 'EventsDroppedEvent' GROUP BY 1, 2, 3
UNION ALL
SELECT app, 'reporters', 'see its DispatcherReportEvent', sum(lost - coalesce(lost_records, 0)) FROM period
WHERE name = 'DispatcherReportEvent' AND lost > coalesce(lost_records, 0) GROUP BY 1
ORDER BY 1, 2, 3
"""
#: Each summary contains the sums since the start of its run, so only the last summary of each run counts.
_COSTS = """
SELECT 'a:' || app, sum(allocated), sum(used), sum(idle), sum(cost) FROM (
  SELECT app, app_id, attempt, arg_max(core_hours, (ts, sequence)) AS allocated,
    arg_max(core_hours_used, (ts, sequence)) AS used, arg_max(core_hours_idle, (ts, sequence)) AS idle,
    arg_max(cost, (ts, sequence)) AS cost
  FROM period WHERE name = 'ApplicationSummaryEvent' GROUP BY 1, 2, 3
) GROUP BY 1
"""
_SLOW_STAGES = f"""
SELECT app, app_id, coalesce(stage_id, -1), coalesce(stage_attempt, 0), coalesce(stage_name, '?'), ts, stage_ms,
  coalesce(stage_lost_ms, 0), problems, body
FROM period WHERE name = 'StageSummaryEvent' AND problems IS NOT NULL
ORDER BY 8 DESC, stage_ms DESC, ts, sequence LIMIT {_MOST_STAGES}
"""
_REPORTERS = """
SELECT app, coalesce(app_id, ''), coalesce(attempt, ''), reporter, arg_max(status, (ts, sequence)), max(ts),
  arg_max(reason, (ts, sequence))
FROM event WHERE name = 'ReporterStatusChangeEvent' GROUP BY 1, 2, 3, 4
HAVING arg_max(status, (ts, sequence)) IN ('open', 'disabled') ORDER BY 1, 4, 6
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
    failure_count: int
    executors_lost: dict[str, tuple[tuple[str, int], ...]]
    lost: tuple[Lost, ...]
    reporters: tuple[ReporterTrouble, ...]
    costs: dict[str, tuple[float | None, float | None, float | None, float | None]]
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
    enrichment = defaultdict(list)
    for subject, *values in table.run(_ENRICHMENT):
        enrichment[subject].append(EnrichmentNumbers(*values))
    lost_executors = defaultdict(list)
    for subject, loss, count in table.run(_EXECUTORS_LOST):
        lost_executors[subject].append((loss, count))
    groups, failures = _failures(table)
    return Numbers(
        commits=_commits(table, slow, uptimes),
        watermarks={row[0]: Watermark(row[1], row[2], row[3], int(row[4])) for row in table.run(_WATERMARKS)},
        enrichment={subject: tuple(some) for subject, some in enrichment.items()},
        groups=groups,
        failures=failures,
        failure_count=int(table.run(f"SELECT count(*) FROM period WHERE {FAILURE}")[0][0]),
        executors_lost={subject: tuple(some) for subject, some in lost_executors.items()},
        lost=tuple(Lost(app, where, reason, int(count)) for app, where, reason, count in table.run(_LOST)),
        reporters=tuple(
            ReporterTrouble(app, (app, app_id, attempt, None), reporter or "?", status, at, shortened(reason))
            for app, app_id, attempt, reporter, status, at, reason in table.run(_REPORTERS)
        ),
        costs={subject: tuple(values) for subject, *values in table.run(_COSTS)},
        slow_stages=tuple(map(_slow_stage, table.run(_SLOW_STAGES))),
        slow_stage_count=int(
            table.run("SELECT count(*) FROM period WHERE name = 'StageSummaryEvent' AND problems IS NOT NULL")[0][0]
        ),
    )


def _slow_stage(row: Sequence[Any]) -> SlowStage:
    app, app_id, stage, attempt, name, at, duration, lost, problems, text = row
    pairs = (problem.partition("\x1f") for problem in problems.split("\x1e"))
    kinds = tuple((kind, explanation) for kind, _, explanation in pairs)
    return SlowStage(app, app_id, stage, attempt, name, at, duration, lost, kinds, text)


def _commits(table: EventTable, slow: str, uptimes: dict[str, int]) -> dict[str, CommitNumbers]:
    slowest: dict[str, list[SlowCommit]] = defaultdict(list)
    for query, ts, batch, took, rows in table.run(_SLOW.format(slow=slow)):
        slowest[query].append(SlowCommit(ts, batch, took, rows))
    found = {}
    for query, events, batches, rows, quantiles, longest, first, last, over in table.run(_COMMITS.format(slow=slow)):
        up = uptimes.get(query, 0)
        p50, p95, p99 = quantiles or (None, None, None)
        found[query] = CommitNumbers(
            events=events,
            batches=int(batches),
            rows=int(rows),
            rows_per_second=int(rows) * 1000 / up if up else None,
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
            max_ms=longest,
            first=first,
            last=last,
            over_sla=over,
            slow=tuple(slowest[query]),
        )
    return found


def _failures(table: EventTable) -> tuple[tuple[FailureGroup, ...], dict[str, tuple[tuple[int, int], ...]]]:
    """Return the failures by cause, most frequent first, and the number of failures by application or query.

    If there are more than a thousand causes, the failures with other causes form one group with an empty key.
    """
    groups: list[FailureGroup] = []
    indexes: dict[str, int] = {}
    for row in table.run(_GROUPS):
        key, error_type, cause, label, location, count, retried, first, last, apps, queries, stack, entities = row[:13]
        failure_class, retry_useful = row[13:]
        indexes[key] = len(groups)
        groups.append(
            FailureGroup(
                key=key or "?",
                error_type=error_type or "?",
                cause=cause or "?",
                label=label,
                location=location,
                count=count,
                retried=retried,
                first=first,
                last=last,
                entities=tuple(sorted(entities.items())),
                applications=_some(apps),
                queries=_some(queries),
                stack=stack,
                failure_class=failure_class,
                retry_useful=None if retry_useful is None else retry_useful == "true",
            )
        )
    by_subject: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    rest = len(groups)
    for subject, key, count in table.run(_BY_SUBJECT):
        if subject != f"a:{NO_APPLICATION}":
            by_subject[subject][indexes.get(key, rest)] += count
    total, first, last = table.run(f"SELECT count(*), min(ts), max(ts) FROM period WHERE {FAILURE}")[0]
    if others := total - sum(group.count for group in groups):
        text = f"{others:,} failures of other causes; choose an application with --app, or a period with --since"
        groups.append(FailureGroup("", "?", text, None, None, others, 0, first, last, (), (), (), None))
    return tuple(groups), {subject: tuple(some.items()) for subject, some in by_subject.items()}


def _some(names: list[str] | None) -> tuple[str, ...]:
    return tuple((names or [])[:_MOST_SUBJECTS])
