"""Release of the data that a settled batch stores, at the query's next enriched batch or when the query ends."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_events.enrichment.driver.micro_batch import MicroBatch, is_connect, running

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)

Release = Callable[[], None]


@dataclasses.dataclass(slots=True)
class _Holding:
    """A batch, and the functions that release its data: always, and only if the batch is committed."""

    batch: MicroBatch
    releases: list[Release] = dataclasses.field(default_factory=list)
    when_committed: list[Release] = dataclasses.field(default_factory=list)


class Held:
    """Functions that release the data of the current batches of this process, by query."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holding: dict[str, _Holding] = {}
        self._watched: set[str] = set()

    def begin(self, df: DataFrame, batch: MicroBatch) -> None:
        """Register a batch that starts an enrichment, and release the data of the query's previous batch."""
        if not _is_followed(batch):
            return
        with self._lock:
            holding = self._holding.get(batch.query)
            if holding is not None and holding.batch == batch:
                return
            self._holding[batch.query] = _Holding(batch)
        if holding is not None:
            _all(holding.releases)
        self._watch(df, batch)

    def add(self, batch: MicroBatch, release: Release | None, when_committed: Release | None = None) -> None:
        """Register functions that release a batch's data.

        Outside of streaming, the functions are ignored: Spark releases the data when no object refers to it.

        Args:
            batch: the batch that stored the data.
            release: called at the query's next enriched batch, or when the query ends.
            when_committed: called when the query ends, but only if this batch is committed. At the next batch, the
                caller itself deletes the older data.
        """
        if not _is_followed(batch):
            return
        with self._lock:
            holding = self._holding.get(batch.query)
            if holding is not None and holding.batch == batch:
                if release is not None:
                    holding.releases.append(release)
                if when_committed is not None:
                    holding.when_committed.append(when_committed)
                return
        # The query was stopped during the calls, so this batch will never be committed.
        if release is not None:
            _all([release])

    def end(self, batch: MicroBatch, last_committed: int | None) -> None:
        """Release the data of a query's batches after the query's run has ended.

        Args:
            batch: a batch of the ended run.
            last_committed: the number of the run's last committed batch, or None if unknown.
        """
        with self._lock:
            self._watched.discard(_run(batch))
            holding = self._holding.get(batch.query)
            if holding is None or holding.batch.run != batch.run:
                # The query was restarted, so the registered functions belong to the new run.
                return
            del self._holding[batch.query]
        _all(holding.releases)
        if last_committed is not None and holding.batch.batch == last_committed:
            _all(holding.when_committed)

    def _watch(self, df: DataFrame, batch: MicroBatch) -> None:
        """Wait in a thread until the query terminates. A listener would instead call Python from Spark's own thread."""
        if is_connect(df):
            return
        try:
            query = running(df, batch.spark_query)
        except Exception as error:
            _LOG.warning(
                "%s: Spark does not give access to its query (%s); its last stored result stays until the "
                "application ends",
                batch, error,
            )  # fmt: skip
            return
        if query is None:
            return
        with self._lock:
            if _run(batch) in self._watched:
                return
            self._watched.add(_run(batch))

        def wait() -> None:
            with contextlib.suppress(Exception):  # the query's error does not matter here
                query.awaitTermination()
            committed = None
            with contextlib.suppress(Exception):
                # The last progress may be from a trigger that found no data.
                with_data = [one for one in query.recentProgress if "addBatch" in one["durationMs"]]
                committed = int(with_data[-1]["batchId"]) if with_data else None
            self.end(batch, committed)

        threading.Thread(target=wait, name=f"enrich-release-{batch.query[:8]}", daemon=True).start()


def _is_followed(batch: MicroBatch) -> bool:
    """Return whether the batch's data will be released at the query's next batch or when the query terminates."""
    return batch.streams and bool(batch.query) and batch.batch is not None


def _run(batch: MicroBatch) -> str:
    return f"{batch.query}/{batch.run}"


def _all(releases: list[Release]) -> None:
    for release in releases:
        try:
            release()
        except Exception as error:
            # If the session was stopped, Spark has already released the data.
            _LOG.debug("the stored data of a batch was not released: %s", error)


#: The instance for this process.
held = Held()
