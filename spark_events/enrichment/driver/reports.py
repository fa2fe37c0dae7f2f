"""Evaluate the partitions' reports: build the error that fails a batch, and the event about the batch."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from spark_events.enrichment.driver.micro_batch import MicroBatch, is_connect
from spark_events.enrichment.engine.statistics import merged, summary
from spark_events.enrichment.hints import different, hints
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.settings import Budget
from spark_events.enrichment.worker.report import PartitionReport, Sample, described, position_of
from spark_events.errors import EnrichmentError, RowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOG = logging.getLogger(__name__)
#: Scope of the events of enrichment.
SCOPE = "spark_events.enrich"
_TYPES_NAMED = 5
_SAMPLES_NAMED = 3
_TYPES_IN_EVENT = 20


def warn_of_failures(plan: Plan, batch: MicroBatch, reports: Sequence[PartitionReport]) -> None:
    """Log the likely causes of failures that do not fail the batch, once per batch."""
    failed = sum(report.failed for report in reports)
    for text in different(plan, (sample.failure for report in reports for sample in report.samples)):
        _LOG.warning("%s: %s rows have no answer. Hint: %s", batch, f"{failed:,}", text)


def judged(plan: Plan, batch: MicroBatch, reports: Sequence[PartitionReport]) -> EnrichmentError | None:
    """Return the error that fails the batch, or None if the batch succeeds."""
    failed = sum(report.failed for report in reports)
    rows = sum(report.rows for report in reports)
    if not failed:
        return None
    if plan.on_failure == "fail":
        rule = ""
    elif plan.max_failure_ratio is not None and failed > _as_written(plan.max_failure_ratio) * rows:
        rule = f", over OnFailure.max_ratio={plan.max_failure_ratio}"
    else:
        return None
    samples = _varied([sample for report in reports for sample in report.samples])
    types = sum((Counter(report.types) for report in reports), Counter[str]()).most_common(_TYPES_NAMED)
    counts = ", ".join(f"{name} {number:,}" for name, number in types)
    distinct: dict[tuple[str, str, str], Sample] = {}
    for one in samples:
        distinct.setdefault((one.failure.type, one.failure.message, one.failure.where), one)
    examples = "; ".join(
        f"{position_of(one.partition, one.row)}: {described(one.failure)}"
        for one in [*distinct.values()][:_SAMPLES_NAMED]
    )
    error = EnrichmentError(
        f"{failed:,} of {rows:,} rows have no answer{rule} ({counts}). Examples: {examples}. In {batch}"
        f"{hints(plan, (one.failure for one in samples))}",
        failed=failed,
        rows=rows,
        batch_id=batch.batch,
        query=batch.query,
        samples=samples,
    )
    # Python prints the cause before the traceback. In a stream, the exception of the query therefore begins with the
    # cause, and not with frames of py4j and of this package.
    error.__cause__ = RowError(described(samples[0].failure)) if samples else None
    return error


def enrichment_event(
    name: str,
    batch: MicroBatch,
    reports: Sequence[PartitionReport],
    seconds: float,
    error: EnrichmentError | None,
    budget: Budget | None = None,
) -> dict[str, Any]:
    """Return the event of a settled or failed batch.

    Args:
        name: the name of the function.
        batch: the identity of the batch.
        reports: the reports from its partitions.
        seconds: duration from the first call to the last, measured on the driver.
        error: the error that fails the batch, or None.
        budget: the budget of the calls, or None.
    """
    total = merged([dict(report.statistics) for report in reports])
    numbers = summary(total)
    rows = sum(report.rows for report in reports)
    failed = sum(report.failed for report in reports)
    types = sum((Counter(report.types) for report in reports), Counter[str]())
    attributes: dict[str, Any] = {
        **{f"spark.enrich.{key}": value for key, value in numbers.items()},
        "spark.enrich.rows": rows,
        "spark.enrich.failures": failed,
        "spark.enrich.function": name,
        "spark.enrich.partitions": len(reports),
        "spark.enrich.duration_ms": round(seconds * 1000),
        "spark.enrich.outcome": "settled" if error is None else "failed",
    }
    if budget is not None:
        attributes["spark.enrich.usage"] = total["usage"]
        if budget.price_per_1000 is not None:
            attributes["spark.enrich.cost"] = total["usage"] * budget.price_per_1000 / 1000
    if limited := Counter({cause: round(1000 * spent) for cause, spent in total["limited"].items()}):
        attributes["spark.enrich.limited_by"] = json.dumps(dict(limited.most_common()))
    if types:
        # Use one JSON string, because many backends index each attribute name.
        attributes["spark.enrich.failures_by_type"] = json.dumps(dict(types.most_common(_TYPES_IN_EVENT)))
    attributes |= identity(batch)
    what = f"{name} on {batch}: {rows:,} rows, {numbers['calls']:,} calls, {failed:,} failed"
    return {
        "id": uuid.uuid4().hex,
        "name": "EnrichmentEvent",
        "class_scope": SCOPE,
        "body": f"Enriched with {what}" if error is None else f"Enrichment failed with {what}",
        "severity": "INFO" if error is None else "WARN",
        "time": time.time_ns() // 1_000_000,
        "attributes": attributes,
    }


def identity(batch: MicroBatch) -> dict[str, Any]:
    """Return the attributes that identify the query and the batch."""
    found = {
        "spark.streaming.query.id": batch.spark_query or batch.query or None,
        "spark.streaming.query.run_id": batch.run or None,
        "spark.batch.id": batch.batch,
    }
    return {name: value for name, value in found.items() if value is not None}


def post(df: DataFrame, event: dict[str, Any]) -> bool:
    """Post an event to Spark's listener bus, behind the events that Spark has already posted.

    Returns:
        Whether the event was posted; always False with Connect and without the listener's jar.
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
        # The calls of the batch do not depend on the event, so a missing event must not fail it.
        _LOG.warning("%s dropped: posting it to Spark failed (%s); the batch continues", event["name"], error)
        return False
    return True


def _as_written(ratio: float) -> Fraction:
    """Return the exact decimal value. As a float, 0.29 of 100 rows would be slightly less than 29 rows."""
    return Fraction(str(float(ratio)))


def _varied(samples: list[Sample]) -> list[Sample]:
    """Return the samples in a new order: first one sample of each failure type, then the other samples."""
    seen: set[str] = set()
    first: list[Sample] = []
    rest: list[Sample] = []
    for sample in samples:
        (rest if sample.failure.type in seen else first).append(sample)
        seen.add(sample.failure.type)
    return first + rest
