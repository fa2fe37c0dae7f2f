"""Backlogs of a query's sources: what a source has and the query has not read yet."""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple

from spark_events.event import AttributeValue
from spark_events.records.query_progress import SourceProgress, StreamingProgress
from spark_events.translate.offsets import lags, partitions

__all__ = ["Backlog", "Backlogs"]

#: Number of batches with rows from which the rows processed per second are computed.
_BATCHES = 5


class Backlog(NamedTuple):
    """Unread data of one source; None for what the source does not report.

    Attributes:
        seconds: time in which the query would process these rows as fast as the last batches.
    """

    records: int | None
    bytes: int | None
    files: int | None
    seconds: float | None

    def attributes(self, index: int) -> dict[str, AttributeValue | None]:
        """Return the attributes of the event of a batch."""
        return {f"spark.source.{index}.backlog_{unit}": value for unit, value in self._asdict().items()}


class Backlogs:
    """The backlogs of a run's sources, with the durations and rows of its last batches."""

    def __init__(self) -> None:
        self._last_batch = -1
        #: Duration in milliseconds, and rows by source.
        self._batches: deque[tuple[int, list[int]]] = deque(maxlen=_BATCHES)

    def after(self, progress: StreamingProgress) -> list[Backlog]:
        """Return the backlog of each source after a batch; a repeated batch does not count again."""
        took = progress.duration_ms.get("triggerExecution", 0)
        rows = [source.num_input_rows for source in progress.sources]
        if progress.batch_id > self._last_batch:
            self._last_batch = progress.batch_id
            if took > 0 and any(rows):
                self._batches.append((took, rows))
        return [self._of(index, source) for index, source in enumerate(progress.sources)]

    def _of(self, index: int, source: SourceProgress) -> Backlog:
        records = _records(source)
        return Backlog(
            records,
            _whole(source, "estimatedTotalBytesBehindLatest", "numBytesOutstanding"),
            _whole(source, "numFilesOutstanding"),
            self._seconds(index, source, records),
        )

    def _seconds(self, index: int, source: SourceProgress, records: int | None) -> float | None:
        behind = _metric(source, "maxMsBehindLatest")
        if behind is not None:
            return round(behind / 1000, 1)
        if not records:
            return None if records is None else 0.0
        rows = sum(rows[index] for _, rows in self._batches if index < len(rows))
        took = sum(took for took, _ in self._batches)
        return round(records * took / (rows * 1000), 1) if rows > 0 else None


def _records(source: SourceProgress) -> int | None:
    known = lags(source.end_offset, source.latest_offset)
    if known:
        return sum(known.values())
    average = _metric(source, "avgOffsetsBehindLatest")
    count = len(partitions(source.end_offset))
    return round(average * count) if average is not None and count else None


def _whole(source: SourceProgress, *names: str) -> int | None:
    found = [value for name in names if (value := _metric(source, name)) is not None]
    return round(found[0]) if found else None


def _metric(source: SourceProgress, name: str) -> float | None:
    """Return a metric of the source; Spark's metrics are strings, and a source may report any text."""
    try:
        value = float((source.metrics or {})[name])
    except (KeyError, TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None
