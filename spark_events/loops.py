"""Shutdown of an event loop in which user code has run."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

#: Time for cancelled tasks to end, in seconds.
_UNWIND_SECONDS = 0.25


def unwind(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the remaining tasks of a stopped loop and run it until they end, for a bounded time.

    Without this call, asyncio would warn about pending tasks. Calls of sys.exit and of ``loop.stop`` in a cancelled
    task are ignored.
    """
    with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):
        loop.run_until_complete(_end(asyncio.all_tasks(loop)))


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=_UNWIND_SECONDS) if tasks else (tasks, tasks)
    for task in ended:
        # Retrieve the exception; otherwise asyncio would log that it was never retrieved.
        _ = task.cancelled() or task.exception()
