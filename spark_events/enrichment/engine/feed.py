"""In which order rows are called: as they come, here; by key and in bulk, in files of their own."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from spark_events.enrichment.engine.calls import Call, RowBatch
from spark_events.enrichment.engine.failure import RowFailure

__all__ = ["Feed", "InOrder", "Settle", "Taken"]

#: Counted by so many, which costs less than one by one; ``waiting`` is too low by less than that.
_BLOCK = 32
#: A row to be called; None in place of a call that is for this row alone, which nobody needs while nothing goes wrong.
Taken = tuple[RowBatch, int, Call | None]
#: Tells a row's answer.
Settle = Callable[[RowBatch, int, Any], None]


class Feed(Protocol):
    """Where the pool's workers get their calls from; for the loop's thread alone.

    Attributes:
        waiting: calls that could begin now.
        held: rows that wait for something else than a worker.
    """

    waiting: int
    held: int

    def add(self, batch: RowBatch, indices: Sequence[int]) -> None:
        """Rows to be called, in their order."""

    def take(self) -> Taken | None:
        """The next call; None when there is none at the moment."""

    def ended(self, call: Call, failure: RowFailure | None, *, abandoned: bool = False) -> None:
        """A call that was taken has come to its end; abandoned, it may still be running."""

    def flush(self) -> None:
        """Nothing more will come for a while: hold nothing back."""


class InOrder:
    """Rows as they come, one call each.

    Args:
        on_take: called when ``waiting`` has become less.
    """

    def __init__(self, on_take: Callable[[], None]) -> None:
        self._on_take = on_take
        self.waiting = 0
        self.held = 0
        self._batches: deque[tuple[RowBatch, Sequence[int]]] = deque()
        # Iterators that never end: they keep their place by themselves, and C code walks them.
        self._next = itertools.chain.from_iterable(self._blocks()).__next__

    def add(self, batch: RowBatch, indices: Sequence[int]) -> None:
        self._batches.append((batch, indices))
        self.waiting += len(indices)

    def take(self) -> Taken | None:
        return self._next()

    def ended(self, call: Call, failure: RowFailure | None, *, abandoned: bool = False) -> None:
        pass

    def flush(self) -> None:
        pass

    def _blocks(self) -> Iterator[Iterable[Taken | None]]:
        while True:
            if not self._batches:
                yield (None,)
                continue
            batch, indices = self._batches.popleft()
            for start in range(0, len(indices), _BLOCK):
                block = indices[start : start + _BLOCK]
                self.waiting -= len(block)
                self._on_take()
                yield zip(itertools.repeat(batch), block, itertools.repeat(None))
