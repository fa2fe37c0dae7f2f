"""State of a query: figures of its stateful operators."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from spark_events.event import AttributeValue
from spark_events.records.query_progress import StateOperatorProgress

__all__ = ["repaired", "state_attributes"]

_REPAIRED = "rocksdbNumSnapshotsAutoRepaired"
#: Metrics of operators and of their state stores; the sums over the operators are attributes, unless they are 0.
#: ``rocksdbBytesCopied`` is 0 for a batch that wrote a changelog (changelog checkpointing).
_SUMS = {
    "rocksdbBytesCopied": "spark.state.checkpointed_bytes",
    "rocksdbSstFileSize": "spark.state.disk_bytes",
    "rocksdbForceSnapshotCount": "spark.state.snapshots_forced",
    "rocksdbNumReplayChangelogFiles": "spark.state.changelogs_replayed",
    _REPAIRED: "spark.state.snapshots_repaired",
    "numRegisteredTimers": "spark.state.timers_registered",
    "numDeletedTimers": "spark.state.timers_deleted",
    "numExpiredTimers": "spark.state.timers_expired",
}
#: Beginning of the metric with the version of the last snapshot that a store has uploaded since the query's start.
#: Spark reports it for the stores whose snapshots are the oldest.
_UPLOADED = "SnapshotLastUploaded."


def state_attributes(operators: Sequence[StateOperatorProgress], batch_id: int) -> dict[str, AttributeValue | None]:
    """Return sums over the stateful operators of a batch, and each operator as JSON."""
    if not operators:
        return {}
    return {
        "spark.state.operators": len(operators),
        "spark.state.rows_total": sum(operator.num_rows_total for operator in operators),
        "spark.state.rows_updated": sum(operator.num_rows_updated for operator in operators),
        "spark.state.rows_removed": sum(operator.num_rows_removed for operator in operators),
        "spark.state.rows_dropped_by_watermark": sum(op.num_rows_dropped_by_watermark for op in operators),
        "spark.state.memory_bytes": sum(operator.memory_used_bytes for operator in operators),
        "spark.state.commit_ms": sum(operator.commit_time_ms for operator in operators),
        **{attribute: _sum(operators, metric) or None for metric, attribute in _SUMS.items()},
        **_snapshot(operators, batch_id),
        "spark.state.by_operator": msgspec.json.encode([_described(operator) for operator in operators]).decode(),
    }


def repaired(operators: Sequence[StateOperatorProgress]) -> int:
    """Return the number of damaged snapshots that RocksDB's state store repaired in this batch (Spark 4.1)."""
    return _sum(operators, _REPAIRED)


def _sum(operators: Sequence[StateOperatorProgress], metric: str) -> int:
    return sum((operator.custom_metrics or {}).get(metric, 0) for operator in operators)


def _snapshot(operators: Sequence[StateOperatorProgress], batch_id: int) -> dict[str, AttributeValue | None]:
    """Return the version of the oldest snapshot, and how many versions the state is ahead of it."""
    versions = [
        version
        for operator in operators
        for metric, version in (operator.custom_metrics or {}).items()
        if metric.startswith(_UPLOADED) and version >= 0
    ]
    # Batch 0 creates version 1 of the state.
    lag = None if not versions else max(0, batch_id + 1 - min(versions))
    return {"spark.state.snapshot_version": min(versions, default=None), "spark.state.snapshot_lag": lag}


def _described(operator: StateOperatorProgress) -> dict[str, AttributeValue]:
    return {
        "name": operator.operator_name,
        "rows": operator.num_rows_total,
        "memory_bytes": operator.memory_used_bytes,
        "commit_ms": operator.commit_time_ms,
        "rows_dropped_by_watermark": operator.num_rows_dropped_by_watermark,
    }
