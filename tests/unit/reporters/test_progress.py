"""How far a batch has come: a failure in its middle repeats nothing, and what was refused is counted."""

from __future__ import annotations

import pytest
from fakes import event

from spark_events import PermanentError
from spark_events.reporters.progress import Progress


def test_a_batch_goes_on_where_it_stopped() -> None:
    """The same events again are the same batch; other events are a new one."""
    events = [event(n) for n in range(5)]
    progress = Progress()
    progress.begin(events)
    progress.take(2)
    progress.begin(list(events))
    assert (progress.answered, progress.is_done) == (2, False)
    progress.begin(events[1:])
    assert progress.answered == 0


def test_what_was_refused_is_told_at_the_end() -> None:
    """How many of how many, and why the last one was; then the next batch begins with nothing."""
    events = [event(n) for n in range(5)]
    progress = Progress()
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
