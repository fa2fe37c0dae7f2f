"""Warnings, once an application, of Spark settings with which an enrichment does not behave as its user expects."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_events.enrichment.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["warn_of_rate", "warn_of_settings", "warn_of_storage"]

_LOG = logging.getLogger(__name__)

#: Since Spark 4.1. A SQL session has settings of its own, which are those of the application unless it is told others.
_SESSION, _APPLICATION = "spark.sql.execution.pyspark.udf", "spark.python.worker"
#: As Spark writes times; without a unit they are seconds here.
_UNITS = {"us": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

#: By application and what was said: a stream asks for its enrichments in every micro-batch.
_told: set[tuple[str, str]] = set()


def warn_of_settings(df: DataFrame, plan: Plan) -> None:
    """Warn of settings that change what this plan does."""
    _tell(df, [*_of_speculation(df), *_of_reuse(df, plan), *_of_idle_timeout(df, plan)])


def warn_of_storage(df: DataFrame, storage: str) -> None:
    """Warn of settings that endanger a batch that is stored on executors."""
    if storage != "reliable":
        _tell(df, [*_of_cached_idle_timeout(df)])


def warn_of_rate(df: DataFrame) -> None:
    """Warn that the number of executors has no bound."""
    _tell(
        df,
        [
            "Spark does not tell how many executors may yet come: rate_limit is shared by as many tasks as could run "
            "at a time so far, and is exceeded where executors are added after this; set spark.cores.max on a "
            "standalone cluster, or give concurrent_tasks"
        ],
    )


def _tell(df: DataFrame, texts: list[str]) -> None:
    if not texts:
        return
    application = _setting(df, "spark.app.id") or ""
    for text in texts:
        if (application, text) not in _told:
            _told.add((application, text))
            _LOG.warning("%s", text)


def _of_speculation(df: DataFrame) -> Iterator[str]:
    """A second copy of a slow task makes all its calls a second time."""
    if _is(df, "spark.speculation", "true"):
        yield "spark.speculation is on: Spark may run a task twice, with all its calls; switch it off"


def _of_reuse(df: DataFrame, plan: Plan) -> Iterator[str]:
    """What a worker process keeps is there for the next task only if the process is."""
    if not _is(df, "spark.python.worker.reuse", "false"):
        return
    kept = {
        "circuit_breaker": plan.circuit_breaker is not None,
        "cache": plan.cache is not None,
        "resource": plan.resource is not None,
        "Retry-After": plan.retry is not None and plan.retry.honor_retry_after,
    }
    if any(kept.values()):
        yield (
            "spark.python.worker.reuse is off: every task has a Python of its own, and begins anew with "
            f"{', '.join(name for name, used in kept.items() if used)}; switch it on"
        )


def _of_idle_timeout(df: DataFrame, plan: Plan) -> Iterator[str]:
    """To Spark a worker is idle that neither takes rows nor hands any out, as one does that waits for its calls."""
    kills = _setting(df, f"{_SESSION}.killOnIdleTimeout") or _setting(df, f"{_APPLICATION}.killOnIdleTimeout") or ""
    if kills.strip().lower() != "true":
        return
    text = _setting(df, f"{_SESSION}.idleTimeoutSeconds") or _setting(df, f"{_APPLICATION}.idleTimeoutSeconds")
    seconds, total = _seconds(text or ""), plan.total_timeout
    if seconds and (total is None or seconds <= total):
        called = "is None" if total is None else f"is {total:g} s"
        yield (
            f"{_APPLICATION}.killOnIdleTimeout is on: Spark kills a task that waits for its calls for {seconds:g} s "
            f"(idleTimeoutSeconds), and total_timeout {called}; switch it off"
        )


def _of_cached_idle_timeout(df: DataFrame) -> Iterator[str]:
    """By default, Spark leaves an executor alone for as long as something is stored there."""
    key = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
    timeout = _setting(df, key)
    is_local = (_setting(df, "spark.master") or "").partition("[")[0] == "local"
    if timeout is not None and not is_local and _is(df, "spark.dynamicAllocation.enabled", "true"):
        yield (
            f"{key} is {timeout}: Spark removes an executor that is idle for so long with what it has stored of a "
            "batch; while others still call, its calls are made again, and after that the batch fails; do not set it, "
            "or give storage='reliable'"
        )


def _seconds(text: str) -> float:
    """0 where nobody waits, or knows."""
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    return 0.0 if found is None else int(found[1]) * _UNITS.get(found[2], 0.0)


def _is(df: DataFrame, key: str, value: str) -> bool:
    return (_setting(df, key) or "").strip().lower() == value


def _setting(df: DataFrame, key: str) -> str | None:
    with contextlib.suppress(Exception):  # with Connect, a setting of the server may be out of reach
        found = df.sparkSession.conf.get(key, None)
        return None if found is None else str(found)
    return None
