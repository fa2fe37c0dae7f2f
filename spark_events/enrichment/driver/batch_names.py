"""Names of the enrichments of the latest micro-batches, to detect two enrichments with one name."""

from __future__ import annotations

import threading
from collections import OrderedDict

from spark_events.enrichment.driver.micro_batch import MicroBatch

#: Maximum number of queries whose latest batch is remembered.
_MOST_QUERIES = 100


class BatchNames:
    """Definitions by name, for the latest batch of each query."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._batches: OrderedDict[str, tuple[MicroBatch, dict[str, str]]] = OrderedDict()

    def is_taken(self, batch: MicroBatch, name: str, definition: str) -> bool:
        """Return whether another enrichment of this batch has the name; register the name if it is free.

        Outside of streaming, a batch has no identity, so the answer is False.

        Args:
            batch: the batch of the enrichment.
            name: the name of the enrichment.
            definition: digest of its function, columns and output.
        """
        if not batch.streams or not batch.query or batch.batch is None:
            return False
        with self._lock:
            found, definitions = self._batches.pop(batch.query, (batch, {}))
            if found != batch:
                definitions = {}
            self._batches[batch.query] = (batch, definitions)
            while len(self._batches) > _MOST_QUERIES:
                self._batches.popitem(last=False)
            return definitions.setdefault(name, definition) != definition


#: The instance for this process.
names = BatchNames()
