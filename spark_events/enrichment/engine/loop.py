"""Event loop of a worker process: one thread, which starts on first use and outlives tasks and micro-batches.

A Python worker runs many tasks. One loop per task, as with ``asyncio.run``, would close all connections after each
task.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import queue
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from spark_events.loops import unwind

__all__ = ["BackgroundLoop"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Time limit for a loop to stop at interpreter exit, in seconds; a call may block the loop.
_EXIT_SECONDS = 1.0


class BackgroundLoop:
    """A running event loop in a daemon thread; uses uvloop if it is installed."""

    def __init__(self) -> None:
        self.loop, self.kind = _new_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="spark-events-enrich", daemon=True)
        self._thread.start()
        _running.add(self)

    @property
    def thread_id(self) -> int:
        """Id of the loop's thread, as in ``sys._current_frames()``."""
        assert self._thread.ident is not None
        return self._thread.ident

    def mailbox(self) -> queue.SimpleQueue[Any]:
        """Return a queue in which another thread waits for messages from the loop."""
        return queue.SimpleQueue()

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop; must be called from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    @contextlib.contextmanager
    def running(self, work: Callable[[], Coroutine[Any, Any, None]]) -> Iterator[None]:
        """Run work on the loop during a block, and cancel it afterwards.

        If a user's function cancels all tasks of the loop, the work starts again: calls wait for its result.
        """
        is_over = False

        async def keep() -> None:
            while not (is_over or self._closing):
                with contextlib.suppress(asyncio.CancelledError):
                    return await work()

        kept = self.submit(keep())
        try:
            yield
        finally:
            is_over = True
            with contextlib.suppress(RuntimeError):  # the loop ended with its process
                kept.cancel()

    def end(self) -> None:
        """Stop the loop and its thread without waiting; only the owner may call this method, from any thread."""
        self._closing = True
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def close(self, timeout: float) -> None:
        """Stop the loop and wait up to ``timeout`` seconds for its thread, which a call may block."""
        self.end()
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._closing:
            # User code may stop the loop, or raise SystemExit in a task, but other calls still need the loop.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        unwind(self.loop)
        self.loop.close()


_running: weakref.WeakSet[BackgroundLoop] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """Stop all loops at interpreter exit.

    A loop implemented in C that wakes up after the interpreter is finalized would crash with SIGSEGV.
    """
    # In a forked process, the threads of the parent do not exist.
    ours = [one for one in _running if one._thread.is_alive()]
    for one in ours:
        one.end()
    for one in ours:
        one._thread.join(_EXIT_SECONDS)


def _new_loop() -> tuple[asyncio.AbstractEventLoop, str]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop(), "asyncio"
    return uvloop.new_event_loop(), "uvloop"
