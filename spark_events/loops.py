"""Shutdown of an event loop that has run user code."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

#: Time limit for cancelled tasks to finish, in seconds.
_UNWIND_SECONDS = 0.25


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
