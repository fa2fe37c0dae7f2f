"""The end comes when it has to, whatever a reporter does, and the others have got everything by then."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fakes import event, eventually, read_events
from lateness import Witness
from misbehaving import KINDS, RELEASE, beside, release

from spark_events.dispatch.dispatcher import AsyncQueuedDispatcher
from spark_events.dispatch.entries import Entry

#: What the end may take beyond its deadline.
_LATENESS = 0.1
_PATIENCE = 0.5
#: What of its patience the machine must have left to the others; they need little of it.
_LEAST = 0.2
_EVENTS = 600


@pytest.fixture(autouse=True)
def _released(witness: Witness) -> Iterator[None]:
    RELEASE.clear()
    # The witness, and databases and brokers that other tests of this run have started.
    others = set(psutil.Process().children())
    yield
    release()
    # A process ends with the attempt that it was in: its timeout is short here.
    eventually(lambda: set(psutil.Process().children()) <= others, what="every reporter's process to be gone")


def fill(dispatcher: AsyncQueuedDispatcher, first: int, last: int) -> None:
    dispatcher.dispatch([Entry(number + 1, event(number)) for number in range(first, last)], last)


def stop(dispatcher: AsyncQueuedDispatcher, patience: float, witness: Witness) -> float:
    """Within its time; returns for how much of it the machine let processes run."""
    witness.watch(os.getpid(), threading.get_native_id())
    began = time.monotonic()
    dispatcher.stop(began + patience)
    assert witness.late(began + patience) <= _LATENESS
    return witness.took(began, began + patience)


def check(path: Path, dispatcher: AsyncQueuedDispatcher, ran: float) -> None:
    books = dispatcher.counters()
    written = [int(one["body"]) for one in read_events(path)]
    # Who was not let run before the deadline cannot have everything.
    if ran >= _LEAST:
        assert written == list(range(_EVENTS))
        assert (books["good"].delivered, books["good"].lost) == (_EVENTS, 0)
    assert written == list(range(len(written)))
    assert len(written) >= books["good"].delivered
    assert all(one.balances and one.held == 0 and one.accepted == _EVENTS for one in books.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_ends_at_its_deadline_whatever_a_reporter_does(kind: str, tmp_path: Path, witness: Witness) -> None:
    """The bad one is at its worst when the end comes, and has its mailbox full; nobody else loses anything."""
    path = tmp_path / "events.jsonl"
    dispatcher = beside([kind], path, timeout="1s").dispatcher
    dispatcher.start()
    fill(dispatcher, 0, 10)
    eventually(lambda: at_work(dispatcher), what=f"what {kind!r} is about to be under way")
    for first in range(10, _EVENTS, 118):
        fill(dispatcher, first, first + 118)
    check(path, dispatcher, stop(dispatcher, _PATIENCE, witness))


def at_work(dispatcher: AsyncQueuedDispatcher) -> bool:
    """It has failed, it has taken something, or it holds on to something in an attempt."""
    books = dispatcher.counters()["bad0"]
    return bool(books.failures or books.delivered or books.oldest_age > 0.3)


def test_a_stop_ends_at_its_deadline_with_all_of_them_at_once(tmp_path: Path, witness: Witness) -> None:
    """Side by side: their times do not add up."""
    path = tmp_path / "events.jsonl"
    dispatcher = beside([kind for kind in KINDS if kind != "spins in a thread"], path, timeout="1s").dispatcher
    dispatcher.start()
    for first in range(0, _EVENTS, 100):
        fill(dispatcher, first, first + 100)
    check(path, dispatcher, stop(dispatcher, 2, witness))


def test_without_any_time_left_a_stop_returns_at_once(tmp_path: Path, witness: Witness) -> None:
    """What cannot be delivered any more is counted."""
    dispatcher = beside(["blocks (def)", "holds the lock in a process"], tmp_path / "f", timeout="1s").dispatcher
    dispatcher.start()
    fill(dispatcher, 0, 5)
    stop(dispatcher, 0, witness)
    assert all(one.balances and one.held == 0 for one in dispatcher.counters().values())
