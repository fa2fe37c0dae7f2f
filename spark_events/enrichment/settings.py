"""Options that users construct: small, immutable, validated on construction, and cheap to pickle for executors."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, get_args

from spark_events.config import boolean, choice, integer, number, text
from spark_events.enrichment.checks import SECONDS, SECONDS_OR_ZERO, check, columns_of, instance, refuse

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = [
    "Action", "Auto", "Budget", "Buffer", "Cache", "CircuitBreaker", "Key", "Limits", "OnFailure", "Rate",
    "Replay", "Retry", "Storage",
]  # fmt: skip

#: Treatment of a row that has no attempts left.
Action = Literal["fail", "null", "column", "dead_letter"]
A_co = TypeVar("A_co", bound=Action, covariant=True)
#: Places where a settled result can be stored.
Storage = Literal["local", "replicated", "reliable"]


class _Seconds(float):
    """Default that adapts to other values; a value of the caller, even an equal one, does not."""


class _Number(int):
    """Like :class:`_Seconds`, for whole numbers."""


_TIMEOUT = _Seconds(30)
_IN_FLIGHT = _Number(2)
_MOST_IN_FLIGHT = 100_000
_MOST_ENTRIES = 100_000
_RATIO = number("a ratio from 0 to 1, or None", at_least=0, at_most=1)


@dataclasses.dataclass(frozen=True, slots=True)
class Retry:
    """Conditions for retrying a failed attempt, and pauses between attempts.

    Pauses double from ``initial`` up to ``max``.

    Args:
        attempts: total number of attempts; 1 means no retry. Attempts that the destination rejects because it receives
            too many calls (429, 503, 529) never count, even if ``attempts`` is 1: the engine holds the row until
            ``Limits.total_timeout``. With ``retry=None``, such a row fails immediately.
        initial: seconds before the second attempt.
        max: the longest pause in seconds (a Retry-After from the destination may be longer).
        jitter: upper bound, in seconds, of the random time that is added to a pause.
        on: exception types to retry, or a function that receives the exception and returns whether to retry. Default:
            temporary errors of the usual HTTP clients, database drivers and SDKs; never programming errors.
        on_result: a function that receives the call's result and returns whether to retry.
        on_invalid: whether to retry an answer that does not fit ``output``, such as a wrong answer from a language
            model, and errors of a function that decodes or validates the answer itself: ``JSONDecodeError``, and the
            validation errors of Pydantic and msgspec.
        honor_retry_after: whether an answer with a Retry-After header (429, 503, 529, 403, 502, 504) pauses all calls
            by the worker process for that time. While the destination answers other calls, a 5xx pauses only its row.

    Raises:
        InvalidPlanError: when a value is invalid.
    """

    attempts: int = 4
    initial: float = 0.1
    max: float = 10.0
    jitter: float = 0.1
    on: type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool] | None = None
    on_result: Callable[[Any], bool] | None = None
    on_invalid: bool = False
    honor_retry_after: bool = True

    def __post_init__(self) -> None:
        check("Retry.attempts", self.attempts, integer(1, None))
        check("Retry.initial", self.initial, SECONDS_OR_ZERO)
        check("Retry.max", self.max, SECONDS_OR_ZERO)
        check("Retry.jitter", self.jitter, SECONDS_OR_ZERO)
        if self.max < self.initial:
            refuse("Retry.max", self.max, f"at least Retry.initial, which is {self.initial!r}")
        object.__setattr__(self, "on", _exceptions(self.on))
        if self.on_result is not None and not callable(self.on_result):
            refuse("Retry.on_result", self.on_result, "a function of the result")
        check("Retry.on_invalid", self.on_invalid, boolean)
        check("Retry.honor_retry_after", self.honor_retry_after, boolean)
        if self.attempts == 1:
            for name, unused in (("on", None), ("on_result", None), ("on_invalid", False)):
                if (given := getattr(self, name)) != unused:
                    refuse(f"Retry.{name}", given, f"{unused} with Retry.attempts=1, which disables retries")


@dataclasses.dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Thresholds after which a destination counts as down.

    With a circuit breaker, a batch fails within seconds instead of after the timeout of every row. Consecutive failures
    open the breaker: while it is open, calls wait, and one call at a time probes the destination. A success closes the
    breaker. If no probe succeeds within ``give_up_after``, the destination is down, and every row without an answer
    fails immediately. Connection errors, timeouts and 5xx count as failures; a rejection (4xx, 503, 529) is an answer.
    With ``batch_size``, rows that fail while other rows of their call are answered do not count.
    If calls time out (or receive a 504), the destination may just be slow: in this case, it counts as down only if a
    probe also times out.

    Args:
        failures: consecutive failed attempts that open the breaker, over all calls of a worker process for one batch.
        give_up_after: seconds from the opening of the breaker until the destination counts as down.

    Raises:
        InvalidPlanError: when a value is invalid.
    """

    failures: int = 20
    give_up_after: float = 5.0

    def __post_init__(self) -> None:
        check("CircuitBreaker.failures", self.failures, integer(1, None))
        check("CircuitBreaker.give_up_after", self.give_up_after, SECONDS_OR_ZERO)


@dataclasses.dataclass(frozen=True, slots=True)
class Buffer:
    """Space for rows and answers.

    Args:
        rows: maximum number of rows that a task holds until it can return them.
        bytes: maximum estimated size of these rows and their answers, in bytes.
        storage: where ``enrich_batch`` stores the settled result: ``local`` on the executors, in memory first;
            ``replicated`` on two executors for each partition (Spark 4); ``reliable`` in the checkpoint directory
            (slower; survives the loss of every executor).
        ordered: whether rows keep their order. False: a row is returned as soon as it is answered, so that slow calls
            do not delay other rows; rows with the same ``key`` still keep their order.

    Raises:
        InvalidPlanError: when a value is invalid.
    """

    rows: int = 50_000
    bytes: int = 64 * 1024 * 1024
    storage: Storage = "local"
    ordered: bool = True

    def __post_init__(self) -> None:
        check("Buffer.rows", self.rows, integer(1, None))
        check("Buffer.bytes", self.bytes, integer(1, None))
        check("Buffer.storage", self.storage, choice(*get_args(Storage)))
        check("Buffer.ordered", self.ordered, boolean)


@dataclasses.dataclass(frozen=True, slots=True)
class Auto:
    """Bounds within which a job adjusts the number of calls in flight.

    The job's tasks share the number. Each task can always have one call in flight, even if the job then exceeds
    ``max``. Where the driver cannot lease calls to the tasks, each task adjusts its own number within an even share of
    the bounds. If ``min`` and ``max`` are equal, the number is fixed and applies to each task.

    Args:
        min: the smallest number.
        max: the largest number, up to 100,000.
        initial: the first number. A task without leases starts with at least 8 calls, or with all of ``initial`` if
            that is less. If necessary, the default is adjusted to ``min`` and ``max``.

    Raises:
        InvalidPlanError: when a value or a combination of values is invalid.
    """

    min: int = 1
    max: int = 1000
    initial: int = _IN_FLIGHT

    def __post_init__(self) -> None:
        check("Auto.max", self.max, integer(1, _MOST_IN_FLIGHT))
        check("Auto.min", self.min, integer(1, self.max))
        if isinstance(self.initial, _Number):
            object.__setattr__(self, "initial", _Number(min(max(int(self.initial), self.min), self.max)))
        check("Auto.initial", self.initial, integer(self.min, self.max))

    @property
    def has_default_initial(self) -> bool:
        """Whether the user has not given the first number."""
        return isinstance(self.initial, _Number)


_CALLS_IN_FLIGHT = integer(1, _MOST_IN_FLIGHT).or_else(
    "'auto', or an Auto", lambda value: value == "auto" or isinstance(value, Auto)
)


@dataclasses.dataclass(frozen=True, slots=True)
class Rate:
    """Rate of attempts for the whole job.

    Args:
        requests_per_second: attempts that may start per second, above 0; may be a fraction.

    Raises:
        InvalidPlanError: when the value is invalid.
    """

    requests_per_second: float

    def __post_init__(self) -> None:
        check(
            "Rate.requests_per_second",
            self.requests_per_second,
            number("a number of attempts per second above 0", above=0),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Budget:
    """Budget for the whole job, such as an LLM's tokens per minute.

    Calls may have different costs.

    Args:
        per_minute: maximum total usage of all calls in a minute, in any unit.
        cost: a function that receives the row as ``fn`` does, and returns an estimate of the row's usage. An attempt
            starts only when the estimate fits into the remaining budget. With ``batch_size``, the estimates of the rows
            are added.
        usage: a function that receives the result of ``fn`` for one row, and returns the actual usage. Usage below the
            estimate is returned to the budget; usage above the estimate delays later calls. A failed row counts with
            its estimate, also within a call for several rows. None: the estimate counts.
        price_per_1000: price of 1,000 units, for the ``EnrichmentEvent``; None: the event contains no price.

    Raises:
        InvalidPlanError: when a value is invalid.
    """

    per_minute: float
    cost: Callable[[Any], float]
    usage: Callable[[Any], float] | None = None
    price_per_1000: float | None = None

    def __post_init__(self) -> None:
        check("Budget.per_minute", self.per_minute, number("a number above 0", above=0))
        if not callable(self.cost):
            refuse("Budget.cost", self.cost, "a function of the row that returns a number")
        if self.usage is not None and not callable(self.usage):
            refuse("Budget.usage", self.usage, "a function of the answer that returns a number, or None")
        check("Budget.price_per_1000", self.price_per_1000, number("a number, 0 or more", at_least=0).or_none())


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits on calls in flight, time, rate and buffer space.

    Args:
        max_in_flight: concurrent calls, up to 100,000. ``"auto"`` or an ``Auto``: adapted to the destination, per
            job. An integer: fixed, per task.
        max_in_flight_job: concurrent calls of the whole job, in addition to ``max_in_flight``; None: no limit.
        timeout: seconds for one attempt; None: no limit. The default is shortened to ``total_timeout`` if necessary.
        total_timeout: seconds for a call, including all attempts and pauses; None: no limit.
        rate_limit: attempts per second for the whole job, as a number or a ``Rate``; None: no limit.
        budget: budget per minute for the whole job; None: no limit.
        concurrent_tasks: the number of tasks that share the limits of the job where the driver cannot lease them:
            with Connect, and where executors cannot reach the driver. Default: the number of slots in the cluster.
        circuit_breaker: thresholds of the circuit breaker; None: no circuit breaker.
        buffer: space for rows and answers.
        driver_channel: whether the driver opens a port, while a batch of ``enrich_batch`` runs or from ``enrich`` on.
            Over this port, the driver leases parts of the job's limits to the tasks, receives the progress of a batch,
            and stops its tasks immediately when the batch is abandoned. Without the port, with ``enrich`` and with
            Connect, tasks continue their calls until Spark kills the tasks after two to four seconds. With Connect on
            Spark 4.0, Spark does not kill the tasks, so the calls continue until the batch is complete.

    Raises:
        InvalidPlanError: when a value or a combination of values is invalid.
    """

    max_in_flight: int | Auto | Literal["auto"] = "auto"
    max_in_flight_job: int | None = None
    timeout: float | None = _TIMEOUT
    total_timeout: float | None = 120.0
    rate_limit: float | Rate | None = None
    budget: Budget | None = None
    concurrent_tasks: int | None = None
    circuit_breaker: CircuitBreaker | None = dataclasses.field(default_factory=CircuitBreaker)
    buffer: Buffer = dataclasses.field(default_factory=Buffer)
    driver_channel: bool = True

    def __post_init__(self) -> None:
        check("Limits.max_in_flight", self.max_in_flight, _CALLS_IN_FLIGHT)
        check("Limits.timeout", self.timeout, SECONDS.or_none())
        check("Limits.total_timeout", self.total_timeout, SECONDS.or_none())
        total = math.inf if self.total_timeout is None else self.total_timeout
        if isinstance(self.timeout, _Seconds):
            object.__setattr__(self, "timeout", min(float(self.timeout), total))
        elif self.timeout is not None and self.timeout > total:
            refuse("Limits.timeout", self.timeout, f"at most total_timeout, which is {self.total_timeout!r}")
        if self.max_in_flight_job is not None:
            check("Limits.max_in_flight_job", self.max_in_flight_job, integer(1, None))
        if not isinstance(self.rate_limit, Rate):
            what = "a Rate, or a number of attempts per second above 0"
            check("Limits.rate_limit", self.rate_limit, number(what, above=0).or_none())
        instance("Limits.budget", self.budget, Budget)
        if self.concurrent_tasks is not None:
            check("Limits.concurrent_tasks", self.concurrent_tasks, integer(1, None))
            if self.rate_limit is None and self.budget is None and self.max_in_flight_job is None:
                refuse(
                    "Limits.concurrent_tasks",
                    self.concurrent_tasks,
                    "None without rate_limit, budget or max_in_flight_job, which they share",
                )
        instance("Limits.circuit_breaker", self.circuit_breaker, CircuitBreaker)
        instance("Limits.buffer", self.buffer, Buffer, none=False)
        check("Limits.driver_channel", self.driver_channel, boolean)

    @property
    def requests_per_second(self) -> float | None:
        """Attempts per second in ``rate_limit``; None: no limit."""
        return self.rate_limit.requests_per_second if isinstance(self.rate_limit, Rate) else self.rate_limit


@dataclasses.dataclass(frozen=True, slots=True)
class Cache:
    """Answers that equal rows share.

    Equal rows share an answer within a task, and for ``ttl`` seconds within the worker process. Answers are
    separate for each combination of function, resource, output, and column names and types. The least recently used
    answer is evicted.

    Args:
        by: the columns that identify a request; rows of one partition with equal values in these columns share one
            call. For one call across all partitions, repartition by these columns first, which loses the order of the
            rows. With a ``key`` and ``on_failure="fail"``, the columns of the key must be among them. None: all input
            columns, and equal rows share a call only while it is in flight or cached.
        max_entries: maximum number of answers per worker process.
        ttl: seconds until an answer expires; 0: no answer is kept for later tasks (needs ``by``).

    Raises:
        InvalidPlanError: when a value or a combination of values is invalid.
    """

    by: str | Sequence[str] | None = None
    max_entries: int = _MOST_ENTRIES
    ttl: float = 300.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", columns_of("Cache.by", self.by))
        check("Cache.max_entries", self.max_entries, integer(1, None))
        check("Cache.ttl", self.ttl, SECONDS_OR_ZERO)
        if not self.ttl and self.by is None:
            refuse("Cache.ttl", self.ttl, "seconds above 0 without Cache.by, because nothing would be shared")
        if not self.ttl and self.max_entries != _MOST_ENTRIES:
            refuse("Cache.max_entries", self.max_entries, "the default with Cache.ttl=0, which keeps no answers")


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """Columns of a key: calls for rows with equal keys run one after another, in order.

    Args:
        columns: the columns of the key.
        order_by: columns that determine the order of rows with the same key; required if the rows must be shuffled.

    Raises:
        InvalidPlanError: when a value is invalid.
    """

    columns: str | Sequence[str]
    order_by: str | Column | Sequence[str | Column] | None = None

    def __post_init__(self) -> None:
        if self.columns is None:
            refuse("Key.columns", self.columns, "one or more column names")
        object.__setattr__(self, "columns", columns_of("key", self.columns))


@dataclasses.dataclass(frozen=True, slots=True)
class OnFailure(Generic[A_co]):
    """Treatment of rows that have no attempts left; ``on_failure="null"`` is short for ``OnFailure("null")``.

    Args:
        action: ``fail``: the batch fails. ``null``: the answers are null. ``column``: the answers are null, and an
            additional column contains the reason. ``dead_letter``: ``enrich_batch`` returns the rows in a second
            DataFrame.
        column: for ``column`` and ``dead_letter``, the name of the column that contains the reason, different from all
            other columns.
        max_ratio: ratio of failed rows above which a batch fails nevertheless; None: no limit.

    Raises:
        InvalidPlanError: when a value or a combination of values is invalid.
    """

    action: A_co
    column: str = "failure"
    max_ratio: float | None = None

    def __post_init__(self) -> None:
        check("OnFailure.action", self.action, choice(*get_args(Action)))
        check("OnFailure.column", self.column, text("a non-empty column name"))
        if self.column != "failure" and self.action not in ("column", "dead_letter"):
            refuse("OnFailure.column", self.column, f"only with 'column' or 'dead_letter', not with {self.action!r}")
        if self.max_ratio is not None:
            check("OnFailure.max_ratio", self.max_ratio, _RATIO)
            if self.action == "fail":
                refuse("OnFailure.max_ratio", self.max_ratio, "None with 'fail', where one failed row fails the batch")


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """Identity of rows and batches, and answers that a repeated batch reuses.

    Args:
        store: the path or URI of a directory that all executors can reach. Answers of a failed batch are stored there,
            so that its replay makes only the missing calls. None: a repeated batch repeats all its calls.
        version: part of the key of stored answers. The code of ``fn`` is not part of the key: if a code change affects
            the answers, change the version; otherwise a replay uses the answers of the earlier code.
        name: the enrichment's own name, part of ``ctx.idempotency_key`` and of the key of stored answers. Two
            enrichments of one batch need different names. None: the module and name of ``fn``.
        idempotency_cols: the columns that identify a row, for ``ctx.idempotency_key`` and stored answers. None: the
            ``input_cols``; without these, all columns.
        query: a name that stays the same across restarts; required whenever ``batch_id`` is required.
        batch_id: the number that ``foreachBatch`` passed; another number counts as the next batch, and releases the
            earlier results of this call of ``foreachBatch``, even if they are still in use. Spark reports this number,
            except with Connect and in threads that do not inherit Spark's local properties. In these cases, and for
            ``store`` outside of a stream, the number is required.

    Raises:
        InvalidPlanError: when a value is invalid.
    """

    store: str | os.PathLike[str] | None = None
    version: str = "1"
    name: str | None = None
    idempotency_cols: str | Sequence[str] | None = None
    query: str | None = None
    batch_id: int | None = None

    def __post_init__(self) -> None:
        if self.store is not None:
            store = os.fspath(self.store) if isinstance(self.store, os.PathLike) else self.store
            check("Replay.store", store, text("the path or URI of a directory that all executors can reach"))
        check("Replay.version", self.version, text("a non-empty string, such as '1'"))
        if self.store is None and self.version != "1":
            refuse("Replay.version", self.version, "'1' without Replay.store, to which it applies")
        object.__setattr__(self, "idempotency_cols", columns_of("Replay.idempotency_cols", self.idempotency_cols))
        if self.name is not None:
            check("Replay.name", self.name, text("a name that stays the same across restarts"))
        if self.query is not None:
            check("Replay.query", self.query, text("a name that stays the same across restarts"))
        if self.batch_id is not None:
            check("Replay.batch_id", self.batch_id, integer(0, None))


def _exceptions(given: object) -> object:
    """Return exception types as a tuple and a function unchanged."""
    kinds = (given,) if isinstance(given, type) else given
    if kinds is None or (callable(kinds) and not isinstance(kinds, Sequence)):
        return kinds
    if not isinstance(kinds, Sequence) or not kinds:
        refuse("Retry.on", given, "exception types, or a function of the exception")
    for kind in kinds:
        # CancelledError is a BaseException. If it were retried, calls could not be cancelled.
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            refuse("Retry.on", kind, "subclasses of Exception")
    return tuple(kinds)
