"""A task's report about its partition, sent in the partition's last row.

Therefore only tasks whose results Spark uses are counted. An accumulator would also count lost attempts, and Connect
has no accumulators.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from spark_events.enrichment.engine.failure import RowFailure

#: Hidden column of a settled DataFrame.
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
    """Failed row: the partition, the row's index in the partition from 0, and the failure."""

    partition: int
    row: int
    failure: RowFailure


@dataclasses.dataclass(frozen=True, slots=True)
class PartitionReport:
    """Counts and problems of one partition.

    Attributes:
        partition: the number of the partition.
        rows: the number of all rows.
        failed: the number of rows without an answer.
        samples: a few failed rows of each failure type.
        statistics: the engine's counters, see :mod:`spark_events.enrichment.engine.statistics`.
        types: failed rows by failure type, including answers that do not fit the output, which the engine may not see.
        warnings: messages about problems that did not fail the task, one sentence each.
        stage: the id of the task's stage.
    """

    partition: int
    rows: int
    failed: int
    samples: tuple[Sample, ...]
    statistics: Mapping[str, Any]
    types: Mapping[str, int]
    warnings: tuple[str, ...] = ()
    stage: int = 0

    def to_bytes(self) -> bytes:
        """Return the report as bytes, for the last row of the partition."""
        return pickle.dumps(self, protocol=4)

    @staticmethod
    def from_bytes(data: bytes) -> PartitionReport:
        """Return the report from the bytes of :meth:`to_bytes`."""
        report: PartitionReport = pickle.loads(data)
        return report


class Tally:
    """Counter of a partition's rows while they are returned to Spark."""

    def __init__(self, partition: int, stage: int = 0) -> None:
        self._partition = partition
        self._stage = stage
        self.rows = 0
        self._failed = 0
        self._samples: list[Sample] = []
        self._types: dict[str, int] = {}

    def add(self, rows: int, failures: Mapping[int, RowFailure]) -> None:
        """Count further rows; ``failures`` are by index in the partition."""
        for index, failure in sorted(failures.items()):
            seen = self._types.get(failure.type, 0)
            self._types[failure.type] = seen + 1
            if seen < _SAMPLES_OF_A_TYPE and len(self._samples) < _SAMPLES:
                self._samples.append(Sample(self._partition, index, failure))
        self.rows += rows
        self._failed += len(failures)

    def report(self, statistics: Mapping[str, Any], warnings: Sequence[str] = ()) -> PartitionReport:
        """Return the report of the whole partition."""
        samples = tuple(self._samples)
        problems = tuple(warnings)
        return PartitionReport(
            self._partition, self.rows, self._failed, samples, statistics, self._types, problems, self._stage
        )


def failure_values(failure: RowFailure) -> dict[str, Any]:
    """Return the failure as a value of :data:`FAILURE_TYPE`."""
    return {field.name: getattr(failure, field.name) for field in FAILURE_TYPE}


def position_of(partition: int, row: int) -> str:
    """Describe the location of a row for messages."""
    return f"partition {partition}, row {row:,}"


def described(failure: RowFailure) -> str:
    """Describe a failure in one line."""
    tried = f" after {failure.attempts} attempts in {failure.elapsed:.1f} s" if failure.attempts > 1 else ""
    where = f" ({failure.where})" if failure.where else ""
    return f"{failure.type}{tried}: {failure.message}{where}"
