"""Ordered calls per key; calls for different keys run concurrently (as in FLIP-425 and FLIP-519)."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Hashable, Sequence

from spark_events.enrichment.engine.calls import Call, RowBatch
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.feed import Feed, Settle, Taken

__all__ = ["HotKeyTuning", "HotKeys", "KeyedQueues"]


class KeyedQueues(Feed):
    """Feed with one queue per key: the first row of a key is called, and the other rows wait for it.

    Args:
        settle: stores the failure of skipped rows.
        on_take: called with ``waiting`` when it has decreased.
        skip_after_failure: whether to skip the rows that follow a failed row of their key. When the batch runs again,
            these rows would otherwise have been called before the failed row.
        hot: counts rows per key.
    """

    def __init__(
        self, settle: Settle, on_take: Callable[[int], None], *, skip_after_failure: bool, hot: HotKeys
    ) -> None:
        super().__init__(on_take)
        self._settle = settle
        self._skip = skip_after_failure
        self._hot = hot
        self._ready: deque[Call] = deque()
        # Waiting rows of each key that has a row ready or in flight. None (the usual value): no further row waits.
        self._lanes: dict[Hashable, deque[tuple[RowBatch, int]] | None] = {}
        self._broken: set[Hashable] = set()

    def add(self, batch: RowBatch, indices: Sequence[int]) -> None:
        """Add rows that need a call, in order."""
        keys = batch.chunk.keys
        assert keys is not None
        failed = batch.chunk.failed or {}
        # Failed rows are already settled, but the later rows of their keys must be skipped.
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
                self.held_back += 1

    def take(self) -> Taken | None:
        """Return the next call, or None if all keys are busy."""
        if not self._ready:
            return None
        self.waiting -= 1
        self._on_take(self.waiting)
        call = self._ready.popleft()
        return call.batch, call.index, call, call.argument()

    def ended(self, call: Call, failure: RowFailure | None, *, abandoned: bool = False) -> None:
        """Release the next row of the key."""
        assert call.batch.chunk.keys is not None
        key = call.batch.chunk.keys[call.index]
        if abandoned or (self._skip and failure is not None):
            # An abandoned call may still be running, and the key's later rows must not overtake it.
            self._broken.add(key)
            skipped = self._lanes.pop(key) or deque()
            self.held_back -= len(skipped)
            for batch, index in skipped:
                self._settle(batch, index, _skipped())
            return
        lane = self._lanes[key]
        if not lane:
            del self._lanes[key]
            return
        self.held_back -= 1
        # Put the key first in the queue, because the key with the most rows determines when the batch is complete.
        self._ready.appendleft(Call(*lane.popleft()))
        self.waiting += 1


def _skipped() -> RowFailure:
    return RowFailure("skipped", "SkippedError", "not called: an earlier row of the same key has no answer")


@dataclasses.dataclass(frozen=True, slots=True)
class HotKeyTuning:
    """Constants of :class:`HotKeys`.

    Attributes:
        min_rows: a key with fewer rows than this is never reported as hot, whatever the number of calls in flight.
        max_named: maximum number of keys that are reported.
        min_width: the number of counters is a multiple of the number of calls in flight, but at least of this number.
        room_ratio: this multiple.
    """

    min_rows: int = 20
    max_named: int = 10
    min_width: int = 64
    room_ratio: int = 4


class HotKeys:
    """Counter of rows per key in bounded memory (Misra-Gries algorithm).

    A count is too low by at most ``rows / room``. A key is hot if its rows, called one after another, take more than
    twice as long as the whole batch with all calls in flight.

    Args:
        width: the maximum number of calls in flight.
        tuning: constants.
    """

    def __init__(self, width: int, tuning: HotKeyTuning | None = None) -> None:
        self._tuning = tuning or HotKeyTuning()
        self.rows = 0
        self._width = width
        self._room = self._tuning.room_ratio * max(width, self._tuning.min_width)
        self._counts: dict[Hashable, int] = {}

    def count(self, key: Hashable) -> None:
        """Count one row of this key."""
        self.rows += 1
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < self._room:
            counts[key] = 1
        else:
            # Each of these rounds subtracts one row from every counter, so there are at most rows / room rounds.
            self._counts = {other: number - 1 for other, number in counts.items() if number > 1}

    def hot(self) -> list[tuple[Hashable, int]]:
        """Return some of the hot keys with a lower bound of their rows, the hottest key first."""
        least = max(self._tuning.min_rows, 2 * self.rows / self._width)
        found = [(key, rows) for key, rows in self._counts.items() if rows >= least]
        return sorted(found, key=lambda one: -one[1])[: self._tuning.max_named]
