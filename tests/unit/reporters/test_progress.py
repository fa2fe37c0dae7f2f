"""Tests of the progress within a batch: resume after a failure, and the count of rejected events."""

from __future__ import annotations

import pytest
from fakes import event

from spark_events import PermanentError
from spark_events.reporters.progress import BatchProgress


def test_a_batch_resumes_after_a_failure() -> None:
    """The same events are the same batch; other events start a new one."""
    events = [event(n) for n in range(5)]
    progress = BatchProgress()
    progress.begin(events)
    progress.take(2)
    progress.begin(list(events))
    assert (progress.answered, progress.is_done) == (2, False)
    progress.begin(events[1:])
    assert progress.answered == 0


def test_rejected_events_are_reported_at_the_end_of_the_batch() -> None:
    """The error has both counts and the last reason; the next batch starts from zero."""
    events = [event(n) for n in range(5)]
    progress = BatchProgress()
    progress.begin(events)
    progress.refuse(1, "HTTP 400")
    progress.begin(events)
    progress.take(3)
    progress.refuse(1, "HTTP 413")
    assert progress.is_done
    with pytest.raises(PermanentError, match="2 of 5 events refused: HTTP 413") as caught:
        progress.end()
    assert caught.value.rejected == 2
    progress.begin(events)
    progress.take(5)
    progress.end()
