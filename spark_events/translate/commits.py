"""Committed micro-batches, from the progress that Spark reports of each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from spark_events.bridge.records import Progress, QueryProgress, SourceProgress, StateOperatorProgress
from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, iso_millis, present
from spark_events.translate.queries import Query

__all__ = ["commit"]

_OFFSET_LIMIT = 2_048


def commit(record: QueryProgress, query: Query) -> Iterator[Draft]:
    """The event of a batch that was executed and committed; none for a report of having nothing to do.

    Spark reports progress after the batch is in the checkpoint's ``commits/``. A trigger without a
    batch is told apart by its phases: nothing was added to the sink.
    """
    progress = record.progress
    if "addBatch" not in progress.duration_ms or progress.batch_id <= query.last_committed_batch:
        return
    query.last_committed_batch = progress.batch_id
    took = progress.duration_ms.get("triggerExecution")
    rows = _input_rows(progress)
    yield Draft(
        name="BatchCommitEvent",
        class_scope="spark.streaming.query",
        key=("commit", progress.run_id, progress.batch_id),
        body=_sentence(query, progress, rows, took),
        severity=Severity.INFO,
        observed_ts_millis=iso_millis(progress.timestamp, record.at) + (took or 0),
        attributes=present(
            {
                **query.scope_variables,
                "spark.streaming.batch.id": progress.batch_id,
                "batches": 1,
                "rows.input": rows,
                "rows.output": _known(progress.sink.num_output_rows) if progress.sink else None,
                "batch.no_data": rows == 0,
                "watermark": progress.event_time.get("watermark"),
                "event_time.min": progress.event_time.get("min"),
                "event_time.max": progress.event_time.get("max"),
                "event_time.avg": progress.event_time.get("avg"),
                "sink.description": progress.sink.description if progress.sink else None,
                **{f"duration.{phase}_ms": millis for phase, millis in progress.duration_ms.items()},
                **_sources(progress.sources),
                **_state(progress.state_operators),
                **_observed(progress.observed_metrics),
            }
        ),
    )


def _input_rows(progress: Progress) -> int:
    if progress.num_input_rows is not None:
        return progress.num_input_rows
    return sum(source.num_input_rows for source in progress.sources)


def _known(rows: int) -> int | None:
    """Spark says -1 where a sink does not count."""
    return rows if rows >= 0 else None


def _sentence(query: Query, progress: Progress, rows: int, took: int | None) -> str:
    duration = "" if took is None else f" in {took} ms"
    what = f"{rows:,} rows" if rows else "no data"
    watermark = progress.event_time.get("watermark")
    return f"Query '{query.title}' committed batch {progress.batch_id}{duration}: {what}" + (
        f", watermark {watermark}" if watermark else ""
    )


def _sources(sources: list[SourceProgress]) -> dict[str, AttributeValue | None]:
    attributes: dict[str, AttributeValue | None] = {}
    for index, source in enumerate(sources):
        prefix = f"source.{index}"
        attributes[f"{prefix}.description"] = source.description
        attributes[f"{prefix}.rows"] = source.num_input_rows
        attributes[f"{prefix}.offset.from"] = _offset(source.start_offset)
        attributes[f"{prefix}.offset.to"] = _offset(source.end_offset)
        attributes[f"{prefix}.offset.latest"] = _offset(source.latest_offset)
    return attributes


def _offset(raw: msgspec.Raw) -> str | None:
    """An offset as the text that stands in the checkpoint: JSON, unless it is a string by itself."""
    text = bytes(raw).decode("utf-8", "replace")
    if text == "null":
        return None
    if text.startswith('"'):
        text = str(msgspec.json.decode(raw))
    return text if len(text) <= _OFFSET_LIMIT else f"{text[:_OFFSET_LIMIT]}... [{len(text) - _OFFSET_LIMIT} cut]"


def _state(operators: list[StateOperatorProgress]) -> dict[str, AttributeValue | None]:
    if not operators:
        return {}
    return {
        "state.operators": len(operators),
        "state.rows": sum(operator.num_rows_total for operator in operators),
        "state.rows.updated": sum(operator.num_rows_updated for operator in operators),
        "state.rows.removed": sum(operator.num_rows_removed for operator in operators),
        "state.rows.dropped_by_watermark": sum(op.num_rows_dropped_by_watermark for op in operators),
        "state.memory_bytes": sum(operator.memory_used_bytes for operator in operators),
    }


def _observed(metrics: dict[str, Any]) -> dict[str, AttributeValue | None]:
    """``df.observe("name", ...)``: one attribute a metric; what is no plain value is JSON text."""
    attributes: dict[str, AttributeValue | None] = {}
    for name, row in metrics.items():
        fields = row.items() if isinstance(row, dict) else [("value", row)]
        for field, value in fields:
            attributes[f"observed.{name}.{field}"] = _plain(value)
    return attributes


def _plain(value: Any) -> AttributeValue | None:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return msgspec.json.encode(value).decode()
