"""Tests of the setup that runs once per worker process."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from enrich_engine import end, new_process

from spark_events.enrichment.engine import process


class Knot:
    """Object in a reference cycle. Only the garbage collector can free it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def _before_the_first_task() -> Iterator[None]:
    """Reset the process's state to the state before the first task."""
    with new_process():
        gc.unfreeze()
        yield


@pytest.mark.usefixtures("_before_the_first_task")
def test_objects_before_the_first_row_are_frozen_except_garbage() -> None:
    garbage = weakref.ref(Knot())
    process.current_process()
    assert garbage() is None
    assert not any(one is process.Process for one in gc.get_objects())


@pytest.mark.usefixtures("_before_the_first_task")
def test_later_garbage_is_collected_even_after_a_blocked_loop() -> None:
    """Even after a blocked loop, later tasks' garbage is collected, because a task may fail in every batch."""
    first = process.current_process()
    knot = Knot()
    later = weakref.ref(knot)
    process.give_up(first)
    second = process.current_process()
    assert second is not first
    del knot
    gc.collect()
    assert later() is None
    end(first)


@pytest.mark.usefixtures("_before_the_first_task")
def test_a_close_that_fails_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """If the resources cannot be closed, the task does not fail, and the log names the resources."""
    mine = process.current_process()

    async def fails() -> None:
        raise OSError

    monkeypatch.setattr(mine.resources, "close_unused", fails)
    process.close_unused()
    (message,) = caplog.messages
    assert message.startswith("closing did not end within 5 s (OSError): resource ")
    assert "the process no longer waits for it" in message
