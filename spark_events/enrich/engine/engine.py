"""The engine as the task sees it: chunks in, answers out, in order."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from spark_events.enrich.engine.chunk import Chunk
from spark_events.enrich.plan import Plan

__all__ = ["Definition", "Engine", "StoppedError"]


class StoppedError(Exception):
    """The run was cancelled with :meth:`Engine.cancel`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """What of the worker process may be used again, as digests made on the driver.

    A function that comes out of a pickle is a new object in every task; these say that it is the same.

    Attributes:
        calls: of the function and its answers' schema: the cache and the Retry-After gate are kept by it.
        resource: of the function that opens the resource: the open resource is kept by it.
        batch: of this run of this micro-batch: the circuit breaker is kept by it, so that the tasks that follow in
            this process need not find out again that the destination is down. A replay is another run.
    """

    calls: str
    resource: str
    batch: str


class Engine:
    """Calls a function for every row, many at once, and gives the answers in the rows' order.

    One engine a task. The calls are made on the loop of the worker process, in a thread of its own; chunks are pulled
    and answers handed out in the caller's thread.

    Args:
        plan: what the user asked for.
        definition: what may be kept in this process.
        rate: attempts a second that this task may make; None: no limit.
    """

    def __init__(self, plan: Plan, definition: Definition, rate: float | None = None) -> None: ...

    def run(self, chunks: Iterable[Chunk]) -> Iterator[tuple[Chunk, list[Any]]]:
        """Yields every chunk with its answers, in the order in which the chunks came.

        An answer is what the function returned, or a :class:`~spark_events.enrich.engine.failure.Failure`: a row that
        fails never raises here. Chunks are pulled ahead, only while the buffer has room. Closing the iterator (Spark
        does, when a task is killed) starts no new call, cancels those in flight and waits for them, a bounded time.

        Raises:
            StoppedError: :meth:`cancel` was called.
        """
        raise NotImplementedError

    def cancel(self) -> None:
        """Starts no new call and cancels those in flight; for any thread. ``run`` then raises."""

    def statistics(self) -> dict[str, Any]:
        """What was counted so far, as plain data: see :mod:`spark_events.enrich.engine.statistics`, which merges it."""
        raise NotImplementedError
