"""Warnings about Spark settings that affect an enrichment, logged once per application."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)

#: Logged warnings, by application and message. A stream starts its enrichments in every micro-batch, and must not
#: repeat the warnings.
_logged: set[tuple[str, str]] = set()
#: Applications, functions and columns whose idempotency keys have been examined.
_examined: set[tuple[str, ...]] = set()
#: Columns of Spark's Kafka source that identify a record.
_KAFKA = ("topic", "partition", "offset")


def warn_of_settings(df: DataFrame) -> None:
    """Warn about settings that change the effect of an enrichment."""
    warn_once(df, *_of_speculation(df), *_of_reuse(df))


def warn_of_storage(df: DataFrame, storage: str) -> None:
    """Warn about settings that endanger a batch that is stored on executors."""
    if storage != "reliable":
        warn_once(df, *_of_cached_idle_timeout(df))


def warn_of_changing_keys(df: DataFrame, function: str) -> None:
    """Warn that a change of the schema changes the idempotency keys of a batch that runs again."""
    warn_once(
        df,
        f"ctx.idempotency_key of {function} depends on all columns: if a column is added or removed before a failed "
        "batch runs again, the batch has other keys, and the service repeats what it has done; list the columns that "
        "the function reads in input_cols, or those that identify a row in Replay.idempotency_cols"
        + (f", such as {list(_KAFKA)}" if set(_KAFKA) <= set(df.columns) else ""),
    )


def warn_of_random_keys(df: DataFrame, function: str, columns: Sequence[str]) -> None:
    """Warn that columns that identify a row have other values in each run, as with ``uuid()``.

    Spark's optimizer decides this, once for a function.
    """
    place = (_setting(df, "spark.app.id") or "", function, *columns)
    if place in _examined:
        return
    _examined.add(place)
    identity = df.select(*(f"`{name.replace('`', '``')}`" for name in columns))
    if not identity._jdf.queryExecution().optimizedPlan().deterministic():
        warn_once(
            df,
            f"ctx.idempotency_key of {function} depends on values that Spark computes anew when a batch runs again, "
            f"such as uuid() or rand(): the service repeats what it has done. Of {', '.join(columns)}, list those from "
            "the source in Replay.idempotency_cols",
        )


def warn_of_equal_names(df: DataFrame, name: str) -> None:
    """Warn that two enrichments of one batch have equal names."""
    warn_once(
        df,
        f"two enrichments of one batch are named {name!r}, so equal rows have equal idempotency keys in both, and a "
        "service may answer the second one with the result of the first; give each a name: replay=Replay(name=…)",
    )


def warn_of_split(df: DataFrame, tasks: int) -> None:
    """Warn that the driver cannot lease parts of the job's limits, so the tasks share the limits evenly."""
    warn_once(
        df,
        f"the driver cannot lease the job's limits to its tasks: each task uses 1/{tasks} of rate_limit, budget, "
        f"max_in_flight_job and Auto.max, as if {tasks} tasks run at a time. Fewer tasks stay below the limits, and "
        "more exceed them; give Limits.concurrent_tasks",
    )


def warn_once(df: DataFrame, *texts: str) -> None:
    """Log warnings, each once in an application."""
    for text in texts:
        application = _setting(df, "spark.app.id") or ""
        if (application, text) not in _logged:
            _logged.add((application, text))
            _LOG.warning("%s", text)


def _of_speculation(df: DataFrame) -> Iterator[str]:
    """Warn if speculation is on: a second copy of a slow task repeats all its calls."""
    if _is(df, "spark.speculation", "true"):
        yield "spark.speculation is on: Spark may run a task twice, which repeats all its calls; switch it off"


def _of_reuse(df: DataFrame) -> Iterator[str]:
    """Warn if worker reuse is off: each worker process then loses its state when a task ends."""
    if _is(df, "spark.python.worker.reuse", "false"):
        yield (
            "spark.python.worker.reuse is off: every task starts its own Python process and loses the state of "
            "circuit_breaker, cache, resource and Retry-After; switch it on"
        )


def _of_cached_idle_timeout(df: DataFrame) -> Iterator[str]:
    """Warn about the timeout after which Spark removes executors that store data; by default, there is no timeout."""
    key = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
    timeout = _setting(df, key)
    is_local = (_setting(df, "spark.master") or "").partition("[")[0] == "local"
    if timeout is not None and not is_local and _is(df, "spark.dynamicAllocation.enabled", "true"):
        yield (
            f"{key} is {timeout}: Spark removes an executor that is idle for this time, with its part of the stored "
            "batch. Spark then repeats the calls of that part or, after the last call, fails the batch. Unset the key, "
            "or give Buffer(storage='reliable')"
        )


def _is(df: DataFrame, key: str, value: str) -> bool:
    return (_setting(df, key) or "").strip().lower() == value


def _setting(df: DataFrame, key: str) -> str | None:
    with contextlib.suppress(Exception):  # with Connect, a server setting may be inaccessible
        found = df.sparkSession.conf.get(key, None)
        return None if found is None else str(found)
    return None
