"""What a task tells of its partition: it travels in the partition's last row, so only the task that counts is counted.

An accumulator would add up what lost attempts of a task did, and Connect has none.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_events.enrichment.engine.failure import RowFailure

__all__ = [
    "COLUMN", "FAILURE_TYPE", "HIDDEN_TYPE", "PartitionReport", "Sample", "Tally", "described", "failure_values",
    "place_of",
]  # fmt: skip

#: The column that a settled DataFrame has besides the user's, and that nobody sees.
COLUMN = "__spark_events_enrichment"

FAILURE_TYPE = pa.struct(
    [
        pa.field("kind", pa.string()),
        pa.field("type", pa.string()),
        pa.field("message", pa.string()),
        pa.field("attempts", pa.int32()),
        pa.field("elapsed", pa.float64()),
        pa.field("retryable", pa.bool_()),
        pa.field("where", pa.string()),
    ]
)
HIDDEN_TYPE = pa.struct([pa.field("failure", FAILURE_TYPE), pa.field("report", pa.binary())])

_SAMPLES_OF_A_TYPE = 2
_SAMPLES = 10


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """One failed row: its partition, its place there from 0, and why."""

    partition: int
    row: int
    failure: RowFailure


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition.

    Attributes:
        partition: its number.
        rows: all of them.
        failed: those without an answer.
        samples: a few of these, of each type.
        statistics: what the engine counted, see :mod:`spark_events.enrichment.engine.statistics`.
        types: failed rows by the failure's type; the engine does not know of all answers that do not fit.
        troubles: what the task had to do without, a sentence each.
        stage: the id of the one that it was a task of.
    """

    partition: int
    rows: int
    failed: int
    samples: tuple[Sample, ...]
    statistics: Mapping[str, Any]
    types: Mapping[str, int]
    troubles: tuple[str, ...] = ()
    stage: int = 0

    def to_bytes(self) -> bytes:
        """Return what the partition's last row carries."""
        return pickle.dumps(self, protocol=4)

    @staticmethod
    def from_bytes(data: bytes) -> PartitionReport:
        """Return what :meth:`to_bytes` made."""
        report: PartitionReport = pickle.loads(data)
        return report


class Tally:
    """Counts the rows of one partition as they go out."""

    def __init__(self, partition: int, stage: int = 0) -> None:
        self._partition = partition
        self._stage = stage
        self.rows = 0
        self._failed = 0
        self._samples: list[Sample] = []
        self._types: dict[str, int] = {}

    def add(self, rows: int, failures: Mapping[int, RowFailure]) -> None:
        """So many rows more; ``failures`` by their place among these."""
        for place, failure in sorted(failures.items()):
            seen = self._types.get(failure.type, 0)
            self._types[failure.type] = seen + 1
            if seen < _SAMPLES_OF_A_TYPE and len(self._samples) < _SAMPLES:
                self._samples.append(Sample(self._partition, self.rows + place, failure))
        self.rows += rows
        self._failed += len(failures)

    def report(self, statistics: Mapping[str, Any], troubles: Sequence[str] = ()) -> PartitionReport:
        """All of the partition."""
        samples = tuple(self._samples)
        told = tuple(troubles)
        return PartitionReport(
            self._partition, self.rows, self._failed, samples, statistics, self._types, told, self._stage
        )


def failure_values(failure: RowFailure) -> dict[str, Any]:
    """A value of :data:`FAILURE_TYPE`."""
    return {field.name: getattr(failure, field.name) for field in FAILURE_TYPE}


def place_of(partition: int, row: int) -> str:
    """Where a row is."""
    return f"partition {partition}, row {row:,}"


def described(failure: RowFailure) -> str:
    """A failure in a line."""
    tried = f" after {failure.attempts} attempts in {failure.elapsed:.1f} s" if failure.attempts > 1 else ""
    where = f" ({failure.where})" if failure.where else ""
    return f"{failure.type}{tried}: {failure.message}{where}"
