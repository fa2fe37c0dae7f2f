"""``StreamingQueryProgress`` as Spark writes it in JSON, as far as events are made of it."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Progress", "SinkProgress", "SourceProgress", "StateOperatorProgress", "StateStoreMetrics"]


class SourceProgress(msgspec.Struct, frozen=True, rename="camel"):
    """One source's part of a progress; offsets are whatever JSON the source makes them."""

    description: str = ""
    start_offset: msgspec.Raw = msgspec.Raw(b"null")
    end_offset: msgspec.Raw = msgspec.Raw(b"null")
    latest_offset: msgspec.Raw = msgspec.Raw(b"null")
    num_input_rows: int = 0


class StateStoreMetrics(msgspec.Struct, frozen=True, rename="camel"):
    """The metrics of one kind of state store that events are made of; a store reports its own set."""

    rocksdb_bytes_copied: int = 0


class StateOperatorProgress(msgspec.Struct, frozen=True, rename="camel"):
    """One stateful operator's part of a progress."""

    operator_name: str = ""
    num_rows_total: int = 0
    num_rows_updated: int = 0
    num_rows_removed: int = 0
    num_rows_dropped_by_watermark: int = 0
    memory_used_bytes: int = 0
    custom_metrics: StateStoreMetrics | None = None


class SinkProgress(msgspec.Struct, frozen=True, rename="camel"):
    """The sink's part of a progress; -1 rows where it does not count them."""

    description: str = ""
    num_output_rows: int = -1


class Progress(msgspec.Struct, frozen=True, rename="camel"):
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
