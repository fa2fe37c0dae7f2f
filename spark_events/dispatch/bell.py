"""How a worker is told that there is something to do, as cheaply as its reporter allows."""

from __future__ import annotations

import asyncio
import contextlib
import threading

__all__ = ["Bell"]


class Bell:
    """Rung from whatever thread, heard by one; rung twice before it is heard, it is heard once.

    To wake an event loop takes a system call and two of the loop's rounds, which is most of what an event of a
    synchronous dispatcher costs; to wake a thread that waits for a lock takes a quarter of that. So the thread
    waits for a lock, and its loop stands still, as long as nothing lives in that loop.

    Args:
        loop: the loop of the thread that hears it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._in_loop = False
        self._event = asyncio.Event()
        # Held while the bell is silent: who rings lets it go.
        self._silent = threading.Lock()
        self._silent.acquire()

    def wait_in_loop(self) -> None:
        """From now on the loop goes on while it is waited; for the hearing thread, before it looks for work."""
        self._in_loop = True

    def ring(self) -> None:
        """From whatever thread."""
        # It has been rung already.
        with contextlib.suppress(RuntimeError):
            self._silent.release()
        if self._in_loop:
            # A loop that has ended needs no waking.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)

    def silence(self) -> None:
        """Forgets that it was rung."""
        self._silent.acquire(blocking=False)
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> None:
        """Until it is rung, or until so many seconds have passed."""
        if not self._in_loop:
            self._silent.acquire(timeout=-1 if timeout is None else timeout)
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout)
