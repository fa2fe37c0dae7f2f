"""Settings of Spark's with which an enrichment does not do what one would expect: told on the driver, each once."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_events.enrich.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["caution"]

_LOG = logging.getLogger(__name__)

#: By application and what was said: a stream asks for its enrichments in every micro-batch.
_told: set[tuple[str, str]] = set()


def caution(df: DataFrame, plan: Plan) -> None:
    """Warns of what the session's settings do to this plan, once an application."""
    application = _setting(df, "spark.app.id") or ""
    for text in (*_of_speculation(df), *_of_reuse(df, plan)):
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


def _is(df: DataFrame, key: str, value: str) -> bool:
    return (_setting(df, key) or "").strip().lower() == value


def _setting(df: DataFrame, key: str) -> str | None:
    with contextlib.suppress(Exception):  # with Connect, a setting of the server may be out of reach
        found = df.sparkSession.conf.get(key, None)
        return None if found is None else str(found)
    return None
