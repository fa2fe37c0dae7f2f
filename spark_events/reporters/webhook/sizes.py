"""Number of events per request, adapted to what the receiver accepts."""

from __future__ import annotations

#: After this many accepted requests in a row, try larger requests again.
_PATIENCE = 16


class Sizes:
    """Request size that halves on refusal and doubles on success.

    Args:
        most: maximum of the format.

    Attributes:
        next: number of events in the next request.
    """

    def __init__(self, most: int) -> None:
        self.next = most
        self._most = self._limit = most
        self._taken = 0

    def taken(self) -> None:
        """Record an accepted request; the next one may be larger, up to the current limit."""
        self._taken += 1
        if self._limit < self._most and self._taken >= _PATIENCE:
            self._limit = min(self._limit * 2, self._most)
            self._taken = 0
        self.next = min(self.next * 2, self._limit)

    def refused(self, events: int, *, too_large: bool) -> None:
        """Record a refused request.

        Args:
            events: number of events in the request.
            too_large: whether the receiver refused its size.
        """
        if events == 1:
            # A single event was refused, so the size of requests was not the reason.
            self.next = self._limit = self._most
            return
        self.next = events // 2
        if too_large:
            self._limit = self.next
            self._taken = 0
