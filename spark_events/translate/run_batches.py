"""Batches of a run of a query: which one runs, and how far the commits are."""

from __future__ import annotations

__all__ = ["RunBatches"]


class RunBatches:
    """State of the batches of one run; the number of a batch that is not known is -1.

    Attributes:
        last_reported: the last batch with a progress report.
        last_committed: the last batch that is known to be committed.
        last_with_jobs: the last batch with a job.
        is_running: whether a batch has begun whose progress is not reported yet.
        is_asynchronous: whether Spark writes the commits later than it reports the batches.
        committed_offsets: the end of the last written commit, one text for each source.
    """

    def __init__(self) -> None:
        self.last_reported = self.last_committed = self.last_with_jobs = -1
        self.is_running = False
        self.is_asynchronous = False
        self.committed_offsets: list[str | None] = []

    def begin(self, batch: int) -> None:
        """Mark a batch as running until its progress is reported."""
        self.last_with_jobs = max(self.last_with_jobs, batch)
        self.is_running = batch > self.last_committed

    def follow(self, earlier: RunBatches) -> None:
        """Copy the state that the query's checkpoint carries over from the preceding run.

        If the earlier run's commits are unknown, the next batch may be an earlier one.
        """
        if not earlier.is_asynchronous:
            self.last_committed = earlier.last_committed
        self.committed_offsets = earlier.committed_offsets

    @property
    def under_way(self) -> int | None:
        """Number of the current batch, derived from the query's jobs and commits."""
        after_commit = self.last_committed + 1 if self.last_committed >= 0 else -1
        batch = max(after_commit, self.last_with_jobs)
        return batch if batch >= 0 else None
