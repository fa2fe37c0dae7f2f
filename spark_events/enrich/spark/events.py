"""The EnrichmentEvent: one for each enriched batch, by way of the listener in the driver."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from spark_events.enrich.engine.statistics import merged, summary
from spark_events.enrich.spark.batches import MicroBatch, is_connect
from spark_events.enrich.spark.report import Report

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_events.errors import EnrichmentError

__all__ = ["enrichment_event", "post"]

_LOG = logging.getLogger(__name__)
_SCOPE = "spark_events.enrich"
_TYPES_TOLD = 20


def enrichment_event(
    name: str, batch: MicroBatch, reports: Sequence[Report], seconds: float, error: EnrichmentError | None
) -> dict[str, Any]:
    """What is told of a batch that has settled, well or not.

    Args:
        name: of the function.
        batch: which one.
        reports: of its partitions.
        seconds: from the first call to the last, as the driver saw it.
        error: with which the batch fails.
    """
    numbers = summary(merged([dict(report.statistics) for report in reports]))
    rows = sum(report.rows for report in reports)
    failed = sum(report.failed for report in reports)
    types = sum((Counter(report.types) for report in reports), Counter[str]())
    attributes: dict[str, Any] = {
        **{f"enrich.{key}": value for key, value in numbers.items()},
        "enrich.rows": rows,
        "enrich.failures": failed,
        "enrich.function": name,
        "enrich.partitions": len(reports),
        "enrich.duration_ms": round(seconds * 1000),
        "enrich.outcome": "settled" if error is None else "failed",
        **{f"enrich.failures.{kind}": count for kind, count in types.most_common(_TYPES_TOLD)},
    }
    if query := batch.spark_query or batch.query:
        attributes["spark.streaming.query.id"] = query
    if batch.run:
        attributes["spark.streaming.query.run_id"] = batch.run
    if batch.batch is not None:
        attributes["spark.streaming.batch.id"] = batch.batch
    what = f"{name} on {batch}: {rows:,} rows, {numbers['calls']:,} calls, {failed:,} failed"
    return {
        "id": uuid.uuid4().hex,
        "name": "EnrichmentEvent",
        "class_scope": _SCOPE,
        "body": f"Enriched with {what}" if error is None else f"Enrichment failed with {what}",
        "severity": "INFO" if error is None else "ERROR",
        "time": time.time_ns() // 1_000_000,
        "attributes": attributes,
    }


def post(df: DataFrame, event: dict[str, Any]) -> bool:
    """Puts an event on Spark's listener bus, behind what Spark has put there before.

    Returns:
        Whether it was put there: with Connect, and without the listener's jar, there is no way.
    """
    if is_connect(df):
        return False
    try:
        jvm: Any = df.sparkSession.sparkContext._jvm
        door = jvm.io.sparkevents.Events
        if type(door).__name__ != "JavaClass":
            return False
        door.add(json.dumps(event))
    except Exception as error:
        # The batch is settled; that nobody hears of it is no reason to fail it.
        _LOG.warning("the EnrichmentEvent was not posted: %s", error)
        return False
    return True
