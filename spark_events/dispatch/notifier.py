"""Wake the thread of a worker as cheaply as its reporter allows."""

from __future__ import annotations

import asyncio
import contextlib
import threading

__all__ = ["WorkerNotifier"]


class WorkerNotifier:
    """Wake-up signal that any thread sends and one thread waits for.

    Several notifications before the next wait count as one.

    Waking an event loop needs a system call and two iterations of the loop. That costs four times as much as waking a
    thread that waits for a lock. Therefore the worker's thread waits for a lock, and its loop stands still, until the
    reporter has tasks or connections in the loop.

    Args:
        loop: the event loop of the waiting thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._in_loop = False
        self._event = asyncio.Event()
        # Held while there is no notification; notify() releases it.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait_in_loop(self) -> None:
        """Keep the loop running during all later waits.

        Only the waiting thread may call this, before it checks for work.
        """
        self._in_loop = True

    def notify(self) -> None:
        """End the current wait, or the next one."""
        # A RuntimeError means that a notification is already pending.
        with contextlib.suppress(RuntimeError):
            self._lock.release()
        if self._in_loop:
            # A RuntimeError means that the loop is closed.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Discard earlier notifications.

        Only the waiting thread may call this, before it checks for work.
        """
        self._lock.acquire(blocking=False)
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait for a notification, at most ``timeout`` seconds."""
        if not self._in_loop:
            self._lock.acquire(timeout=-1 if timeout is None else timeout)
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout)
