"""Options of an enrichment, and their conversion to a plan for a DataFrame."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from spark_events.enrichment.api.schema import existing
from spark_events.enrichment.plan import Cache, CircuitBreaker, OnFailure, Plan, Retry
from spark_events.errors import InvalidPlanError, MissingExtraError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from pyspark.sql import DataFrame

__all__ = ["BatchOptions", "Options", "check_libraries", "plan_of"]

#: Named arguments of both functions (`_NAMED`), and options that only `enrich_batch` accepts (`_OF_A_BATCH`).
_NAMED = (
    "output",
    "input_cols",
    "sort_within_key",
    "failure_column",
    "idempotency_cols",
    "concurrent_tasks",
)
_OF_A_BATCH = frozenset(
    {"storage", "replay_store", "replay_version", "batch_id", "query", "max_failure_ratio", "tell_workers"}
)


class BatchOptions(TypedDict, total=False):
    """Options that ``enrich`` and ``enrich_batch`` share: :class:`Plan` documents each of them."""

    resource: Callable[[], AbstractAsyncContextManager[Any]] | None
    max_in_flight: int
    timeout: float | None
    total_timeout: float | None
    retry: Retry | None
    rate_limit: float | None
    circuit_breaker: CircuitBreaker | None
    key: str | Sequence[str] | None
    coalesce_by: str | Sequence[str] | None
    cache: Cache | None
    batch_size: int | None
    max_failure_ratio: float | None
    buffer_rows: int
    buffer_bytes: int


class Options(BatchOptions, total=False):
    """The shared options and ``on_failure``, which :func:`enrich_batch` declares as a named argument."""

    on_failure: OnFailure


def plan_of(df: DataFrame, fn: Any, options: Options) -> Plan:
    """Return the plan, with column names spelled as in the DataFrame.

    Raises:
        InvalidPlanError: when an option is unknown, a value is invalid, or a column does not exist.
    """
    allowed = {field.name for field in dataclasses.fields(Plan) if field.name != "fn"}
    unknown = [name for name in options if name not in allowed]
    if unknown:
        both, of_a_batch = ", ".join(sorted({*allowed, *_NAMED} - _OF_A_BATCH)), ", ".join(sorted(_OF_A_BATCH))
        raise InvalidPlanError(f"unknown option {unknown[0]!r}; allowed: {both}; with enrich_batch also: {of_a_batch}")
    _check_names(df)
    plan = Plan(fn, **options)  # type: ignore[arg-type]  # names become tuples there
    found: dict[str, Any] = {}
    for name in ("key", "coalesce_by"):
        if getattr(plan, name) is not None:
            found[name] = existing(df, name, getattr(plan, name))
    return dataclasses.replace(plan, **found)


def _check_names(df: DataFrame) -> None:
    """Check that Spark can distinguish the DataFrame's columns by name."""
    twice = sorted({name for name in df.columns if df.columns.count(name) > 1})
    if twice:
        raise InvalidPlanError(f"the DataFrame has several columns named {twice[0]!r}: rename all but one")
    seen: dict[str, str] = {}
    for name in df.columns:
        twin = seen.setdefault(name.lower(), name)
        if twin != name and str(df.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() != "true":
            raise InvalidPlanError(
                f"the DataFrame has columns {twin!r} and {name!r}, whose names are equal to Spark: rename one, or set "
                "spark.sql.caseSensitive to true"
            )


def check_libraries() -> None:
    """Check that the libraries that ``mapInArrow`` requires are installed on the driver.

    Raises:
        MissingExtraError: when pyarrow or pandas is not installed.
    """
    for library in ("pyarrow", "pandas"):
        if importlib.util.find_spec(library) is None:
            raise MissingExtraError(f"enrichment needs {library}: pip install 'spark-events[enrich]'")
