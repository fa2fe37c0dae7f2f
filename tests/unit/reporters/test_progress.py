"""Tests of the progress within a batch: how the batch resumes after a failure, and the number of rejected events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from fakes import event

from spark_events import Event, PermanentError, TransientError
from spark_events.reporters.batch_progress import BatchProgress, RefusedError, TooLargeError


def test_a_batch_resumes_after_a_failure() -> None:
    """If the same events are reported again, the batch resumes after the completed events."""
    events = [event(n) for n in range(4)]
    batch = BatchProgress().of(events)

    async def send(part: Sequence[Event]) -> tuple[int, str]:
        if len(part) > 2:
            raise TooLargeError("HTTP 413")
        if events[2] in part:
            raise TransientError("HTTP 503")
        return 0, ""

    with pytest.raises(TransientError):
        asyncio.run(batch.deliver(send))
    assert batch.of(list(events)).left == [events[2:]]
    assert batch.of(events[1:]).left == [events[1:]]


def test_rejected_events_are_reported_at_the_end_of_the_batch() -> None:
    """The error after a batch contains the rejected and total numbers and the last reason.

    The next batch starts at zero.
    """
    events = [event(n) for n in range(5)]
    batch = BatchProgress(events)

    async def send(part: Sequence[Event]) -> tuple[int, str]:
        if events[1] in part or events[4] in part:
            raise RefusedError("HTTP 400")
        return 0, ""

    with pytest.raises(PermanentError, match="2 of 5 events: HTTP 400") as caught:
        asyncio.run(batch.deliver(send))
    assert caught.value.rejected == 2
    assert batch.of(events).left == [events]
