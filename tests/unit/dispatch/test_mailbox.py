"""Tests of the mailbox: it is bounded and ordered, and sheds the lowest priority first."""

from __future__ import annotations

import threading
import time

import pytest
from fakes import event, numbers

from spark_events import EventBuilder, Severity
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Mailbox

LEVELS = {"T": Severity.TRACE, "D": Severity.DEBUG, "I": Severity.INFO, "W": Severity.WARN, "E": Severity.ERROR}


def mailbox(capacity: int = 100) -> Mailbox:
    return Mailbox(capacity)


def entries(severities: str) -> list[Entry]:
    """Return one entry per letter, with its position as number."""
    return [Entry(i + 1, event(i, LEVELS[letter])) for i, letter in enumerate(severities)]


def test_events_are_taken_in_order() -> None:
    """The mailbox returns events first in, first out, for any batch size."""
    box = mailbox()
    box.put(entries("IEIWI"))
    seen = []
    for most in (2, 1, 5):
        seen += numbers(box.take(most))
        box.ack()
    assert seen == [0, 1, 2, 3, 4]
    assert box.take(5) == []


@pytest.mark.parametrize(
    ("put", "kept"),
    [
        ("III", [0, 1, 2]),
        ("IIII", [1, 2, 3]),
        ("IIIIII", [3, 4, 5]),
        ("EIII", [0, 2, 3]),
        ("IEEE", [1, 2, 3]),
        ("EEEI", [0, 1, 2]),
        ("WIDT", [0, 1, 2]),
        ("TDIW", [1, 2, 3]),
        ("EWIE", [0, 1, 3]),
        ("EEEE", [1, 2, 3]),
        ("IWIEE", [1, 3, 4]),
    ],
)
def test_a_full_mailbox_sheds_the_oldest_of_the_least_severe(put: str, kept: list[int]) -> None:
    """A full mailbox sheds the oldest event of the lowest severity, and rejects a new event of lower severity."""
    box = mailbox(capacity=3)
    box.put(entries(put))
    assert numbers(box.take(10)) == kept
    assert (box.counts().accepted, sum(box.counts().dropped.values())) == (len(put), len(put) - 3)


def test_mailboxes_with_the_same_events_are_independent() -> None:
    """An event that one full mailbox sheds is still delivered from all other mailboxes."""
    together = entries("DIWIE")
    small, smaller, wide = mailbox(3), mailbox(1), mailbox()
    for box in (small, smaller, wide):
        box.put(together)
    small.put(entries("E"))
    assert numbers(small.take(10)) == [2, 4, 0]
    assert numbers(smaller.take(10)) == [4]
    assert numbers(wide.take(10)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "name", ["JobStatusChangeEvent", "JobFailureEvent", "EventsDroppedEvent", "DispatcherReportEvent"]
)
@pytest.mark.parametrize("first", ["it", "others"])
def test_status_changes_and_loss_reports_are_shed_last(name: str, first: str) -> None:
    """Status changes and loss reports are shed after all other events, regardless of severity."""
    least, worst = EventBuilder("tests", name).set_severity("TRACE").build(), event(0, Severity.FATAL)
    box = mailbox(capacity=1)
    box.put([Entry(1, one) for one in ((least, worst) if first == "it" else (worst, least))])
    assert [one.name for one in box.take(10)] == [name]


def large(weight: int, *severities: str) -> list[Entry]:
    """Return entries of the given weight, numbered from 100."""
    return [Entry(n, event(n, LEVELS[letter]), weight) for n, letter in enumerate(severities, 100)]


@pytest.mark.parametrize(
    ("put", "then", "kept"),
    [
        ("IIIIII", large(4, "I"), [4, 5, 100]),
        ("EEEEEE", large(4, "I"), [0, 1, 2, 3, 4, 5]),
        ("TTWWWW", large(4, "I"), [2, 3, 4, 5]),
        ("", large(4, "I", "W", "E"), [102]),
        ("", large(3, "I", "W", "E"), [101, 102]),
        ("I", large(6, "E"), [100]),
    ],
)
def test_large_events_have_more_weight(put: str, then: list[Entry], kept: list[int]) -> None:
    """Large events have more weight. The mailbox sheds them by the same priorities, oldest first."""
    box = mailbox(capacity=6)
    box.put(entries(put))
    box.put(then)
    assert numbers(box.take(10)) == kept
    counts = box.counts()
    assert (counts.held, sum(counts.dropped.values())) == (len(kept), len(put) + len(then) - len(kept))


def test_a_batch_has_fewer_large_events() -> None:
    """A batch has a weight limit, and therefore contains fewer large events. A single event may exceed the limit."""
    box = mailbox(capacity=100)
    box.put([*entries("III"), *large(4, "I", "I"), *large(20, "I"), *entries("I")])
    seen = []
    while events := box.take(8):
        seen.append(numbers(events))
        box.ack()
    assert seen == [[0, 1, 2, 100], [101], [100], [0]]
    assert box.wait_for_room(100, 0)


def test_events_in_flight_are_not_shed() -> None:
    box = mailbox(capacity=2)
    box.put(entries("TT"))
    assert numbers(box.take(1)) == [0]
    box.put(entries("III")[2:])
    box.ack()
    assert numbers(box.take(10)) == [2]
    assert sum(box.counts().dropped.values()) == 1


def test_a_new_event_is_shed_if_all_other_events_are_in_flight() -> None:
    box = mailbox(capacity=1)
    box.put(entries("I"))
    box.take(1)
    box.put(entries("EE"))
    box.ack()
    assert box.take(10) == []
    assert (box.counts().accepted, sum(box.counts().dropped.values())) == (3, 2)


def test_the_oldest_record_is_known_until_it_is_settled() -> None:
    """A mailbox reports the oldest record whose events are queued or in flight."""
    box = mailbox()
    assert box.oldest_seq() is None
    box.put(entries("II"))
    assert box.oldest_seq() == 1
    box.take(1)
    assert box.oldest_seq() == 1
    box.ack()
    assert box.oldest_seq() == 2
    box.take(1)
    box.ack()
    assert box.oldest_seq() is None


def test_clearing_counts_the_lost_events() -> None:
    """Clearing a mailbox drops and counts all queued events and all events in flight."""
    box = mailbox()
    box.put(entries("IIIII"))
    box.take(2)
    box.clear("shutdown")
    assert (box.counts().accepted, box.counts().dropped["shutdown"], box.oldest_seq()) == (5, 5, None)


def test_waiting_ends_when_all_events_are_dropped() -> None:
    box = mailbox()
    box.put(entries("II"))
    box.take(1)
    waiting = threading.Thread(target=box.wait_until_empty, args=(60,), daemon=True)
    waiting.start()
    time.sleep(0.1)  # The other thread may not be waiting yet, which the test cannot observe; the result is the same.
    box.clear("shutdown")
    waiting.join(20)
    assert not waiting.is_alive()


def test_waiting_ends_when_all_events_are_settled() -> None:
    """A wait for an empty mailbox returns only when the events in flight are settled, too."""
    box = mailbox()
    assert box.wait_until_empty(0)
    box.put(entries("I"))
    assert not box.wait_until_empty(0)
    box.take(1)
    assert not box.wait_until_empty(0.01)
    waiting = threading.Thread(target=box.wait_until_empty, args=(20,))
    waiting.start()
    box.ack()
    waiting.join(20)
    assert not waiting.is_alive()


def test_only_the_first_event_wakes_the_worker() -> None:
    """Only the first event in an empty mailbox wakes the thread, because a thread with queued events does not sleep."""
    box = mailbox(2)
    assert not box.put([])
    assert box.put(entries("I"))
    assert not box.put(entries("I"))
    assert not box.put(entries("E"))
    box.take(2)
    assert not box.put(entries("I"))
    box.ack()
    assert box.put(entries("I"))
