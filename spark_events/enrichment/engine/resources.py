"""Clients and connection pools: opened once a worker process, kept over tasks and micro-batches, closed after a rest.

Not at the process's end: Spark ends its workers by ``os._exit`` or a signal, and no code of ours runs then. What a
worker has open when its application ends is not closed. Only where it is known that a task is the last one of its
process is everything closed with the task.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Callable
from typing import Any

from spark_events.enrichment.engine.attempts import back_off
from spark_events.enrichment.engine.failure import RowFailure, message_of, type_of
from spark_events.enrichment.engine.frames import where_raised
from spark_events.enrichment.engine.verdicts import judge
from spark_events.enrichment.plan import Plan, Retry
from spark_events.enrichment.signature import name_of

__all__ = ["Resources", "open_resource"]

_LOG = logging.getLogger(__name__)

#: Spark ends a Python worker that was idle for a minute, without a word. Before that, while there is still time to say
#: goodbye to a server, is when to close.
_IDLE_SECONDS = 45.0
#: More than a job has enrichments: of those that take turns, none would be found open again.
_MOST_IDLE = 16
_CLOSING_SECONDS = 4.0


class _Holder:
    """Enters a context manager and leaves it in one and the same task, as task groups and cancel scopes demand."""

    def __init__(self, open_it: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[Any] = loop.create_future()
        self.users = 0
        self.idle: asyncio.TimerHandle | None = None
        self._end = asyncio.Event()
        self.task = loop.create_task(self._hold(open_it))

    def close(self) -> None:
        """Begins to close."""
        self._end.set()
        if not self.opened.done():
            self.task.cancel()

    async def _hold(self, open_it: Callable[[], Any]) -> None:
        try:
            manager = open_it()
            if not hasattr(manager, "__aenter__"):
                if asyncio.iscoroutine(manager):
                    manager.close()
                raise TypeError(f"resource must return an async context manager, not {type(manager).__name__}")
            async with manager as resource:
                if not self.opened.done():
                    self.opened.set_result(resource)
                    await self._end.wait()
        except asyncio.CancelledError:
            self._not_opened(RuntimeError("it was cancelled while it opened"))
            raise
        except BaseException as error:
            # SystemExit too: in a task it would end the loop of the whole process.
            if not self._not_opened(_bearable(error)):
                _LOG.warning("a resource was closed with %s: %s", type_of(error), message_of(error))

    def _not_opened(self, error: Exception) -> bool:
        if self.opened.done():
            return False
        self.opened.set_exception(error)
        # Nobody may be waiting any more; asyncio would complain.
        self.opened.exception()
        return True


def _bearable(error: BaseException) -> Exception:
    """The same where a future takes it; of StopIteration it takes none, and would be waited for for ever."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(repr(error)).with_traceback(error.__traceback__)


class Resources:
    """The open resources of a process by their definition; for the loop's thread alone."""

    def __init__(self, idle_seconds: float = _IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._holders: dict[str, _Holder] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def acquire(self, key: str, open_it: Callable[[], Any], timeout: float | None) -> Any:
        """The resource of this definition, opened when it is not.

        Args:
            key: of its definition.
            open_it: returns the async context manager.
            timeout: seconds that opening may take.

        Raises:
            Exception: what opening raised.
        """
        holder = self._holders.get(key)
        if holder is not None and holder.opened.done() and holder.task.done():
            # It has come to its end by itself, or by a call that cancels all tasks: what it held is closed.
            self._drop(key)
            holder = None
        if holder is None:
            holder = self._holders[key] = _Holder(open_it)
        holder.users += 1
        if holder.idle is not None:
            holder.idle.cancel()
            holder.idle = None
        try:
            # Shielded: another task may wait for the same opening.
            return await asyncio.wait_for(asyncio.shield(holder.opened), timeout)
        except BaseException:
            holder.users -= 1
            if not holder.users and self._holders.get(key) is holder:
                self._drop(key)
            raise

    def release(self, key: str) -> None:
        """A task needs it no more; it stays open for the next one, for a while."""
        holder = self._holders.get(key)
        if holder is None or not holder.users:
            return
        holder.users -= 1
        if holder.users:
            return
        # The last to become idle is the last in the dictionary.
        self._holders[key] = self._holders.pop(key)
        holder.idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._drop, key)
        idle = [name for name, one in self._holders.items() if not one.users]
        for name in idle[: max(0, len(idle) - _MOST_IDLE)]:
            self._drop(name)

    async def close(self, *, used: bool = True) -> None:
        """Closes all; waits for them, a bounded time.

        Args:
            used: also those that a task is using.
        """
        for key, holder in list(self._holders.items()):
            if used or not holder.users:
                self._drop(key)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSING_SECONDS)

    def _drop(self, key: str) -> None:
        holder = self._holders.pop(key)
        if holder.idle is not None:
            holder.idle.cancel()
        holder.close()
        self._closing.add(holder.task)
        holder.task.add_done_callback(self._closed)

    def _closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        with contextlib.suppress(asyncio.CancelledError):
            task.exception()


async def open_resource(plan: Plan, key: str, resources: Resources) -> Any:
    """Return the plan's resource; None: it has none; a :class:`RowFailure`: it cannot be opened.

    Opening has the attempts and times of a call.
    """
    opener, retry = plan.resource, plan.retry or Retry(attempts=1)
    if opener is None:
        return None
    deadline = math.inf if plan.total_timeout is None else time.monotonic() + plan.total_timeout
    for attempt in itertools.count(1):
        try:
            return await resources.acquire(key, opener, plan.timeout)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            failed: BaseException = error
            if isinstance(error, (TimeoutError, asyncio.TimeoutError)) and not str(error):
                failed = TimeoutError(f"not open within {plan.timeout} s (timeout)")
        try:
            is_over = not judge(failed, plan.retry).retryable
        except BaseException as broken:
            # The user's `on` raised; SystemExit would end the loop.
            failed, is_over = broken, True
        pause = back_off(retry, attempt)
        if is_over or attempt >= retry.attempts or time.monotonic() + pause >= deadline:
            message = f"resource {name_of(opener)} cannot be opened: {message_of(failed)}"
            where = where_raised(failed.__traceback__)
            return RowFailure("resource", type_of(failed), message, attempts=attempt, where=where)
        await asyncio.sleep(pause)
    return None
