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


@dataclasses.dataclass(slots=True)
class PartitionReport:
    """Counts and problems of one partition; the task adds its rows while it returns them to Spark.

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
    rows: int = 0
    failed: int = 0
    samples: Sequence[Sample] = ()
    statistics: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    types: dict[str, int] = dataclasses.field(default_factory=dict)
    warnings: Sequence[str] = ()
    stage: int = 0

    def add(self, rows: int, failures: Mapping[int, RowFailure]) -> None:
        """Count further rows; ``failures`` are by index in the partition."""
        for index, failure in sorted(failures.items()):
            seen = self.types.get(failure.type, 0)
            self.types[failure.type] = seen + 1
            if seen < _SAMPLES_OF_A_TYPE and len(self.samples) < _SAMPLES:
                self.samples = [*self.samples, Sample(self.partition, index, failure)]
        self.rows += rows
        self.failed += len(failures)

    def to_bytes(self) -> bytes:
        """Return the report as bytes, for the last row of the partition."""
        return pickle.dumps(self, protocol=4)

    @staticmethod
    def from_bytes(data: bytes) -> PartitionReport:
        """Return the report from the bytes of :meth:`to_bytes`."""
        report: PartitionReport = pickle.loads(data)
        return report


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
    message = f": {failure.message}" if failure.message else ""
    return f"{failure.type}{tried}{message}{where}"
