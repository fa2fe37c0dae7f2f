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
        self._through = -1
        self._at = 0
        self._processed: deque[_Unwritten] = deque(maxlen=_MOST_BATCHES)

    def processed(self, progress: StreamingProgress) -> None:
        """Note a batch whose entry may be written later."""
        offsets = [offset_text(source.end_offset) for source in progress.sources]
        self._processed.append(_Unwritten(progress.batch_id, progress.rows, offsets))

    def written(self, through: int | None, at: int) -> Iterator[Draft]:
        """Report the batches that the last entry commits, as one event.

        Args:
            through: the batch of the entry; None if it is unknown.
            at: time of the report that names the entry, in milliseconds since the epoch.
        """
        if through is None:
            return
        self._through, self._at = through, at
        if not 0 < self._quiet_until - at <= self._interval:
            yield from self.flush()

    def flush(self) -> Iterator[Draft]:
        """Report the batches of the entries that the last event does not contain."""
        covered = []
        while self._processed and self._processed[0].batch_id <= self._through:
            covered.append(self._processed.popleft())
        if covered:
            self._quiet_until = self._at + self._interval
            self._run.batches.committed_offsets = covered[-1].offsets
            yield self._draft(covered)

    def _draft(self, covered: list[_Unwritten]) -> Draft:
        first, last = covered[0].batch_id, covered[-1].batch_id
        offsets = msgspec.json.encode(covered[-1].offsets).decode()
        which = f"batch {last}" if first == last else f"batches {first} to {last}"
        rows = counted(sum(batch.rows for batch in covered), "row")
        # Rows and number of batches are no attributes, because a sum over all events would contain them twice.
        return Draft(
            name="CommitWrittenEvent",
            class_scope="spark.streaming.query",
            key=("commit-written", self._run.run_id, last),
            body=f"The commit of {which} of {self._run.subject} is written: {rows}",
            severity=Severity.INFO,
            observed_ts_millis=self._at,
            attributes=present(
                {
                    **self._run.scope_variables,
                    "spark.batch.id": last,
                    "spark.batch.first_id": first,
                    "spark.batch.committed": True,
                    "spark.streaming.query.committed_offsets": offsets,
                }
            ),
        )
