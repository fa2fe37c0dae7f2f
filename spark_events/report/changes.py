"""What changed between the last good run of an application and the run with a problem."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any

from spark_events.report.table import EventTable
from spark_events.report.wording import percent, shortened, span, when

#: Attributes of a start that are compared; the names of settings and tags begin with the prefixes.
_COMPARED = {"spark.version": "Spark", "deployment.environment.name": "environment", "spark.user": "user"}
_PREFIXES = {"spark.setting.": "", "spark.tag.": "tag "}
_FAILED_TASKS = "spark.summary.tasks_failed_attempts"
#: Numbers of the last summary of a run.
_NUMBERS = {
    "spark.summary.input_rows": "input rows",
    "spark.summary.input_bytes": "input bytes",
    "spark.summary.cores": "cores",
    "spark.summary.peak_executor_heap_bytes": "peak heap of an executor",
    _FAILED_TASKS: "failed tasks",
}
#: A number that differs by less than this factor is not a change.
_FACTOR = 1.5
#: Maximum number of lines of changes; --json has all.
_MOST = 20

# A run that committed batches and then failed like the last failure is a part of the trouble: in a crash loop, each run
# commits a batch.
_RUNS = """
WITH failure AS (
  SELECT app_id, cause_key, observed_ts_millis AS ts FROM spark_events_failures
  WHERE app_name = $2 AND incident_role = 'alarm' AND $3
), alike AS (
  SELECT app_id FROM failure WHERE cause_key = (SELECT arg_max(cause_key, ts) FROM failure)
)
SELECT run.app_id, run.started_ts_millis, coalesce(run.ended_ts_millis, $1) AS ended, run.status,
  run.app_id NOT IN (SELECT app_id FROM alike WHERE app_id IS NOT NULL)
  AND EXISTS (SELECT 1 FROM event WHERE event.app_id = run.app_id AND name = 'BatchCommitEvent') AS committed
FROM spark_events_runs AS run WHERE entity = 'application' AND app_name = $2 ORDER BY started_ts_millis DESC
"""
_DETAILS = """
SELECT event.name, arg_max(CAST(detail.attributes AS VARCHAR), (ts, sequence)) FROM event
JOIN detail USING (id) WHERE app_id = ? AND (name = 'ApplicationSummaryEvent'
  OR (name = 'JobStatusChangeEvent' AND entity = 'application' AND status = 'RUNNING')) GROUP BY 1
"""
_TOTALS = """
SELECT coalesce(sum(rows_in) FILTER (name = 'BatchCommitEvent'), 0),
  count(DISTINCT executor) FILTER (name = 'ExecutorStatusChangeEvent')
FROM event WHERE app_id = ?
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """A value that differs between two runs; None where it is missing."""

    name: str
    before: str | None
    after: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """Differences of two runs.

    Attributes:
        good: id of the last good run: it finished, or committed a batch and did not fail like the last failure; None if
            there is none.
        good_at: start of that run.
    """

    good: str | None
    good_at: int | None
    changes: tuple[Change, ...]


def comparison(table: EventTable, application: str, app_id: str | None, at: int, has_failed: bool) -> Comparison:
    """Compare a run with the last good run before it.

    Args:
        table: the events and the tables computed from them.
        application: its name.
        app_id: the run with the problem.
        at: the end of a run that has not ended.
        has_failed: whether the problem is a failure; a run that failed alike is not good then.
    """
    runs = table.run(_RUNS, at, application, has_failed)
    index = next((place for place, run in enumerate(runs) if run[0] == app_id), None)
    earlier = [] if index is None else runs[index + 1 :]
    good = next((run for run in earlier if run[3] == "FINISHED"), None) or next(
        (run for run in earlier if run[4]), None
    )
    if good is None or index is None:
        return Comparison(None, None, ())
    before, after = _details(table, good[0]), _details(table, app_id)
    if has_failed:
        # The failed tasks are the failure itself.
        after.get("ApplicationSummaryEvent", {}).pop(_FAILED_TASKS, None)
    changes = (
        *_settings(before, after),
        *_numbers(table, good, runs[index]),
    )
    return Comparison(good[0], good[1], changes)


def lines_of(found: Comparison) -> list[str]:
    """Return the changes as lines of text; none if nothing that is recorded has changed."""
    if not found.changes or found.good_at is None:
        return []
    lines = [f"changed since the good run {found.good} of {when(found.good_at)}:"]
    for one in found.changes[:_MOST]:
        lines.append(f"  {one.name} {shortened(one.before or 'not set')} → {shortened(one.after or 'not set')}")
    if (more := len(found.changes) - _MOST) > 0:
        lines.append(f"  … {more:,} more: --json")
    return lines


def _details(table: EventTable, app_id: str | None) -> dict[str, dict[str, Any]]:
    return {name: json.loads(attributes) for name, attributes in table.run(_DETAILS, app_id)}


def _settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    old, new = before.get("JobStatusChangeEvent", {}), after.get("JobStatusChangeEvent", {})
    if not old or not new:
        return
    for key in sorted({*old, *new}):
        label = _COMPARED.get(key)
        for prefix, word in _PREFIXES.items():
            if key.startswith(prefix):
                label = f"{word}{key.removeprefix(prefix)}"
        if label is not None and old.get(key) != new.get(key):
            yield Change(label, *(None if one.get(key) is None else str(one[key]) for one in (old, new)))
    yield from _differing(before.get("ApplicationSummaryEvent", {}), after.get("ApplicationSummaryEvent", {}))


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for key, label in _NUMBERS.items():
        if key in old and key in new and _differs(old[key], new[key]):
            yield Change(label, f"{old[key]:,}", f"{new[key]:,}")


def _numbers(table: EventTable, good: Any, failed: Any) -> Iterator[Change]:
    took = [run[2] - run[1] for run in (good, failed)]
    if _differs(*took):
        yield Change("duration", span(took[0]), span(took[1]))
    (rows_before, before), (rows_after, after) = (table.run(_TOTALS, run[0])[0] for run in (good, failed))
    if _differs(rows_before, rows_after) and rows_before and rows_after:
        change = percent(100 * rows_after / rows_before)
        yield Change("rows of all commits", f"{rows_before:,}", f"{rows_after:,} ({change})")
    if before != after:
        yield Change("executors", f"{before:,}", f"{after:,}")


def _differs(before: float, after: float) -> bool:
    low, high = sorted((before, after))
    return high > low * _FACTOR
