"""What the user asks of an enrichment: validated at once, frozen, and light enough for every executor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NoReturn, get_args

from spark_events.enrichment.signature import check_function, check_resource, takes_context
from spark_events.errors import InvalidPlanError

__all__ = ["Cache", "CircuitBreaker", "OnFailure", "Plan", "Retry"]

#: What becomes of a batch with a row whose attempts are exhausted.
OnFailure = Literal["fail", "null", "column", "dead_letter"]


@dataclasses.dataclass(frozen=True, slots=True)
class Retry:
    """When a failed attempt is followed by another one, and after what pause.

    Pauses double from ``initial`` up to ``max``.

    Args:
        attempts: in total; 1: never again.
        initial: seconds before the second attempt.
        max: seconds, the longest pause (a destination's Retry-After may be longer).
        jitter: seconds, at most, added to a pause at random.
        on: exception types, or a function of the exception that says whether to try again. Default: connection errors,
            timeouts, and status 408, 429 and 5xx as httpx, aiohttp, requests and urllib tell them; never programming
            errors.
        on_result: a function of what the call returned; true: try again.
        honor_retry_after: a 429 or 503 that says Retry-After closes a gate for the whole worker for that long.

    Raises:
        InvalidPlanError: a value that cannot be.
    """

    attempts: int = 4
    initial: float = 0.1
    max: float = 10.0
    jitter: float = 0.1
    on: type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool] | None = None
    on_result: Callable[[Any], bool] | None = None
    honor_retry_after: bool = True

    def __post_init__(self) -> None:
        _whole("Retry.attempts", self.attempts, 1)
        _seconds("Retry.initial", self.initial, zero=True)
        _seconds("Retry.max", self.max, zero=True)
        _seconds("Retry.jitter", self.jitter, zero=True)
        if self.max < self.initial:
            _refuse("Retry.max", self.max, f"at least Retry.initial, which is {self.initial!r}")
        object.__setattr__(self, "on", _exceptions(self.on))
        if self.on_result is not None and not callable(self.on_result):
            _refuse("Retry.on_result", self.on_result, "a function of the result")
        _flag("Retry.honor_retry_after", self.honor_retry_after)


@dataclasses.dataclass(frozen=True, slots=True)
class Cache:
    """Answers kept in the worker process, across micro-batches: the least recently used goes first.

    Args:
        max_entries: how many, at most, per worker process.
        ttl: seconds that an answer may be used.

    Raises:
        InvalidPlanError: a value that cannot be.
    """

    max_entries: int = 100_000
    ttl: float = 300.0

    def __post_init__(self) -> None:
        _whole("Cache.max_entries", self.max_entries, 1)
        _seconds("Cache.ttl", self.ttl)


@dataclasses.dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """When a destination counts as down, so that a batch fails in seconds and not after every row has timed out.

    Failures in a row open it: the calls wait, and one at a time is let through to see. A success closes it again.
    Without one for ``give_up_after``, the destination is down: every row that has no answer fails at once. What counts
    as a failure is what may pass (connection errors, timeouts, 5xx), not the destination's verdict on a row (4xx).

    Args:
        failures: so many attempts in a row, over all calls that a worker process makes for one batch.
        give_up_after: seconds from its opening.

    Raises:
        InvalidPlanError: a value that cannot be.
    """

    failures: int = 20
    give_up_after: float = 5.0

    def __post_init__(self) -> None:
        _whole("CircuitBreaker.failures", self.failures, 1)
        _seconds("CircuitBreaker.give_up_after", self.give_up_after, zero=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """One enrichment. Sequences and single column names become tuples.

    Args:
        fn: ``async def fn(row)`` or ``fn(row, ctx)``; with ``batch_size``, ``fn(rows, ctx)``.
        resource: a function without arguments that returns an async context manager; opened once a worker process.
        max_in_flight: calls at the same time, per task.
        timeout: seconds for one attempt; None: none.
        total_timeout: seconds for a call with all its attempts and pauses; None: none.
        retry: None: one attempt only.
        rate_limit: attempts a second, for the whole job; None: no limit.
        circuit_breaker: None: none.
        key: columns; calls of rows with equal values are made one after the other, in order.
        coalesce_by: columns; rows of one partition with equal values get the answer of one call. For one call over all
            partitions, repartition by these columns first, which loses the order of the rows.
        cache: kept by ``coalesce_by``, without it by everything the function gets; for each function, resource and
            output, and names and types of the columns, apart.
        batch_size: so many rows, at most, go into one call.
        on_failure: what becomes of a row whose attempts are exhausted.
        max_failure_ratio: of the batch's rows; above it, the batch fails even so.
        buffer_rows: rows that a task holds, at most, until they can go out in order.
        buffer_bytes: their bytes, estimated.

    Raises:
        InvalidPlanError: a value, or a combination, that cannot be.
    """

    fn: Callable[..., Any]
    resource: Callable[[], AbstractAsyncContextManager[Any]] | None = None
    max_in_flight: int = 100
    timeout: float | None = 30.0
    total_timeout: float | None = 120.0
    retry: Retry | None = dataclasses.field(default_factory=Retry)
    rate_limit: float | None = None
    circuit_breaker: CircuitBreaker | None = dataclasses.field(default_factory=CircuitBreaker)
    key: tuple[str, ...] | None = None
    coalesce_by: tuple[str, ...] | None = None
    cache: Cache | None = None
    batch_size: int | None = None
    on_failure: OnFailure = "fail"
    max_failure_ratio: float | None = None
    buffer_rows: int = 50_000
    buffer_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        check_function(self.fn, bulk=self.batch_size is not None)
        check_resource(self.resource)
        _whole("max_in_flight", self.max_in_flight, 1, 100_000)
        _seconds("timeout", self.timeout, none=True)
        _seconds("total_timeout", self.total_timeout, none=True)
        _instance("retry", self.retry, Retry)
        _seconds("rate_limit", self.rate_limit, none=True, what="a number of attempts a second above 0")
        _instance("circuit_breaker", self.circuit_breaker, CircuitBreaker)
        object.__setattr__(self, "key", _columns("key", self.key))
        object.__setattr__(self, "coalesce_by", _columns("coalesce_by", self.coalesce_by))
        _instance("cache", self.cache, Cache)
        if self.batch_size is not None:
            _whole("batch_size", self.batch_size, 1)
        if self.on_failure not in get_args(OnFailure):
            _refuse("on_failure", self.on_failure, " or ".join(map(repr, get_args(OnFailure))))
        if self.max_failure_ratio is not None:
            _ratio("max_failure_ratio", self.max_failure_ratio)
        _whole("buffer_rows", self.buffer_rows, 1)
        _whole("buffer_bytes", self.buffer_bytes, 1)
        if self.key is not None and self.batch_size is not None:
            # One call would have several rows of one key, or its rows would wait for those of other calls.
            raise InvalidPlanError("key and batch_size cannot be combined: leave one of them out")

    @property
    def wants_context(self) -> bool:
        """Whether the function takes ``ctx``."""
        return takes_context(self.fn)


def _refuse(name: str, given: object, allowed: str) -> NoReturn:
    raise InvalidPlanError(f"{name} is {given!r}; allowed: {allowed}")


def _whole(name: str, given: object, least: int, most: int | None = None) -> None:
    allowed = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    if not isinstance(given, int) or isinstance(given, bool) or given < least or (most is not None and given > most):
        _refuse(name, given, allowed)


def _seconds(name: str, given: object, *, none: bool = False, zero: bool = False, what: str = "") -> None:
    if none and given is None:
        return
    allowed = (what or f"seconds, {'0 or more' if zero else 'above 0'}") + (", or None" if none else "")
    number = isinstance(given, (int, float)) and not isinstance(given, bool) and math.isfinite(given)
    if not number or given < 0 or (given == 0 and not zero):  # type: ignore[operator]
        _refuse(name, given, allowed)


def _ratio(name: str, given: object) -> None:
    if not isinstance(given, (int, float)) or isinstance(given, bool) or not 0 <= given <= 1:
        _refuse(name, given, "a ratio from 0 to 1, or None")


def _exceptions(given: object) -> object:
    """One type, or several, as a tuple; a function as it is."""
    kinds = (given,) if isinstance(given, type) else given
    if kinds is None or (callable(kinds) and not isinstance(kinds, Sequence)):
        return kinds
    if not isinstance(kinds, Sequence) or not kinds:
        _refuse("Retry.on", given, "exception types, or a function of the exception")
    for kind in kinds:
        # BaseException has CancelledError below it: retrying that would make calls that nobody can stop.
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            _refuse("Retry.on", kind, "subclasses of Exception")
    return tuple(kinds)


def _flag(name: str, given: object) -> None:
    if not isinstance(given, bool):
        _refuse(name, given, "True or False")


def _instance(name: str, given: object, kind: type) -> None:
    if given is not None and not isinstance(given, kind):
        _refuse(name, given, f"a {kind.__name__}, or None")


def _columns(name: str, given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    columns = (given,) if isinstance(given, str) else given
    if not isinstance(columns, Sequence) or not columns or not all(isinstance(one, str) and one for one in columns):
        _refuse(name, given, "a column name, or several")
    if len(set(columns)) != len(columns):
        _refuse(name, given, "each column once")
    return tuple(columns)
