"""Queue of waiting attempts; retries have priority over first attempts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["WaitingAttempts"]

T = TypeVar("T")


class WaitingAttempts(Generic[T]):
    """Queue of waiting attempts; retries have priority over first attempts."""

    def __init__(self) -> None:
        self._again: deque[asyncio.Future[T]] = deque()
        self._first: deque[asyncio.Future[T]] = deque()

    def __len__(self) -> int:
        return sum(not waiting.done() for queue in (self._again, self._first) for waiting in queue)

    def __bool__(self) -> bool:
        return bool(self._again or self._first)

    def add(self, *, again: bool) -> asyncio.Future[T]:
        """Return the future of a new waiting attempt."""
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        (self._again if again else self._first).append(waiting)
        return waiting

    async def wait(self, *, again: bool, admit: Callable[[], object], undo: Callable[[T], object]) -> T:
        """Wait until the attempt is admitted, and return the result of its future.

        Args:
            again: whether the attempt is a retry.
            admit: admits waiting attempts, if possible.
            undo: gives an admission back if the attempt was admitted and cancelled at the same time.
        """
        waiting = self.add(again=again)
        admit()
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                undo(waiting.result())
            raise

    def pop(self) -> asyncio.Future[T] | None:
        """Remove and return the next attempt that is not cancelled; None if there is none."""
        while queue := self._again or self._first:
            waiting = queue.popleft()
            if not waiting.done():
                return waiting
        return None
