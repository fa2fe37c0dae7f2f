"""State of a query: figures of its stateful operators."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from spark_events.event import AttributeValue
from spark_events.records.progress import StateOperatorProgress

__all__ = ["repaired", "state_attributes"]


def state_attributes(operators: list[StateOperatorProgress]) -> dict[str, AttributeValue | None]:
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
        "spark.state.checkpointed_bytes": _checkpointed(operators),
        "spark.state.commit_ms": sum(operator.commit_time_ms for operator in operators),
        "spark.state.snapshots_repaired": repaired(operators) or None,
        **_timers(operators),
        "spark.state.by_operator": msgspec.json.encode([_described(operator) for operator in operators]).decode(),
    }


def _checkpointed(operators: list[StateOperatorProgress]) -> int | None:
    """Return the bytes that the batch copied to the checkpoint, like Flink's ``checkpointedSize``.

    Only RocksDB reports this number. With changelog checkpointing, RocksDB reports 0 for a batch that wrote a
    changelog, so the function returns None for 0.
    """
    metrics = (operator.custom_metrics for operator in operators)
    return sum(metric.rocksdb_bytes_copied for metric in metrics if metric is not None) or None


def repaired(operators: Sequence[StateOperatorProgress]) -> int:
    """Return the number of damaged snapshots that RocksDB's state store repaired in this batch (Spark 4.1)."""
    metrics = (operator.custom_metrics for operator in operators)
    return sum(metric.rocksdb_num_snapshots_auto_repaired for metric in metrics if metric is not None)


def _timers(operators: Sequence[StateOperatorProgress]) -> dict[str, AttributeValue | None]:
    """Return the timers of ``transformWithState``; None without such timers."""
    metrics = [operator.custom_metrics for operator in operators if operator.custom_metrics is not None]
    return {
        "spark.state.timers_registered": sum(metric.num_registered_timers for metric in metrics) or None,
        "spark.state.timers_deleted": sum(metric.num_deleted_timers for metric in metrics) or None,
        "spark.state.timers_expired": sum(metric.num_expired_timers for metric in metrics) or None,
    }


def _described(operator: StateOperatorProgress) -> dict[str, AttributeValue]:
    return {
        "name": operator.operator_name,
        "rows": operator.num_rows_total,
        "memory_bytes": operator.memory_used_bytes,
        "commit_ms": operator.commit_time_ms,
        "rows_dropped_by_watermark": operator.num_rows_dropped_by_watermark,
    }
