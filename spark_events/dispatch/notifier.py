"""Wakes a worker's thread, as cheaply as its reporter allows."""

from __future__ import annotations

import asyncio
import contextlib
import threading

__all__ = ["WorkerNotifier"]


class WorkerNotifier:
    """Notified by any thread, waited for by one; notifications before the next wait count as one.

    Waking an event loop takes a system call and two rounds of the loop, four times as long as waking a thread that
    waits for a lock. So the worker's thread waits for a lock, and its loop stands still, until something lives in
    that loop.

    Args:
        loop: the loop of the thread that waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._in_loop = False
        self._event = asyncio.Event()
        # Held while there is no notification; notify() releases it.
        self._lock = threading.Lock()
        self._lock.acquire()

    def wait_in_loop(self) -> None:
        """Keep the loop running during all further waits; for the waiting thread, before it looks for work."""
        self._in_loop = True

    def notify(self) -> None:
        """End the current wait, or the next one."""
        # RuntimeError: notified already.
        with contextlib.suppress(RuntimeError):
            self._lock.release()
        if self._in_loop:
            # RuntimeError: the loop has ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Forget earlier notifications; for the waiting thread, before it looks for work."""
        self._lock.acquire(blocking=False)
        self._event.clear()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until notified, at most ``timeout`` seconds."""
        if not self._in_loop:
            self._lock.acquire(timeout=-1 if timeout is None else timeout)
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout)
