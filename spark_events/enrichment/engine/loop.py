"""The event loop of a worker process: one thread, started when first needed, that outlives tasks and micro-batches.

A Python worker serves many tasks. A loop for each would close every connection with it, and so would ``asyncio.run``.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, TypeVar

from spark_events.loops import unwind

__all__ = ["BackgroundLoop"]

_LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: How long the interpreter's end waits for a loop, which a call may block.
_EXIT_SECONDS = 1.0


class BackgroundLoop:
    """A running event loop in a daemon thread; uvloop's, where that is installed."""

    def __init__(self) -> None:
        self.loop, self.kind = _new_loop()
        # All calls use its threads, in this task and in later ones; a call that ends them would end them for all.
        self.loop.shutdown_default_executor = _leave_it  # type: ignore[method-assign]
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="spark-events-enrich", daemon=True)
        self._thread.start()
        _running.add(self)

    @property
    def thread_id(self) -> int:
        """As in ``sys._current_frames()``."""
        assert self._thread.ident is not None
        return self._thread.ident

    def submit(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Runs a coroutine on the loop; for any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def end(self) -> None:
        """Ends the loop, for its owner alone, in any thread; its thread ends soon."""
        self._closing = True
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)

    def close(self, timeout: float) -> None:
        """Ends the loop; waits for its thread, at most ``timeout`` seconds, for a call may block it."""
        self.end()
        self._thread.join(timeout)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._closing:
            # A function may stop the loop, and a task that it has left running may exit; all others still need it.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        unwind(self.loop)
        self.loop.close()


_running: weakref.WeakSet[BackgroundLoop] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """A loop that is written in C must not wake up when the interpreter is gone: that ends the process by SIGSEGV."""
    # In a process that was forked, the others' threads do not run.
    ours = [one for one in _running if one._thread.is_alive()]
    for one in ours:
        one.end()
    for one in ours:
        one._thread.join(_EXIT_SECONDS)


async def _leave_it(timeout: float | None = None) -> None:
    """In place of ``shutdown_default_executor``, which is for the owner alone; the threads end with the process."""


def _new_loop() -> tuple[asyncio.AbstractEventLoop, str]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop(), "asyncio"
    return uvloop.new_event_loop(), "uvloop"
