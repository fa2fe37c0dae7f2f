"""Resources such as clients and connection pools: opened once per worker process and closed after an idle time.

Spark's workers exit through ``os._exit`` or a signal, so no exit handler can close resources. If a task is known to be
the last task of its process, all resources are closed when the task ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from spark_events.enrichment.engine.back_off import back_off
from spark_events.enrichment.engine.failure import RowFailure, message_of, type_of
from spark_events.enrichment.engine.frames import where_raised
from spark_events.enrichment.engine.verdicts import verdict_on
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Retry
from spark_events.enrichment.signature import name_of

__all__ = ["ResourceTuning", "Resources", "open_resource"]

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class ResourceTuning:
    """Limits of open resources.

    Attributes:
        idle_seconds: time after which an unused resource is closed. Spark kills a Python worker that has been idle for
            a minute; connections that are closed earlier end cleanly.
        max_idle: maximum number of idle resources. The number is larger than the number of enrichments in a job;
            otherwise enrichments that take turns would evict each other's resources.
        closing_seconds: time in which resources must close.
    """

    idle_seconds: float = 45.0
    max_idle: int = 16
    closing_seconds: float = 4.0


class _Holder:
    """Holder of a context manager: one task enters and exits it, as task groups and cancel scopes require."""

    def __init__(self, open_it: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        self.opened: asyncio.Future[Any] = loop.create_future()
        self.users = 0
        self.idle: asyncio.TimerHandle | None = None
        self._end = asyncio.Event()
        self.task = loop.create_task(self._hold(open_it), name=name_of(open_it))

    def close(self) -> None:
        """Start closing the resource."""
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
            self._not_opened(RuntimeError("opening was cancelled"))
            raise
        except BaseException as error:
            # Catch SystemExit too, which would end the loop of the whole process.
            if not self._not_opened(_bearable(error)):
                _LOG.warning(
                    "closing a resource raised %s (%s); the resource counts as closed",
                    type_of(error),
                    message_of(error),
                )

    def _not_opened(self, error: Exception) -> bool:
        if self.opened.done():
            return False
        self.opened.set_exception(error)
        # Mark the exception as retrieved; otherwise asyncio would log it if no task waits for it.
        self.opened.exception()
        return True


def _bearable(error: BaseException) -> Exception:
    """Return the error in a form that a future accepts.

    A future rejects StopIteration, so tasks that wait for the future would wait forever.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(repr(error)).with_traceback(error.__traceback__)


class Resources:
    """Open resources of a process, by definition; used by the loop's thread only."""

    def __init__(self, tuning: ResourceTuning | None = None) -> None:
        self._tuning = tuning or ResourceTuning()
        self._holders: dict[Hashable, _Holder] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def names(self) -> str:
        """Names of the openers whose resources are open or closing, for messages."""
        return _names([*tuple(self._closing), *(holder.task for holder in tuple(self._holders.values()))])

    async def acquire(self, key: Hashable, open_it: Callable[[], Any], timeout: float | None) -> Any:
        """Return the resource of a definition, opened if necessary.

        Args:
            key: the digest of the definition, or another identifier of the resource.
            open_it: returns the async context manager.
            timeout: seconds until opening fails; None: no limit.

        Raises:
            Exception: when opening the resource fails or times out.
        """
        holder = self._holders.get(key)
        if holder is not None and holder.opened.done() and holder.task.done():
            # The task that holds the resource has ended, for example because user code cancelled all tasks, so the
            # resource is closed.
            self._drop(key)
            holder = None
        if holder is None:
            holder = self._holders[key] = _Holder(open_it)
        holder.users += 1
        if holder.idle is not None:
            holder.idle.cancel()
            holder.idle = None
        try:
            # wait() cancels nothing, because other tasks may be waiting for the same resource.
            done, _ = await asyncio.wait({holder.opened}, timeout=timeout)
            if not done:
                raise asyncio.TimeoutError
            return holder.opened.result()
        except BaseException:
            holder.users -= 1
            if not holder.users and self._holders.get(key) is holder:
                self._drop(key)
            raise

    def release(self, key: Hashable, *, broken: bool = False) -> None:
        """Release a task's use of the resource.

        The resource stays open for a while for the next task, unless it is broken.
        """
        holder = self._holders.get(key)
        if holder is None or not holder.users:
            return
        holder.users -= 1
        if holder.users:
            return
        if broken:
            _LOG.warning("no call reached its destination; the next task opens the resource again")
            self._drop(key)
            return
        # Reinsert the resource, so that the dictionary stays ordered by the start of the idle time.
        self._holders[key] = self._holders.pop(key)
        holder.idle = asyncio.get_running_loop().call_later(self._tuning.idle_seconds, self._drop, key)
        idle = [name for name, one in self._holders.items() if not one.users]
        for name in idle[: max(0, len(idle) - self._tuning.max_idle)]:
            self._drop(name)

    async def close_unused(self) -> None:
        """Close the resources that no task uses, and wait for a bounded time until they are closed."""
        for key, holder in list(self._holders.items()):
            if not holder.users:
                self._drop(key)
        left: set[asyncio.Task[None]] = set()
        if self._closing:
            _, left = await asyncio.wait(self._closing, timeout=self._tuning.closing_seconds)
        if left:
            _LOG.warning(
                "closing did not end within %g s: resource %s; the process no longer waits for it, and its connections "
                "end with the process",
                self._tuning.closing_seconds,
                _names(left),
            )

    def _drop(self, key: Hashable) -> None:
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


def _names(tasks: Iterable[asyncio.Task[None]]) -> str:
    return ", ".join(sorted({task.get_name() for task in tasks}))


async def open_resource(plan: Plan, key: str, resources: Resources) -> Any:
    """Return the plan's resource, None if the plan has none, or a :class:`RowFailure` if opening failed.

    Opening has the same attempts and timeouts as a call. No call starts before the resource is open.
    """
    opener, retry = plan.resource, plan.retry or Retry(attempts=1)
    if opener is None:
        return None
    began = time.monotonic()
    latest = math.inf if plan.total_timeout is None else began + plan.total_timeout
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
            failed, verdict = verdict_on(failed, plan.retry)
            is_over = not verdict.retryable
        except BaseException as broken:
            # The user's `on` raised an error. An uncaught SystemExit would end the loop.
            failed, is_over = broken, True
        pause = back_off(retry, attempt)
        if is_over or attempt >= retry.attempts or time.monotonic() + pause >= latest:
            tried = f" ({attempt} attempts in {time.monotonic() - began:.1f} s)" if attempt > 1 else ""
            message = f"resource {name_of(opener)} cannot be opened{tried}: {message_of(failed)}"
            return RowFailure("resource", type_of(failed), message, where=where_raised(failed.__traceback__))
        await asyncio.sleep(pause)
    return None
