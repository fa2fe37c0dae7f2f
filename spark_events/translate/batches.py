"""Set of the batch numbers that a run has reported; most of them are consecutive."""

from __future__ import annotations

__all__ = ["Batches"]

#: Maximum number of separate ranges; only lost records leave gaps between ranges.
_LIMIT = 1_000


class Batches:
    """Set of batch numbers, stored as ranges."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []

    def add(self, batch: int) -> bool:
        """Add a number; return False if the set already contains it."""
        ranges = self._ranges
        at = len(ranges)
        while at and ranges[at - 1][0] > batch:
            at -= 1
        # Every range before index `at` begins at or before the batch.
        if at and batch <= ranges[at - 1][1]:
            return False
        joins_left = bool(at) and ranges[at - 1][1] == batch - 1
        joins_right = at < len(ranges) and ranges[at][0] == batch + 1
        if joins_left and joins_right:
            ranges[at - 1][1] = ranges.pop(at)[1]
        elif joins_left:
            ranges[at - 1][1] = batch
        elif joins_right:
            ranges[at][0] = batch
        else:
            ranges.insert(at, [batch, batch])
        if len(ranges) > _LIMIT:
            # Limit the memory: treat the missing batches between the two oldest ranges as reported.
            ranges[0][1] = ranges.pop(1)[1]
        return True
