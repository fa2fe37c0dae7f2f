"""Whether a settled batch has failed, and the sentence that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from spark_events.enrich.engine.failure import Failure
from spark_events.enrich.plan import Plan
from spark_events.enrich.spark.batches import MicroBatch
from spark_events.enrich.spark.report import Report, Sample
from spark_events.errors import EnrichmentError

__all__ = ["described", "judged", "place_of"]

_TYPES_NAMED = 5
_SAMPLES_NAMED = 3


def judged(plan: Plan, batch: MicroBatch, reports: Sequence[Report]) -> EnrichmentError | None:
    """The error with which the batch fails; None when it does not."""
    failed = sum(report.failed for report in reports)
    rows = sum(report.rows for report in reports)
    if not failed:
        return None
    if plan.on_failure == "fail":
        rule = ""
    elif plan.max_failure_ratio is not None and failed > _as_written(plan.max_failure_ratio) * rows:
        rule = f", over max_failure_ratio={plan.max_failure_ratio}"
    else:
        return None
    samples = _varied([sample for report in reports for sample in report.samples])
    types = sum((Counter(report.types) for report in reports), Counter[str]()).most_common(_TYPES_NAMED)
    counts = ", ".join(f"{name} {number:,}" for name, number in types)
    told = "; ".join(
        f"{place_of(one.partition, one.row)}: {described(one.failure)}" for one in samples[:_SAMPLES_NAMED]
    )
    return EnrichmentError(
        f"{failed:,} of {rows:,} rows have no answer{rule}, in {batch} ({counts}). For example {told}",
        failed=failed,
        rows=rows,
        batch_id=batch.batch,
        query=batch.query,
        samples=samples,
    )


def place_of(partition: int, row: int) -> str:
    """Where a row is."""
    return f"partition {partition}, row {row:,}"


def described(failure: Failure) -> str:
    """A failure in a line."""
    tried = f" after {failure.attempts} attempts in {failure.elapsed:.1f} s" if failure.attempts > 1 else ""
    where = f" ({failure.where})" if failure.where else ""
    return f"{failure.type}{tried}: {failure.message}{where}"


def _as_written(ratio: float) -> Fraction:
    """Exactly: as a float, 0.29 of 100 rows is a little less than 29 of them."""
    return Fraction(str(float(ratio)))


def _varied(samples: list[Sample]) -> list[Sample]:
    """One of each type first."""
    seen: set[str] = set()
    first: list[Sample] = []
    rest: list[Sample] = []
    for sample in samples:
        (rest if sample.failure.type in seen else first).append(sample)
        seen.add(sample.failure.type)
    return first + rest
