"""Gives back what settled batches take: at the query's next batch, and when the query ends."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_events.enrichment.driver.micro_batch import MicroBatch, is_connect, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Held", "held"]

_LOG = logging.getLogger(__name__)

Release = Callable[[], None]


class Held:
    """What the batches of all queries of this process hold, by query."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holding: dict[str, tuple[MicroBatch, list[Release]]] = {}
        self._committed: dict[str, list[Release]] = {}
        self._watched: set[str] = set()

    def begin(self, df: DataFrame, batch: MicroBatch) -> None:
        """A batch asks for its first or a further enrichment: what an earlier batch of its query held is released."""
        if not _is_followed(batch):
            return
        with self._lock:
            holding = self._holding.get(batch.query)
            if holding is not None and holding[0] == batch:
                return
            self._holding[batch.query] = (batch, [])
            self._committed.pop(batch.query, None)
        if holding is not None:
            _all(holding[1])
        self._watch(df, batch)

    def add(self, batch: MicroBatch, release: Release | None, when_committed: Release | None = None) -> None:
        """To be released with the batch; outside of streaming Spark does it, when nobody refers to it any more.

        Args:
            batch: whose it is.
            release: at the query's next batch and at its end.
            when_committed: at its end alone, and if this batch is committed then; the next batch sees to it itself.
        """
        if not _is_followed(batch):
            return
        with self._lock:
            holding = self._holding.get(batch.query)
            if holding is not None and holding[0] == batch:
                if release is not None:
                    holding[1].append(release)
                if when_committed is not None:
                    self._committed.setdefault(batch.query, []).append(when_committed)
                return
        # The query was stopped while the calls were made: nobody will commit this batch.
        if release is not None:
            _all([release])

    def end(self, batch: MicroBatch, last_committed: int | None) -> None:
        """The run of this batch's query has ended; its last batch is committed, or is not."""
        query = batch.query
        with self._lock:
            self._watched.discard(_run(batch))
            holding = self._holding.get(query)
            if holding is None or holding[0].run != batch.run:
                # It has been started anew already, and what is held is of that run.
                return
            del self._holding[query]
            committed = self._committed.pop(query, [])
        _all(holding[1])
        if last_committed is not None and holding[0].batch == last_committed:
            _all(committed)

    def _watch(self, df: DataFrame, batch: MicroBatch) -> None:
        """Waits for the query's end in a thread: a listener would call into Python from Spark's own thread."""
        if is_connect(df):
            return
        try:
            query = running(df, batch.spark_query)
        except Exception as error:
            _LOG.warning("the end of %s will not be seen; what it stores stays: %s", batch, error)
            return
        if query is None:
            return
        with self._lock:
            if _run(batch) in self._watched:
                return
            self._watched.add(_run(batch))

        def wait() -> None:
            with contextlib.suppress(Exception):  # why it has failed is its own affair
                query.awaitTermination()
            committed = None
            with contextlib.suppress(Exception):
                # The last one may be of a trigger that found nothing to do.
                told = [one for one in query.recentProgress if "addBatch" in one["durationMs"]]
                committed = int(told[-1]["batchId"]) if told else None
            self.end(batch, committed)

        threading.Thread(target=wait, name=f"enrich-release-{batch.query[:8]}", daemon=True).start()


def _is_followed(batch: MicroBatch) -> bool:
    """Whether the next batch of its query, or the query's end, says that nobody needs it any more."""
    return batch.streams and bool(batch.query) and batch.batch is not None


def _run(batch: MicroBatch) -> str:
    return f"{batch.query}/{batch.run}"


def _all(releases: list[Release]) -> None:
    for release in releases:
        try:
            release()
        except Exception as error:
            # With a session that is stopped, everything has been released already.
            _LOG.debug("what a batch held was not released: %s", error)


#: Of this process.
held = Held()
