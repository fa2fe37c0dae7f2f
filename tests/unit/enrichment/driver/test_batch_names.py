"""Tests of the detection of two enrichments of one batch with equal names."""

from __future__ import annotations

import pytest

from spark_events.enrichment.driver.batch_names import BatchNames
from spark_events.enrichment.driver.micro_batch import MicroBatch

FIRST = MicroBatch("q", 1, run="r")


@pytest.mark.parametrize(
    ("batch", "name", "definition", "is_taken"),
    [
        (FIRST, "charge", "1", False),
        (FIRST, "charge", "2", True),
        (FIRST, "send", "2", False),
        (MicroBatch("q", 2, run="r"), "charge", "2", False),
        # After a restart, a batch may run again with changed code.
        (MicroBatch("q", 1, run="s"), "charge", "2", False),
        (MicroBatch("p", 1, run="r"), "charge", "2", False),
    ],
)
def test_names_of_one_batch(batch: MicroBatch, name: str, definition: str, is_taken: bool) -> None:
    names = BatchNames()
    assert not names.is_taken(FIRST, "charge", "1")
    assert names.is_taken(batch, name, definition) is is_taken


def test_a_batch_job_may_repeat_a_name() -> None:
    """A batch job has no identity, so that a second run of a batch looks like a second enrichment."""
    names, job = BatchNames(), MicroBatch("nightly", 1, streams=False)
    assert not names.is_taken(job, "charge", "1")
    assert not names.is_taken(job, "charge", "2")
