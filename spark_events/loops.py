"""Event loops of threads that run user code: wake-up signals and shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

#: Time limit for cancelled tasks to finish, in seconds.
_UNWIND_SECONDS = 0.25


def notify(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    """Set an event of another thread's loop; ignore a closed loop.

    The waiting thread clears the event before it checks for work.
    """
    # Waking an event loop costs a system call.
    if not event.is_set():
        # A RuntimeError means that the event loop is closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(event.set)


async def wait_for(event: asyncio.Event, timeout: float) -> None:
    """Wait until the event is set, at most ``timeout`` seconds."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), timeout)


def unwind(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the remaining tasks of a stopped loop, and run the loop until they end or the time limit passes.

    Without this call, asyncio would warn about pending tasks. If a cancelled task calls sys.exit or ``loop.stop``, the
    call is ignored.
    """
    with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):
        loop.run_until_complete(_end(asyncio.all_tasks(loop)))


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=_UNWIND_SECONDS) if tasks else (tasks, tasks)
    for task in ended:
        # Read the exception; otherwise asyncio would log that it was never retrieved.
        _ = task.cancelled() or task.exception()
