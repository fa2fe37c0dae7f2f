"""Tests of the progress within a batch: how the batch resumes after a failure, and the number of rejected events."""

from __future__ import annotations

import pytest
from fakes import event

from spark_events import PermanentError
from spark_events.reporters.progress import BatchProgress


def test_a_batch_resumes_after_a_failure() -> None:
    """If the same events are reported again, the batch resumes after the completed events."""
    events = [event(n) for n in range(4)]
    batch = BatchProgress().of(events)
    batch.too_large("HTTP 413")
    batch.done()
    assert batch.of(list(events)).left == [events[2:]]
    assert batch.of(events[1:]).left == [events[1:]]


def test_rejected_events_are_reported_at_the_end_of_the_batch() -> None:
    """The error after a batch contains the rejected and total numbers and the last reason.

    The next batch starts at zero.
    """
    events = [event(n) for n in range(5)]
    batch = BatchProgress(events)
    while batch.left:
        if any(one in (events[1], events[4]) for one in batch.left[-1]):
            batch.refused("HTTP 400")
        else:
            batch.done()
    with pytest.raises(PermanentError, match="2 of 5 events: HTTP 400") as caught:
        batch.end()
    assert caught.value.rejected == 2
    assert batch.of(events).left == [events]
