"""Storage of the answers of rows, and of the rows that share them."""

from __future__ import annotations

from typing import Any

from spark_events.enrichment.engine.calls import RowBatch
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.sharing import Sharing
from spark_events.enrichment.engine.statistics import EngineCounts

__all__ = ["RowAnswers"]


class RowAnswers:
    """Store answers in their batches.

    Args:
        counts: counts the rows that failed.
        sharing: copies answers to rows with equal requests; None: all rows need a call.
    """

    def __init__(self, counts: EngineCounts, sharing: Sharing | None) -> None:
        self.sharing = sharing
        self._counts = counts

    def settle(self, batch: RowBatch, index: int, answer: Any) -> None:
        """Store the answer of a row and of the rows that share it."""
        if isinstance(answer, RowFailure):
            self._counts.failed(answer)
        if self.sharing is not None:
            self.sharing.settle(batch, index, answer)
        else:
            batch.settle(index, answer)

    def settle_early(self, batch: RowBatch) -> list[int]:
        """Store the answers and failures that a batch brings along; return the indices of the other rows."""
        known, failed = batch.chunk.known or {}, batch.chunk.failed or {}
        self._counts.known += len(known)
        for index, answer in known.items():
            batch.settle(index, answer)
        for index, failure in failed.items():
            self._counts.failed(failure)
            batch.settle(index, failure)
        indices = range(len(batch.rows))
        if known or failed:
            return [index for index in indices if index not in known and index not in failed]
        return list(indices)
