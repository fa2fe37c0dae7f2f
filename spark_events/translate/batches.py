"""Which batches of a run have been told: a set of numbers that mostly follow each other."""

from __future__ import annotations

__all__ = ["Batches"]

#: Runs of numbers that are kept apart; gaps only come from records that were lost.
_LIMIT = 1_000


class Batches:
    """A set of batch numbers in the memory of a few, however many they are."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []

    def add(self, batch: int) -> bool:
        """Takes a number in; False where it was there already."""
        ranges = self._ranges
        at = len(ranges)
        while at and ranges[at - 1][0] > batch:
            at -= 1
        # Everything before `at` begins at or before the batch.
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
            # What is missing between the two oldest ranges will not come any more.
            ranges[0][1] = ranges.pop(1)[1]
        return True
