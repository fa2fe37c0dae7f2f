"""``StreamingQueryProgress`` as Spark writes it in JSON, limited to the fields that events use."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import msgspec


class SourceProgress(msgspec.Struct, frozen=True, rename="camel"):
    """Progress of one source. The JSON format of the offsets depends on the kind of source.

    A rate is missing, or a text in the event log, if it is not a finite number.
    """

    description: str = ""
    start_offset: msgspec.Raw = msgspec.Raw(b"null")
    end_offset: msgspec.Raw = msgspec.Raw(b"null")
    latest_offset: msgspec.Raw = msgspec.Raw(b"null")
    num_input_rows: int = 0
    input_rows_per_second: Any = None
    processed_rows_per_second: Any = None
    metrics: dict[str, Any] | None = None


class StateOperatorProgress(msgspec.Struct, frozen=True, rename="camel"):
    """Progress of one stateful operator.

    ``custom_metrics`` are the metrics of the operator and of its state store, by Spark's names. Each kind of store
    reports only its own; some names contain a partition.
    """

    operator_name: str = ""
    commit_time_ms: int = 0
    num_rows_total: int = 0
    num_rows_updated: int = 0
    num_rows_removed: int = 0
    num_rows_dropped_by_watermark: int = 0
    memory_used_bytes: int = 0
    custom_metrics: dict[str, Any] | None = None


class SinkProgress(msgspec.Struct, frozen=True, rename="camel"):
    """Progress of the sink; the number of rows is -1 if the sink does not count them."""

    description: str = ""
    num_output_rows: int = -1


class StreamingProgress(msgspec.Struct, frozen=True, rename="camel"):
    """``StreamingQueryProgress``: one trigger of a query, in Spark's own JSON."""

    id: str
    run_id: str
    timestamp: str
    batch_id: int
    name: str | None = None
    num_input_rows: int | None = None
    duration_ms: dict[str, int] = {}
    event_time: dict[str, str] = {}
    state_operators: list[StateOperatorProgress] = []
    sources: list[SourceProgress] = []
    sink: SinkProgress | None = None
    observed_metrics: dict[str, Any] = {}

    @property
    def rows(self) -> int:
        """Number of rows that the batch read, as Spark counts them."""
        if self.num_input_rows is not None:
            return self.num_input_rows
        return sum(source.num_input_rows for source in self.sources)


def iso_millis(timestamp: str, otherwise: int) -> int:
    """Convert Spark's ISO-8601 timestamps (``2026-01-31T10:00:00.000Z``) to milliseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    except ValueError:
        return otherwise
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)
