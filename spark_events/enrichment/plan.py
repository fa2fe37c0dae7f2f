"""Options of an enrichment: validated on construction, immutable, and cheap to pickle for executors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NoReturn, get_args

from spark_events.enrichment.signature import check_function, check_resource, takes_context
from spark_events.errors import InvalidPlanError

__all__ = ["Cache", "CircuitBreaker", "OnFailure", "Plan", "Retry"]

#: Treatment of a row whose attempts are exhausted.
OnFailure = Literal["fail", "null", "column", "dead_letter"]


@dataclasses.dataclass(frozen=True, slots=True)
class Retry:
    """Conditions and pauses for retries of a failed attempt.

    Pauses double from ``initial`` up to ``max``.

    Args:
        attempts: total number of attempts; 1 means no retry.
        initial: seconds before the second attempt.
        max: the longest pause in seconds (a Retry-After from the destination may be longer).
        jitter: upper bound, in seconds, of the random time that is added to a pause.
        on: exception types to retry, or a function of the exception that returns whether to retry. Default: connection
            errors, timeouts, and status 408, 429 and 5xx as reported by httpx, aiohttp, requests and urllib; never
            programming errors.
        on_result: a function of the call's result that returns whether to retry.
        honor_retry_after: whether a 429 or 503 with a Retry-After header pauses all calls of the worker process for
            that time.

    Raises:
        InvalidPlanError: when a value is invalid.
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
    """Cache of answers in the worker process, kept across micro-batches; evicts the least recently used answer.

    Args:
        max_entries: maximum number of answers per worker process.
        ttl: seconds until an answer expires.

    Raises:
        InvalidPlanError: when a value is invalid.
    """

    max_entries: int = 100_000
    ttl: float = 300.0

    def __post_init__(self) -> None:
        _whole("Cache.max_entries", self.max_entries, 1)
        _seconds("Cache.ttl", self.ttl)


@dataclasses.dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Thresholds after which a destination counts as down.

    With a circuit breaker, a batch fails within seconds instead of after the timeout of every row. Consecutive failures
    open the breaker: calls wait, and one at a time probes the destination. A success closes the breaker. If no probe
    succeeds within ``give_up_after``, the destination is down: every row without an answer fails at once. Only
    temporary errors count as failures (connection errors, timeouts, 5xx), not the destination's rejection of a row
    (4xx).

    Args:
        failures: consecutive failed attempts that open the breaker, over all calls of a worker process for one batch.
        give_up_after: seconds from the opening of the breaker until the destination counts as down.

    Raises:
        InvalidPlanError: when a value is invalid.
    """

    failures: int = 20
    give_up_after: float = 5.0

    def __post_init__(self) -> None:
        _whole("CircuitBreaker.failures", self.failures, 1)
        _seconds("CircuitBreaker.give_up_after", self.give_up_after, zero=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """Validated options of one enrichment; sequences and single column names become tuples.

    Args:
        fn: ``async def fn(row)`` or ``fn(row, ctx)``; with ``batch_size``, ``fn(rows, ctx)``.
        resource: a function without arguments that returns an async context manager; opened once per worker process.
        max_in_flight: maximum number of concurrent calls per task.
        timeout: seconds for one attempt; None: no limit.
        total_timeout: seconds for a call with all its attempts and pauses; None: no limit.
        retry: conditions and pauses for retries; None: one attempt only.
        rate_limit: attempts per second of the whole job; None: no limit.
        circuit_breaker: thresholds of the circuit breaker; None: no circuit breaker.
        key: columns; calls of rows with equal values run one after another, in order.
        coalesce_by: columns; rows of one partition with equal values share the answer of one call. For one call across
            all partitions, repartition by these columns first, which loses the order of the rows.
        cache: cache of answers by ``coalesce_by``, or without it by all input columns. Each combination of function,
            resource, output, and column names and types has a separate cache.
        batch_size: maximum number of rows in one call.
        on_failure: treatment of a row whose attempts are exhausted.
        max_failure_ratio: ratio of failed rows above which the batch fails regardless of ``on_failure``.
        buffer_rows: maximum number of rows that a task holds until it can return them in order.
        buffer_bytes: the same limit as an estimated number of bytes.

    Raises:
        InvalidPlanError: when a value or a combination of values is invalid.
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
        _seconds("rate_limit", self.rate_limit, none=True, what="a number of attempts per second above 0")
        _instance("circuit_breaker", self.circuit_breaker, CircuitBreaker)
        object.__setattr__(self, "key", _columns("key", self.key))
        object.__setattr__(self, "coalesce_by", _columns("coalesce_by", self.coalesce_by))
        _instance("cache", self.cache, Cache)
        if self.batch_size is not None:
            _whole("batch_size", self.batch_size, 1)
        if self.on_failure not in get_args(OnFailure):
            _refuse("on_failure", self.on_failure, ", ".join(map(repr, get_args(OnFailure))))
        if self.max_failure_ratio is not None:
            _ratio("max_failure_ratio", self.max_failure_ratio)
        _whole("buffer_rows", self.buffer_rows, 1)
        _whole("buffer_bytes", self.buffer_bytes, 1)
        if self.key is not None and self.batch_size is not None:
            # One call would contain several rows of one key, or rows of one call would wait for those of another.
            raise InvalidPlanError("key and batch_size cannot be combined: remove one of them")

    @property
    def wants_context(self) -> bool:
        """Whether the function accepts ``ctx``."""
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
    """Return exception types as a tuple and a function unchanged."""
    kinds = (given,) if isinstance(given, type) else given
    if kinds is None or (callable(kinds) and not isinstance(kinds, Sequence)):
        return kinds
    if not isinstance(kinds, Sequence) or not kinds:
        _refuse("Retry.on", given, "exception types, or a function of the exception")
    for kind in kinds:
        # CancelledError is a BaseException; retrying it would make calls that cannot be cancelled.
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
        _refuse(name, given, "one or more column names")
    if len(set(columns)) != len(columns):
        _refuse(name, given, "each column once")
    return tuple(columns)
