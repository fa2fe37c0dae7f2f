"""Execution of one batch: either every call is answered, or the batch fails."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from spark_events.enrichment.api.request import Request, mapped
from spark_events.enrichment.api.schema import quoted, typed
from spark_events.enrichment.checks import message_first
from spark_events.enrichment.driver.batch_names import names
from spark_events.enrichment.driver.channel_server import batch_channel
from spark_events.enrichment.driver.checkpoint import settle
from spark_events.enrichment.driver.micro_batch import MicroBatch, is_connect, is_local
from spark_events.enrichment.driver.package_distribution import explained
from spark_events.enrichment.driver.progress import Progress
from spark_events.enrichment.driver.rate import ledger_of, log_limits, state_of
from spark_events.enrichment.driver.release import held
from spark_events.enrichment.driver.replay import (
    check_definition,
    check_store,
    clear,
    clear_older,
    warn_of_other_definitions,
)
from spark_events.enrichment.driver.reports import enrichment_event, judged, post, warn_of_failures
from spark_events.enrichment.driver.warnings import warn_of_equal_names, warn_of_storage, warn_once
from spark_events.enrichment.engine.statistics import merged
from spark_events.enrichment.settings import Limits, Replay
from spark_events.enrichment.signature import name_of
from spark_events.enrichment.worker.replay import ReplayStore
from spark_events.enrichment.worker.report import COLUMN, PartitionReport
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["WithDeadLetters", "run"]

_LOG = logging.getLogger(__name__)
_MAX_PROBLEMS_LOGGED = 10


class WithDeadLetters(tuple["DataFrame", "DataFrame"]):
    """The enriched rows and the dead letters; code that takes the pair for a DataFrame gets an explanation."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        text = (
            f"enrich_batch with on_failure='dead_letter' returns two DataFrames, which have no attribute {name!r} "
            "together: write enriched, dead = enrich_batch(…)"
        )
        raise message_first(AttributeError(text))

    def __getitem__(self, which: Any) -> Any:
        # A tuple would report the type of its index.
        return self.__getattr__(which) if isinstance(which, str) else super().__getitem__(which)

    def count(self, *values: Any) -> int:
        """Count equal items, as a tuple does; without an argument, the caller has taken the pair for a DataFrame."""
        return super().count(*values) if values else self.__getattr__("count")


def run(
    request: Request, batch: MicroBatch, limits: Limits, repeated: Replay, progress_seconds: float = 30.0
) -> tuple[DataFrame, DataFrame | None]:
    """Make all calls of a batch, and wait for the answers.

    Args:
        request: the checked arguments.
        batch: the identity of the batch.
        limits: the limits of the calls.
        repeated: the identity of rows and batches.
        progress_seconds: time between two reports of the batch's progress.

    Returns:
        The rows with their answers and, with ``on_failure="dead_letter"``, a second DataFrame with the rows that have
        no answer.

    Raises:
        EnrichmentError: when rows have no answer and ``on_failure`` or ``max_ratio`` makes the batch fail.
    """
    df, plan = request.df, request.plan
    name = name_of(plan.fn)
    storage = limits.buffer.storage
    replay = _store(request, batch, repeated.store, repeated.version)
    warn_of_storage(df, storage)
    held.begin(df, batch)
    if names.is_taken(batch, request.name, request.definition.answers):
        warn_of_equal_names(df, request.name)
    if replay is not None:
        clear_older(replay)
        check_definition(replay, batch, request.definition.answers)
        warn_of_other_definitions(replay, batch)
        # Register the batch before its calls: if the caller catches the error, Spark still commits the batch.
        held.add(batch, None, functools.partial(clear, replay))
    started = time.monotonic()
    ledger, state = ledger_of(plan, request.definition.calls), state_of(plan, request.definition.calls)
    progress = Progress(name, batch, limits, progress_seconds)
    with (
        batch_channel(df, wanted=limits.driver_channel, ledger=ledger, progress=progress, state=state) as channel,
        progress.reported(functools.partial(post, df)),
    ):
        address = None if channel is None else channel.address
        log_limits(df, plan, limits, address)
        task = request.task(scope=batch.scope, settles=True, replay=replay, channel=address)
        lazy = mapped(request, task)
        with explained(df):
            settled = settle(lazy, storage, channel)
    seconds = time.monotonic() - started
    error = judged(plan, batch, settled.reports)
    _warn(df, settled.reports)
    post(df, enrichment_event(name, batch, settled.reports, seconds, error, plan.budget))
    if error is not None:
        settled.release()
        raise error
    warn_of_failures(plan, batch, settled.reports)
    held.add(batch, settled.release)
    return _shown(request, settled.df)


def _shown(request: Request, settled: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    # Strings, because building the same expressions from columns takes ten times as many calls of the JVM.
    own = [quoted(name) for name in request.df.columns]
    answers = [quoted(name) for name in request.output.names]
    failure = f"{COLUMN}.failure"
    named = f"{failure} as {quoted(request.failure_column)}"
    how = request.plan.on_failure
    if how == "column":
        return settled.selectExpr(*own, *answers, named), None
    if how == "dead_letter":
        dead = settled.where(f"{failure} is not null").selectExpr(*own, named)
        return settled.where(f"{failure} is null").selectExpr(*own, *answers), dead
    return settled.selectExpr(*own, *answers), None


def _store(
    request: Request, batch: MicroBatch, root: str | os.PathLike[str] | None, version: str
) -> ReplayStore | None:
    if root is None:
        return None
    root = os.fspath(root)
    if not batch.query or batch.batch is None:
        raise InvalidPlanError(
            "Replay.store needs the query and batch of its answers: outside of a stream, pass Replay.query and batch_id"
        )
    check_store(root, shared=not is_connect(request.df) and is_local(request.df))
    plan, schema = request.plan, request.df.schema
    columns = [typed(schema, names) for names in (request.input_cols, plan.coalesce_by or (), request.identity)]
    return ReplayStore(
        root, batch.query, batch.batch, request.name, version, request.output.serialised(), repr(columns)
    )


def _warn(df: DataFrame, reports: list[PartitionReport]) -> None:
    numbers = merged([dict(report.statistics) for report in reports])
    for key, rows in numbers["hot_keys"].items():
        _LOG.warning("hot key %s: %s rows in one batch; their calls ran one after another", key, f"{rows:,}")
    for where, seconds in numbers["blocked"].items():
        _LOG.warning(
            "user code blocked a worker's event loop for %.1f s, which delayed all its calls; use async calls at %s",
            seconds, where,
        )  # fmt: skip
    warn_once(df, *numbers["hints"])
    for warning in _few(dict.fromkeys(warning for report in reports for warning in report.warnings)):
        _LOG.warning("%s", warning)
    if numbers["abandoned"]:
        _LOG.warning("%s calls did not end after cancellation and were abandoned", f"{numbers['abandoned']:,}")


def _few(warnings: Iterable[str]) -> list[str]:
    """Return the first problems, and the number of others; an unreachable store causes one problem per task."""
    texts = list(warnings)
    more = len(texts) - _MAX_PROBLEMS_LOGGED
    return texts if more <= 0 else [*texts[:_MAX_PROBLEMS_LOGGED], f"{more:,} more problems of this batch not logged"]
