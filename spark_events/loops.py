"""The end of an event loop in which the user's code has run: it may have set something going that nobody waits for."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

__all__ = ["unwind"]

#: How long what still runs has to end, in seconds.
_UNWIND_SECONDS = 0.25


def unwind(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels what still runs in a loop that stands still, and gives it a moment to end.

    Of a task that is destroyed while it waits, asyncio complains to the user. What calls for an exit in its last moment
    or stops the loop has what it wants.
    """
    with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):
        loop.run_until_complete(_end(asyncio.all_tasks(loop)))


async def _end(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    ended, _ = await asyncio.wait(tasks, timeout=_UNWIND_SECONDS) if tasks else (tasks, tasks)
    for task in ended:
        # Who waited for it has been told, or is gone.
        _ = task.cancelled() or task.exception()
