"""Calls of one key one after the other, in order; different keys at the same time (as in FLIP-425 and FLIP-519)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from spark_events.enrichment.engine.calls import Call, RowBatch
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.feed import Settle, Taken

__all__ = ["HotKey", "HotKeys", "KeyedQueues"]

#: A key with fewer rows is no news, however few calls may be in flight.
_LEAST_HOT = 20
_MOST_NAMED = 10


class KeyedQueues:
    """One lane a key: its head is called, the others wait behind it.

    Args:
        settle: for rows that are skipped.
        on_take: called when ``waiting`` has become less.
        skip_after_failure: rows behind one that failed are not called: the batch will be run again, and then they
            would have been called before it.
        hot: counts the keys.
    """

    def __init__(self, settle: Settle, on_take: Callable[[], None], *, skip_after_failure: bool, hot: HotKeys) -> None:
        self.held = 0
        self._settle = settle
        self._on_take = on_take
        self._skip = skip_after_failure
        self.waiting = 0
        self._hot = hot
        self._ready: deque[Call] = deque()
        # A key is here while one of its rows is ready or in flight; most keys never have a second row waiting.
        self._lanes: dict[Hashable, deque[tuple[RowBatch, int]] | None] = {}
        self._broken: set[Hashable] = set()

    def add(self, batch: RowBatch, indices: Sequence[int]) -> None:
        """Rows to be called, in their order."""
        keys = batch.chunk.keys
        assert keys is not None
        failed = batch.chunk.failed or {}
        # These are settled already, but what stands behind them in their lanes must know.
        for index in sorted({*indices, *failed}) if failed and self._skip else indices:
            key = keys[index]
            if index in failed:
                self._broken.add(key)
                continue
            self._hot.count(key)
            if key in self._broken:
                self._settle(batch, index, _skipped())
            elif key not in self._lanes:
                self._lanes[key] = None
                self._ready.append(Call(batch, index))
                self.waiting += 1
            else:
                lane = self._lanes[key]
                if lane is None:
                    lane = self._lanes[key] = deque()
                lane.append((batch, index))
                self.held += 1

    def take(self) -> Taken | None:
        """The next call; None when all keys are busy."""
        if not self._ready:
            return None
        self.waiting -= 1
        self._on_take()
        call = self._ready.popleft()
        return call.batch, call.index, call

    def ended(self, call: Call, failure: RowFailure | None, *, abandoned: bool = False) -> None:
        """The next row of the key may go."""
        assert call.batch.chunk.keys is not None
        key = call.batch.chunk.keys[call.index]
        if abandoned or (self._skip and failure is not None):
            # What still runs must not be overtaken either.
            self._broken.add(key)
            skipped = self._lanes.pop(key) or deque()
            self.held -= len(skipped)
            for batch, index in skipped:
                self._settle(batch, index, _skipped())
            return
        lane = self._lanes[key]
        if not lane:
            del self._lanes[key]
            return
        self.held -= 1
        # In front: a lane that is behind is what the batch will wait for at its end.
        self._ready.appendleft(Call(*lane.popleft()))
        self.waiting += 1

    def flush(self) -> None:
        """Lanes hold nothing back for want of rows."""


def _skipped() -> RowFailure:
    return RowFailure("skipped", "SkippedError", "not called: an earlier row of the same key has no answer")


class HotKey(NamedTuple):
    """A key that holds up the others.

    Attributes:
        key: it.
        rows: it has, at least.
    """

    key: Hashable
    rows: int


class HotKeys:
    """Counts rows by key in bounded memory (Misra and Gries): a count is too low by at most one row in ``room``.

    A key is hot when its rows, one after the other, take more than twice as long as the whole batch would with all
    calls in flight.

    Args:
        width: calls in flight.
    """

    def __init__(self, width: int) -> None:
        self.rows = 0
        self._width = width
        self._room = 4 * max(width, 64)
        self._counts: dict[Hashable, int] = {}

    def count(self, key: Hashable) -> None:
        """One more row of this key."""
        self.rows += 1
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < self._room:
            counts[key] = 1
        else:
            # Every such round takes one row off each of the counters, so there are at most rows / room of them.
            self._counts = {other: number - 1 for other, number in counts.items() if number > 1}

    def hot(self) -> list[HotKey]:
        """The hottest first; a few of them."""
        least = max(_LEAST_HOT, 2 * self.rows / self._width)
        found = [HotKey(key, rows) for key, rows in self._counts.items() if rows >= least]
        return sorted(found, key=lambda one: -one.rows)[:_MOST_NAMED]
