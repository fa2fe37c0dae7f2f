"""Attribute names of schema version 1 and their names in version 2, as in the table in docs/events.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from spark_events.event import snake_case

#: Old and new names of the attributes whose value is unchanged.
RENAMED = {
    "batch.first.id": "spark.batch.first_id",
    "batch.no_data": "spark.batch.no_data",
    "batches": "spark.batch.count",
    "dropped.count": "spark.events.dropped.count",
    "dropped.reason": "spark.events.dropped.reason",
    "dropped.where": "spark.events.dropped.where",
    "end.reason": "spark.app.end_reason",
    "error.sql_state": "failure.sql_state",
    "event_time.avg": "spark.batch.event_time_avg",
    "event_time.max": "spark.batch.event_time_max",
    "event_time.min": "spark.batch.event_time_min",
    "exception.stacktrace.cut": "failure.stacktrace_cut",
    "exit.code": "spark.app.exit_code",
    "exit.signal": "spark.app.exit_signal",
    "idle.duration_ms": "spark.watermark.idle_duration_ms",
    "idle.rows_read": "spark.watermark.idle_rows_read",
    "idle.since_millis": "spark.watermark.idle_since_millis",
    "lost": "spark.events.lost",
    "outcome.hint": "spark.app.outcome_hint",
    "query.restart": "spark.streaming.query.restart",
    "query.run": "spark.streaming.query.run_number",
    "records.defective": "spark.events.records.defective",
    "records.dropped": "spark.events.records.dropped",
    "records.illegal": "spark.events.records.illegal",
    "records.unknown": "spark.events.records.unknown",
    "records.without_start": "spark.events.records.without_start",
    "reporter.name": "spark.events.reporter.name",
    "rows.dropped_late": "spark.watermark.rows_dropped_late",
    "rows.input": "spark.batch.rows_input",
    "rows.output": "spark.batch.rows_output",
    "sink.description": "spark.batch.sink",
    "source.description": "spark.source.description",
    "source.index": "spark.source.index",
    "source.partition": "spark.source.partition",
    "spark.streaming.batch.id": "spark.batch.id",
    "state.checkpointed_bytes": "spark.state.checkpointed_bytes",
    "state.memory_bytes": "spark.state.memory_bytes",
    "state.operators": "spark.state.operators",
    "state.rows": "spark.state.rows_total",
    "state.rows.dropped_by_watermark": "spark.state.rows_dropped_by_watermark",
    "state.rows.removed": "spark.state.rows_removed",
    "state.rows.updated": "spark.state.rows_updated",
    "status.new": "spark.status.new",
    "status.old": "spark.status.old",
    "status.reason": "spark.status.reason",
    "tasks.failed_attempts": "spark.stage.tasks_failed_attempts",
    "tasks.finished": "spark.stage.tasks_finished",
    "tasks.running": "spark.stage.tasks_running",
    "tasks.total": "spark.stage.tasks_total",
    "test": "spark.events.test",
    "undelivered": "spark.events.undelivered",
    "watermark": "spark.watermark.time",
    "watermark.held_back_by": "spark.watermark.held_back_by",
    "watermark.lag_ms": "spark.watermark.lag_ms",
    "watermark.policy": "spark.watermark.policy",
    "watermark.subject": "spark.watermark.subject",
}
_PHASE = re.compile(r"duration\.(.+)_ms")
_ENRICH_FAILURES = re.compile(r"enrich\.failures\.(.+)")
_PREFIXES = {"observed.": "spark.observed.", "enrich.": "spark.enrich."}
_COMMITTED = re.compile(r"source\.(\d+)\.offset\.committed")
_SOURCE = re.compile(r"source\.(\d+)\.(description|rows|lag|offset\.(?:from|to|latest))")
_REPORTER = re.compile(
    r"(?:spark\.events\.)?reporter\.(.+)\.(accepted|delivered|held|spooled|failures|timeouts|dropped\.(.+))"
)


def attributes_of_version_2(old: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the attributes of an event of schema version 1 to the names of version 2; keep other attributes."""
    new: dict[str, Any] = {}
    sources: dict[int, dict[str, Any]] = {}
    committed: dict[int, str] = {}
    reporters: dict[str, dict[str, Any]] = {}
    failures: dict[str, Any] = {}
    for key, value in old.items():
        if (name := RENAMED.get(key)) is not None:
            new[name] = value
        elif found := _PHASE.fullmatch(key):
            new[f"spark.batch.duration.{snake_case(found[1])}_ms"] = value
        elif found := _ENRICH_FAILURES.fullmatch(key):
            failures[found[1]] = value
        elif found := _COMMITTED.fullmatch(key):
            committed[int(found[1])] = value
        elif found := _SOURCE.fullmatch(key):
            sources.setdefault(int(found[1]), {})[found[2].replace(".", "_")] = value
        elif found := _REPORTER.fullmatch(key):
            account = reporters.setdefault(found[1], {"name": found[1], "dropped": {}})
            if found[3] is None:
                account[found[2]] = value
            else:
                account["dropped"][found[3]] = value
        else:
            prefix = next((prefix for prefix in _PREFIXES if key.startswith(prefix)), "")
            new[_PREFIXES.get(prefix, "") + key[len(prefix) :]] = value
    if failures:
        new["spark.enrich.failures_by_type"] = json.dumps(failures)
    if committed:
        new["spark.streaming.query.committed_offsets"] = _text([committed[index] for index in sorted(committed)])
    if sources:
        new["spark.batch.sources"] = _text([sources[index] for index in sorted(sources)])
        lags = [source["lag"] for source in sources.values() if isinstance(source.get("lag"), int)]
        new |= {"spark.batch.lag": sum(lags)} if lags else {}
    if reporters:
        new["spark.events.reporters"] = _text(list(reporters.values()))
    return new


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
