"""Options of one enrichment, in the form that executors receive: flat, immutable, and cheap to pickle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from spark_events.config import integer
from spark_events.enrichment.checks import check, columns_of
from spark_events.enrichment.settings import Action, Auto, Budget, Cache, CircuitBreaker, Retry
from spark_events.enrichment.signature import check_function, check_resource, takes_context
from spark_events.errors import InvalidPlanError

__all__ = ["Plan"]

#: Minimum number of calls in flight with which a task starts. With fewer calls, the window grows too slowly.
_LEAST_INITIAL = 8
_EXPECTED_IN_FLIGHT = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Options of one enrichment, made from the arguments of the public functions.

    It has many fields, because it carries every argument of ``enrich`` to the workers.

    The classes in :mod:`spark_events.enrichment.settings` document and check most values.

    Args:
        fn: ``async def fn(row)`` or ``fn(row, ctx)``; with ``batch_size``, ``fn(rows, ctx)``.
        resource: a function without arguments that returns an async context manager; opened once per worker process.
        key: columns; calls for rows with equal values run one after another, in order.
        coalesce_by: columns; rows of one partition with equal values share the answer of one call.
        cache: cache of answers by ``coalesce_by``, or by all input columns if ``coalesce_by`` is not set; None: answers
            are discarded when their task ends.
        batch_size: maximum number of rows in one call.
        model: the class passed as ``output``; None: the function returns mappings.
        tasks: number of concurrent tasks that share the limits of the job evenly, where the driver leases none.

    Raises:
        InvalidPlanError: when a function or a combination of values is invalid.
    """

    fn: Callable[..., Any]
    resource: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    max_in_flight: int | Auto | Literal["auto"] = "auto"
    timeout: float | None = 30.0
    total_timeout: float | None = 120.0
    retry: Retry | None = dataclasses.field(default_factory=Retry)
    rate_limit: float | None = None
    budget: Budget | None = None
    max_in_flight_job: int | None = None
    circuit_breaker: CircuitBreaker | None = dataclasses.field(default_factory=CircuitBreaker)
    key: tuple[str, ...] | None = None
    coalesce_by: tuple[str, ...] | None = None
    cache: Cache | None = None
    batch_size: int | None = None
    on_failure: Action = "fail"
    max_failure_ratio: float | None = None
    buffer_rows: int = 50_000
    buffer_bytes: int = 64 * 1024 * 1024
    ordered: bool = True
    model: type | None = None
    tasks: int = 1

    def __post_init__(self) -> None:
        check_function(self.fn, bulk=self.batch_size is not None)
        check_resource(self.resource)
        object.__setattr__(self, "key", columns_of("key", self.key))
        object.__setattr__(self, "coalesce_by", columns_of("Cache.by", self.coalesce_by))
        if self.batch_size is not None:
            check("batch_size", self.batch_size, integer(1, None))
        if self.key is not None and self.batch_size is not None:
            # Otherwise one call would contain several rows with the same key, or the rows of one call would wait for
            # rows of another call.
            raise InvalidPlanError("key and batch_size cannot be combined: remove one of them")

    @property
    def window(self) -> Auto:
        """Bounds of the number of calls in flight; equal if the number is fixed."""
        given = self.max_in_flight
        if isinstance(given, int):
            return Auto(given, given, given)
        window = given if isinstance(given, Auto) else Auto()
        if window.has_default_initial and (self.rate_limit or self.budget or self.max_in_flight_job):
            # The limits of the user protect the service, and a small window would not use them.
            return dataclasses.replace(window, initial=min(max(_EXPECTED_IN_FLIGHT, window.min), window.max))
        return window

    @property
    def expected_in_flight(self) -> int:
        """Usual number of calls in flight, before the service's capacity is known."""
        window = self.window
        if window.min == window.max:
            return window.initial
        return min(max(window.initial, _EXPECTED_IN_FLIGHT), window.max)

    @property
    def task_window(self) -> Auto:
        """Bounds of one task that the driver leases no calls in flight: an even share of the job's bounds."""
        window = self.window
        if window.min == window.max:
            return window
        most = max(1, window.max // self.tasks)
        least = max(1, window.min // self.tasks)
        first = max(window.initial // self.tasks, min(window.initial, _LEAST_INITIAL), least)
        return Auto(least, most, min(first, most))

    @property
    def wants_context(self) -> bool:
        """Whether the function accepts ``ctx``."""
        return takes_context(self.fn)
