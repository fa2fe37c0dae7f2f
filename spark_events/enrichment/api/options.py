"""Check the arguments, and convert them to a plan for a DataFrame."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from spark_events.enrichment.api.schema import existing
from spark_events.enrichment.checks import columns_of, instance, message_first, refuse
from spark_events.enrichment.engine.models import is_model
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import (
    Action,
    Auto,
    Budget,
    Buffer,
    Cache,
    CircuitBreaker,
    Key,
    Limits,
    OnFailure,
    Rate,
    Replay,
    Retry,
)
from spark_events.errors import InvalidPlanError, MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["check_libraries", "names_checked", "plan_of"]

F = TypeVar("F", bound=Callable[..., Any])

#: Arguments whose value is an object with options.
_OPTIONS: dict[str, Any] = {
    "limits": Limits, "retry": Retry, "on_failure": OnFailure, "cache": Cache, "replay": Replay, "key": Key
}  # fmt: skip
#: Options of ``Limits`` whose value is an object.
_OF_LIMITS: dict[str, Any] = {
    "max_in_flight": Auto, "rate_limit": Rate, "budget": Budget, "circuit_breaker": CircuitBreaker, "buffer": Buffer
}  # fmt: skip
#: Names of options in other libraries, and the option of this one.
_SYNONYMS = {
    "concurrency": "max_in_flight", "max_concurrency": "max_in_flight", "max_workers": "max_in_flight",
    "parallelism": "max_in_flight", "in_flight": "max_in_flight", "qps": "rate_limit", "rps": "rate_limit",
    "requests_per_second": "rate_limit", "rate": "rate_limit", "workers": "max_in_flight",
    "num_workers": "max_in_flight", "schema": "output", "return_type": "output", "retries": "attempts",
    "max_retries": "attempts", "max_attempts": "attempts", "on_error": "on_failure", "errors": "on_failure",
}  # fmt: skip


def names_checked(function: F) -> F:
    """Make a function reject unknown arguments with a message that names the right argument, or all of them."""
    signature = inspect.signature(function)
    known = list(signature.parameters)

    def checked(*args: Any, **named: Any) -> Any:
        for name in named:
            if name in known:
                continue
            raise InvalidPlanError(f"{function.__name__}() has no argument {name!r}; {_meant(name, known)}")
        try:
            signature.bind(*args, **named)
        except TypeError as wrong:
            name = function.__name__
            raise InvalidPlanError(f"{name}(): {wrong}; write {name}(df, fn, output=…)") from None
        df = args[0] if args else named.get("df")
        if not hasattr(type(df), "isStreaming"):  # on the object, this would ask the JVM or the server
            kind = f"{type(df).__module__}.{type(df).__qualname__}".removeprefix("builtins.")
            raise InvalidPlanError(f"df is {kind}; allowed: a DataFrame of Spark, such as spark.createDataFrame(…)")
        return function(*args, **named)

    @functools.wraps(function)
    def summarised(*args: Any, **named: Any) -> Any:
        try:
            return checked(*args, **named)
        except InvalidPlanError as error:
            message_first(error)
            raise

    return summarised  # type: ignore[return-value]


def _meant(name: str, known: list[str]) -> str:
    """Return where an option belongs, the closest argument, or all arguments."""
    option = _SYNONYMS.get(name, name)
    for argument, kind in _OPTIONS.items():
        if option in kind.__dataclass_fields__:
            return f"write {argument}={kind.__name__}({option}=…)"
    for limit, kind in _OF_LIMITS.items():
        if option in kind.__dataclass_fields__:
            return f"write limits=Limits({limit}={kind.__name__}({option}=…))"
    if option in get_args(Action):
        return f"write on_failure={option!r}"
    if option in known:
        return f"did you mean {option}?"
    options = [field for kind in (*_OPTIONS.values(), *_OF_LIMITS.values()) for field in kind.__dataclass_fields__]
    near = difflib.get_close_matches(name, [*known, *options, *_SYNONYMS], n=1)
    if near and near[0] not in known:
        return _meant(near[0], known)
    return f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}"


def plan_of(
    df: DataFrame,
    fn: Any,
    output: Any,
    resource: Any,
    key: Any,
    batch_size: int | None,
    limits: Limits,
    retry: Retry | None,
    on_failure: Action | OnFailure[Any],
    cache: Any,
    replay: Replay,
) -> tuple[Plan, OnFailure[Any]]:
    """Return the plan, with column names spelled as in the DataFrame, and the treatment of failures.

    Raises:
        InvalidPlanError: when an argument is invalid, or a column does not exist.
    """
    for limit, kind in _OF_LIMITS.items():
        if isinstance(limits, kind):
            refuse("limits", limits, f"a Limits, such as Limits({limit}={kind.__name__}(…))")
    instance("limits", limits, Limits, none=False, such_as="max_in_flight")
    instance("retry", retry, Retry, such_as="attempts")
    instance("cache", cache, Cache, such_as="by" if isinstance(cache, str) else "ttl")
    instance("replay", replay, Replay, none=False, such_as="store" if "/" in str(replay) else "query")
    failures = on_failure if isinstance(on_failure, OnFailure) else OnFailure(on_failure)
    _check_names(df)
    columns = columns_of("key", key.columns if isinstance(key, Key) else key)
    by = None if cache is None else cache.by
    plan = Plan(
        fn,
        resource=resource,
        max_in_flight=limits.max_in_flight,
        timeout=limits.timeout,
        total_timeout=limits.total_timeout,
        retry=retry,
        rate_limit=limits.requests_per_second,
        budget=limits.budget,
        max_in_flight_job=limits.max_in_flight_job,
        circuit_breaker=limits.circuit_breaker,
        key=None if columns is None else existing(df, "key", columns),
        coalesce_by=None if by is None else existing(df, "Cache.by", by),
        cache=cache if cache is not None and cache.ttl else None,
        batch_size=batch_size,
        on_failure=failures.action,
        max_failure_ratio=failures.max_ratio,
        buffer_rows=limits.buffer.rows,
        buffer_bytes=limits.buffer.bytes,
        ordered=limits.buffer.ordered,
        model=output if is_model(output) else None,
    )
    return plan, failures


def _check_names(df: DataFrame) -> None:
    """Check that Spark can distinguish the columns of the DataFrame by name."""
    twice = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if twice:
        raise InvalidPlanError(f"the DataFrame has several columns named {twice[0]!r}: rename all but one")
    seen: dict[str, str] = {}
    for name in df.columns:
        twin = seen.setdefault(name.lower(), name)
        if twin != name and str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() != "true":
            raise InvalidPlanError(
                f"the DataFrame has columns {twin!r} and {name!r}, which Spark treats as the same name: rename one, or "
                "set spark.sql.caseSensitive to true"
            )


def check_libraries() -> None:
    """Check that the libraries that ``mapInArrow`` requires are installed on the driver.

    Raises:
        MissingExtraError: when pyarrow or pandas is not installed.
    """
    for library in ("pyarrow", "pandas"):
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError(f"enrichment needs {library}: pip install 'spark-events[enrich]'")
