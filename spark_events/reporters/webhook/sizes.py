"""How many events a request has, while the receiver refuses some of them or takes less at once."""

from __future__ import annotations

__all__ = ["Sizes"]

#: So many requests in a row were taken: perhaps the receiver takes larger ones by now.
_PATIENCE = 16


class Sizes:
    """What is refused is halved until it is taken, or one event is found that is at fault.

    Args:
        most: what the format allows.

    Attributes:
        next: events of the next request.
    """

    def __init__(self, most: int) -> None:
        self.next = most
        self._most = self._limit = most
        self._taken = 0

    def taken(self) -> None:
        """A request was taken; the next one may be larger, but hardly than what was too large a moment ago."""
        self._taken += 1
        if self._limit < self._most and self._taken >= _PATIENCE:
            self._limit = min(self._limit * 2, self._most)
            self._taken = 0
        self.next = min(self.next * 2, self._limit)

    def refused(self, events: int, *, too_large: bool) -> None:
        """A request of so many events was refused."""
        if events == 1:
            # It was this one event, and not how many there were.
            self.next = self._limit = self._most
            return
        self.next = events // 2
        if too_large:
            self._limit = self.next
            self._taken = 0
