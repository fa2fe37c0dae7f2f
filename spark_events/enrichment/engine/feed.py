"""Order of the calls: the protocol, and the plain order; other modules implement keyed and bulk order."""

from __future__ import annotations

import abc
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from spark_events.enrichment.engine.calls import Call, RowBatch
from spark_events.enrichment.engine.failure import RowFailure

#: Batch and index of a row, its call, and the row. Without a call, the pool creates the call on demand. Without a row,
#: the call has several rows.
Taken = tuple[RowBatch, int, Call | None, Any]
#: Function that stores the answer of a row.
Settle = Callable[[RowBatch, int, Any], None]


class LowMark:
    """Call a function when few calls wait, once for each admitted batch.

    Args:
        low: the largest number of waiting calls that counts as low.
        on_low: the function.
    """

    def __init__(self, low: int, on_low: Callable[[], None]) -> None:
        self._low = low
        self._on_low = on_low
        self._is_reported = False

    def rearm(self, waiting: int) -> None:
        """Record that a batch was admitted."""
        self._is_reported = False
        self.look(waiting)

    def look(self, waiting: int) -> None:
        """Call the function if few calls wait."""
        if not self._is_reported and waiting <= self._low:
            self._is_reported = True
            self._on_low()


class Feed(abc.ABC):
    """Source of calls for the runners of the pool; used by the loop's thread only.

    Args:
        on_take: called with ``waiting`` when it has decreased.

    Attributes:
        waiting: the number of calls that can start now.
        held_back: the number of rows that wait for something other than a runner.
        take: returns the next call, or None if there is none at the moment.
    """

    take: Callable[[], Taken | None]

    def __init__(self, on_take: Callable[[int], None]) -> None:
        self._on_take = on_take
        self.waiting = self.held_back = 0

    @abc.abstractmethod
    def add(self, batch: RowBatch, indices: Sequence[int]) -> None:
        """Add rows that need a call, in order."""

    def ended(self, call: Call, failure: RowFailure | None, *, abandoned: bool = False) -> None:
        """Record that a call has been settled; an abandoned call may still be running."""
        return None

    def flush(self) -> None:
        """Release all rows held back for more input, because none is expected soon."""
        return None


class InOrder(Feed):
    """Feed that calls rows in order of arrival, one row per call.

    Args:
        on_take: called with ``waiting`` when it has decreased.
        block_rows: number of rows that are counted together, which is cheaper; ``waiting`` is too low by less than this
            number.
    """

    def __init__(self, on_take: Callable[[int], None], block_rows: int) -> None:
        super().__init__(on_take)
        self._block_rows = block_rows
        self._batches: deque[tuple[RowBatch, Sequence[int]]] = deque()
        # Endless iterators keep the position in C code and need no Python code per row.
        self.take = itertools.chain.from_iterable(self._blocks()).__next__

    def add(self, batch: RowBatch, indices: Sequence[int]) -> None:
        self._batches.append((batch, indices))
        self.waiting += len(indices)

    def _blocks(self) -> Iterator[Iterable[Taken | None]]:
        while True:
            if not self._batches:
                yield (None,)
                continue
            batch, indices = self._batches.popleft()
            # Iterating over all rows is faster than reading them one by one.
            rows = iter(batch.rows) if len(indices) == len(batch.rows) else map(batch.rows.__getitem__, indices)
            for start in range(0, len(indices), self._block_rows):
                block = indices[start : start + self._block_rows]
                self.waiting -= len(block)
                self._on_take(self.waiting)
                # `rows` comes last: at the end of `block`, zip takes no row.
                yield zip(itertools.repeat(batch), block, itertools.repeat(None), rows)
