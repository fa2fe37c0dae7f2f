"""Conversion of a query's progress in the event log to the format that Spark reports to listeners."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from spark_events.records.query_progress import SourceProgress, StreamingProgress


def reported(progress: StreamingProgress) -> StreamingProgress:
    """Convert a progress report to the format of ``StreamingQueryProgress.json``.

    The function unquotes offsets and removes the schemas of rows.
    """
    return msgspec.structs.replace(
        progress,
        sources=[_source(source) for source in progress.sources],
        observed_metrics={name: _row(row) for name, row in progress.observed_metrics.items()},
    )


def _source(source: SourceProgress) -> SourceProgress:
    return msgspec.structs.replace(
        source,
        start_offset=_offset(source.start_offset),
        end_offset=_offset(source.end_offset),
        latest_offset=_offset(source.latest_offset),
    )


def _offset(raw: msgspec.Raw) -> msgspec.Raw:
    text = bytes(raw)
    if text[:1] == b'"':
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.Raw(msgspec.json.format(msgspec.json.decode(text, type=str).encode(), indent=-1))
    return raw


def _row(value: Any) -> Any:
    if isinstance(value, list):
        return [_row(element) for element in value]
    if not isinstance(value, dict):
        return value
    schema, values = value.get("schema"), value.get("values")
    if not isinstance(schema, dict) or schema.get("type") != "struct":
        return value
    if not isinstance(values, list):
        return {name: _row(element) for name, element in value.items() if name != "schema"}
    names = [field.get("name", "") for field in schema.get("fields", [])]
    return {name: _row(element) for name, element in zip(names, values, strict=False)}
