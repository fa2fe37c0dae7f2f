"""One batch, settled: every call has been made and answered, or the batch fails."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.api.closures import pickled
from spark_events.enrichment.api.lasting import lasting
from spark_events.enrichment.api.request import Request, mapped
from spark_events.enrichment.api.schema import quoted
from spark_events.enrichment.driver.checkpoint import Storage, settle
from spark_events.enrichment.driver.driver_channel import batch_channel
from spark_events.enrichment.driver.micro_batch import MicroBatch, is_connect, is_local
from spark_events.enrichment.driver.progress import told
from spark_events.enrichment.driver.release import held
from spark_events.enrichment.driver.reports import enrichment_event, judged, post
from spark_events.enrichment.driver.warnings import caution_of_storage
from spark_events.enrichment.engine.statistics import merged
from spark_events.enrichment.signature import name_of
from spark_events.enrichment.worker.replay import ReplayStore
from spark_events.enrichment.worker.replay_files import check_store
from spark_events.enrichment.worker.report import COLUMN, PartitionReport
from spark_events.errors import InvalidPlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["run"]

_LOG = logging.getLogger(__name__)
_TROUBLES_TOLD = 10


def run(
    request: Request, batch: MicroBatch, storage: Storage, replay_store: str | None, *, tell_workers: bool = True
) -> tuple[DataFrame, DataFrame | None]:
    """Makes all calls, and waits.

    Returns:
        The rows with their answers, and with ``on_failure="dead_letter"`` those without.

    Raises:
        EnrichmentError: rows have no answer, and the plan says that the batch fails then.
    """
    df, plan = request.df, request.plan
    name = name_of(plan.fn)
    replay = _store(request, batch, replay_store)
    caution_of_storage(df, storage)
    held.begin(df, batch)
    if replay is not None:
        _clear_older(replay)
        _warn_of_other_definitions(replay, batch)
        # However this ends: who catches the error has the batch committed all the same.
        held.add(batch, None, replay.clear)
    started = time.monotonic()
    with told(df, str(batch)), batch_channel(df, wanted=tell_workers) as channel:
        address = None if channel is None else channel.address
        lazy = mapped(request, request.task(scope=batch.scope, settles=True, replay=replay, channel=address))
        settled = settle(lazy, storage, channel)
    seconds = time.monotonic() - started
    error = judged(plan, batch, settled.reports)
    _warn(settled.reports)
    post(df, enrichment_event(name, batch, settled.reports, seconds, error))
    if error is not None:
        settled.release()
        raise error
    held.add(batch, settled.release)
    return _shown(request, settled.df)


def _shown(request: Request, settled: DataFrame) -> tuple[DataFrame, DataFrame | None]:
    from pyspark.sql import functions

    failure = functions.col(COLUMN).getField("failure")
    own = [quoted(name) for name in request.df.columns]
    answers = [quoted(name) for name in request.output.names]
    how = request.plan.on_failure
    if how == "column":
        return settled.select(*own, *answers, failure.alias(request.failure_column)), None
    if how == "dead_letter":
        dead = settled.where(failure.isNotNull()).select(*own, failure.alias(request.failure_column))
        return settled.where(failure.isNull()).select(*own, *answers), dead
    return settled.select(*own, *answers), None


def _store(request: Request, batch: MicroBatch, root: Any) -> ReplayStore | None:
    if root is None:
        return None
    if not isinstance(root, str | os.PathLike):
        raise InvalidPlanError(f"replay_store is {root!r}; allowed: the address of a folder that all executors reach")
    if not (root := os.fspath(root)):
        raise InvalidPlanError("replay_store is empty; allowed: the address of a folder that all executors reach")
    if not batch.query or batch.batch is None:
        raise InvalidPlanError(
            "replay_store keeps answers by query and batch: outside of a stream, give query and batch_id"
        )
    # First of all whether they can be sent: what cannot need not be looked into.
    pickled(request.plan)
    check_store(root, shared=not is_connect(request.df) and is_local(request.df))
    definition = lasting(request.plan, request.df.schema, request.input_cols, request.identity)
    return ReplayStore(root, batch.query, batch.batch, request.output.serialised(), definition)


def _clear_older(replay: ReplayStore) -> None:
    try:
        replay.clear_older()
    except Exception as error:
        # They are in nobody's way, and the next batch tries again.
        _LOG.warning("answers of earlier batches are still in the replay store %s: %s", replay.root, error)


def _warn_of_other_definitions(replay: ReplayStore, batch: MicroBatch) -> None:
    try:
        found = replay.answers_of_others(held.note_folders(batch, replay.folder))
    except Exception as error:
        # The tasks read it, too, and say so.
        _LOG.debug("the folders of the replay store %s cannot be listed: %s", replay.root, error)
        return
    if answers := sum(found.values()):
        # Once: another enrichment of this batch would find the same folders.
        held.note_folders(batch, *found)
        _LOG.warning(
            "replay store %s holds %s answers of %s, all of another definition (the output or the function has "
            "changed); all its rows are called again",
            replay.root, f"{answers:,}", batch,
        )  # fmt: skip


def _warn(reports: list[PartitionReport]) -> None:
    numbers = merged([dict(report.statistics) for report in reports])
    for key, rows in numbers["hot_keys"].items():
        _LOG.warning("hot key %s: %s rows in one batch, called one after the other", key, f"{rows:,}")
    for where, seconds in numbers["blocked"].items():
        _LOG.warning("the loop was blocked for %.1f s, and with it all calls of its worker, at %s", seconds, where)
    for trouble in _few(dict.fromkeys(trouble for report in reports for trouble in report.troubles)):
        _LOG.warning("%s", trouble)
    if numbers["abandoned"]:
        _LOG.warning("%s calls did not end when they were cancelled", f"{numbers['abandoned']:,}")


def _few(troubles: Iterable[str]) -> list[str]:
    """Of a store that nobody reaches, every task has something to tell."""
    told = list(troubles)
    more = len(told) - _TROUBLES_TOLD
    return told if more <= 0 else [*told[:_TROUBLES_TOLD], f"and {more:,} more of this kind"]
