"""Tests that a shutdown with faulty reporters finishes in time and delivers every event of the other reporters."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fakes import balances, event, eventually, read_events
from lateness import Witness
from misbehaving import KINDS, RELEASE, pipeline_with, release

from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.entries import Entry

#: Maximum delay of a stop beyond its deadline, in seconds.
_LATENESS = 0.1
_PATIENCE = 0.5
#: Seconds without stalls that the other reporters need before the deadline to deliver all events.
_LEAST = 0.2
_EVENTS = 600


@pytest.fixture(autouse=True)
def _released(witness: Witness) -> Iterator[None]:
    RELEASE.clear()
    # The witness process and servers that other tests in this run started may continue to run.
    others = set(psutil.Process().children())
    yield
    release()
    # A process exits after its current attempt, which has a short timeout in this test.
    eventually(lambda: set(psutil.Process().children()) <= others, what="every reporter's process to be gone")


def fill(dispatcher: Dispatcher, first: int, last: int) -> None:
    dispatcher.dispatch([Entry(number + 1, event(number)) for number in range(first, last)], last)


def stop(dispatcher: Dispatcher, patience: float, witness: Witness) -> float:
    """Stop the dispatcher in time, and return the seconds before the deadline, excluding stalls of the machine."""
    witness.watch(os.getpid(), threading.get_native_id())
    began = time.monotonic()
    dispatcher.stop(began + patience)
    assert witness.late(began + patience) <= _LATENESS
    return witness.took(began, began + patience)


def check(path: Path, dispatcher: Dispatcher, ran: float) -> None:
    counters = dispatcher.counters()
    written = [int(one["body"]) for one in read_events(path)]
    # If stalls leave too little time before the deadline, a reporter cannot deliver every event.
    if ran >= _LEAST:
        assert written == list(range(_EVENTS))
        assert (counters["good"].delivered, counters["good"].lost) == (_EVENTS, 0)
    assert written == list(range(len(written)))
    assert len(written) >= counters["good"].delivered
    assert all(balances(one) and one.held == 0 and one.accepted == _EVENTS for one in counters.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_stop_ends_at_its_deadline_with_any_faulty_reporter(kind: str, tmp_path: Path, witness: Witness) -> None:
    """Even if a faulty reporter is active and its mailbox is full, a stop returns by its deadline."""
    path = tmp_path / "events.jsonl"
    dispatcher = pipeline_with([kind], path, timeout="1s").dispatcher
    dispatcher.start()
    fill(dispatcher, 0, 10)
    eventually(lambda: at_work(dispatcher), what=f"what {kind!r} is about to be under way")
    for first in range(10, _EVENTS, 118):
        fill(dispatcher, first, first + 118)
    check(path, dispatcher, stop(dispatcher, _PATIENCE, witness))


def at_work(dispatcher: Dispatcher) -> bool:
    """Return whether the faulty reporter has failed, delivered or blocked."""
    counters = dispatcher.counters()["bad0"]
    return bool(counters.failures or counters.delivered or counters.oldest_age > 0.3)


def test_a_stop_ends_at_its_deadline_with_all_faulty_reporters(tmp_path: Path, witness: Witness) -> None:
    """Even if all faulty reporters are active, a stop returns by its deadline, so their delays do not add up."""
    path = tmp_path / "events.jsonl"
    dispatcher = pipeline_with([kind for kind in KINDS if kind != "spins in a thread"], path, timeout="1s").dispatcher
    dispatcher.start()
    for first in range(0, _EVENTS, 100):
        fill(dispatcher, first, first + 100)
    check(path, dispatcher, stop(dispatcher, 2, witness))


def test_a_stop_without_time_returns_at_once(tmp_path: Path, witness: Witness) -> None:
    dispatcher = pipeline_with(["blocks (def)", "holds the lock in a process"], tmp_path / "f", timeout="1s").dispatcher
    dispatcher.start()
    fill(dispatcher, 0, 5)
    stop(dispatcher, 0, witness)
    assert all(balances(one) and one.held == 0 for one in dispatcher.counters().values())
