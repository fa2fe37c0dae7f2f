"""What a worker process does once, for all its tasks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from spark_events.enrichment.engine import process


class Knot:
    """Holds itself: only the garbage collector ends it."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if nothing had been enriched here yet."""
    monkeypatch.setattr(process, "_process", None)
    gc.unfreeze()
    yield
    process.current_process().close()


@pytest.mark.usefixtures("new_process")
def test_the_collector_is_spared_what_was_there_before_the_first_row_but_not_what_was_garbage() -> None:
    garbage = weakref.ref(Knot())
    process.current_process()
    assert garbage() is None
    assert not any(one is process.Process for one in gc.get_objects())


@pytest.mark.usefixtures("new_process")
def test_what_comes_later_is_collected_also_when_a_blocked_loop_was_given_up() -> None:
    """A task may fail in every batch: what each had in its hands must not add up."""
    first = process.current_process()
    knot = Knot()
    later = weakref.ref(knot)
    process.give_up(first)
    second = process.current_process()
    assert second is not first
    del knot
    gc.collect()
    assert later() is None
    first.close()
