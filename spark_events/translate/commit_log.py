"""Entries of a query's commit log, the checkpoint's folder ``commits/``, that Spark writes after its progress reports.

With asynchronous progress tracking, Spark processes several batches before it writes one entry, which commits all of
them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from spark_events.event import Severity
from spark_events.records.query_progress import StreamingProgress
from spark_events.translate.draft import Draft, counted, present
from spark_events.translate.offsets import offset_text
from spark_events.translate.queries import Run

__all__ = ["CommitLog"]

#: Maximum number of batches to remember without an entry; Spark writes one each second by default.
_MOST_BATCHES = 10_000


class _Unwritten(NamedTuple):
    """A batch without an entry; ``offsets`` are the ends of its sources."""

    batch_id: int
    rows: int
    offsets: list[str | None]


class CommitLog:
    """The batches of a run that are processed, and that no entry commits yet.

    Args:
        run: the run.
        interval: minimum time between two events, in milliseconds.
    """

    def __init__(self, run: Run, interval: int) -> None:
        self._run = run
        self._interval = interval
        self._quiet_until = 0
        self._processed: deque[_Unwritten] = deque(maxlen=_MOST_BATCHES)

    def processed(self, progress: StreamingProgress) -> None:
        """Note a batch whose entry may be written later."""
        offsets = [offset_text(source.end_offset) for source in progress.sources]
        self._processed.append(_Unwritten(progress.batch_id, progress.rows, offsets))

    def written(self, through: int | None, at: int, *, is_end: bool = False) -> Iterator[Draft]:
        """Report the batches that the last entry commits, as one event.

        Args:
            through: the batch of the entry; None if it is unknown.
            at: time of the report that names the entry, in milliseconds since the epoch.
            is_end: whether the run has ended, so that no later event can contain these batches.
        """
        if through is None or not self._processed or through < self._processed[0].batch_id:
            return
        if not is_end and 0 < self._quiet_until - at <= self._interval:
            return
        self._quiet_until = at + self._interval
        covered = []
        while self._processed and self._processed[0].batch_id <= through:
            covered.append(self._processed.popleft())
        self._run.committed_offsets = covered[-1].offsets
        yield self._draft(covered, at)

    def _draft(self, covered: list[_Unwritten], at: int) -> Draft:
        first, last = covered[0].batch_id, covered[-1].batch_id
        rows = sum(batch.rows for batch in covered)
        offsets = msgspec.json.encode(covered[-1].offsets).decode()
        which = f"batch {last}" if first == last else f"batches {first} to {last}"
        return Draft(
            name="CommitWrittenEvent",
            class_scope="spark.streaming.query",
            key=("commit-written", self._run.run_id, last),
            body=f"The commit of {which} of query '{self._run.title}' is written: {counted(rows, 'row')}",
            severity=Severity.INFO,
            observed_ts_millis=at,
            attributes=present(
                {
                    **self._run.scope_variables,
                    "spark.batch.id": last,
                    "spark.batch.first_id": first,
                    "spark.batch.count": len(covered),
                    "spark.batch.committed": True,
                    "spark.batch.rows_input": rows,
                    "spark.streaming.query.committed_offsets": offsets,
                }
            ),
        )
