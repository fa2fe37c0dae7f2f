"""Event loop whose clock jumps to the next timer. Waiting takes no time, and runs are deterministic."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["VirtualLoop", "run"]

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "nothing is scheduled: the program would wait forever"
        self.loop.now += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop in virtual time, without I/O."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.Handle:
        """Like ``call_soon``: other threads run only while the loop waits for them, see :mod:`virtual_engine`."""
        return self.call_soon(callback, *args, context=context)


def run(work: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Run a coroutine, and return its result and its virtual duration in seconds."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(work), loop.now
    finally:
        loop.close()
