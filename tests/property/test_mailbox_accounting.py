"""Tests of a mailbox invariant: accepted = delivered + dropped + queued + in flight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fakes import event, numbers
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_events import Severity
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Mailbox


class Held(NamedTuple):
    """Event in the model."""

    number: int
    severity: Severity
    seq: int
    weight: int


def _weight(all_of: Sequence[Held]) -> int:
    return sum(held.weight for held in all_of)


class MailboxMachine(RuleBasedStateMachine):
    """State machine that enqueues, dequeues and settles events in any order. Lists are the model."""

    @initialize(capacity=st.integers(4, 8))
    def begin(self, capacity: int) -> None:
        self.box = Mailbox(capacity)
        self.capacity = capacity
        self.number = 0
        self.seq = 0
        self.delivered = 0
        self.shed = 0
        self.waiting: list[Held] = []
        self.in_flight: list[Held] = []

    @rule(
        events=st.lists(
            st.tuples(st.sampled_from(list(Severity)), st.integers(0, 2), st.sampled_from([1, 1, 1, 2, 4])), max_size=4
        )
    )
    def put(self, events: list[tuple[Severity, int, int]]) -> None:
        """Enqueue events with non-decreasing record numbers; some events are large."""
        entries = []
        for severity, step, weight in events:
            self.number += 1
            self.seq = max(1, self.seq + step)
            entries.append(Entry(self.seq, event(self.number, severity), weight))
            self.waiting.append(Held(self.number, severity, self.seq, weight))
        while _weight([*self.waiting, *self.in_flight]) > self.capacity and self.waiting:
            # Shed the oldest of the least severe events. min() returns the first minimum, which is the oldest.
            self.waiting.remove(min(self.waiting, key=lambda held: held.severity.number))
            self.shed += 1
        self.box.put(entries)

    @precondition(lambda self: not self.in_flight)
    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        """Dequeue events up to the weight ``most``, but at least one event."""
        count = max(n for n in range(len(self.waiting) + 1) if n <= 1 or _weight(self.waiting[:n]) <= most)
        self.in_flight, self.waiting = self.waiting[:count], self.waiting[count:]
        assert numbers(self.box.take(most)) == [held.number for held in self.in_flight]

    @precondition(lambda self: self.in_flight)
    @rule()
    def ack(self) -> None:
        self.box.ack()
        self.delivered += len(self.in_flight)
        self.in_flight = []

    @precondition(lambda self: self.in_flight)
    @rule()
    def requeue(self) -> None:
        self.box.requeue()
        self.waiting, self.in_flight = self.in_flight + self.waiting, []

    @rule()
    def clear(self) -> None:
        self.box.clear("shutdown")
        self.shed += len(self.waiting) + len(self.in_flight)
        self.waiting, self.in_flight = [], []

    @invariant()
    def nothing_is_unaccounted_for(self) -> None:
        counts = self.box.counts()
        assert counts.accepted == self.number
        assert sum(counts.dropped.values()) == self.shed
        assert (counts.delivered, counts.held) == (self.delivered, len(self.waiting) + len(self.in_flight))
        assert counts.accepted == counts.delivered + sum(counts.dropped.values()) + counts.held

    @invariant()
    def the_oldest_record_of_those_that_are_left_is_known(self) -> None:
        left = [*self.in_flight, *self.waiting]
        assert self.box.oldest_seq() == min((held.seq for held in left), default=None)
        assert self.box.wait_until_empty(0) is not bool(left)

    @invariant()
    def what_fits_is_known(self) -> None:
        free = self.capacity - _weight([*self.in_flight, *self.waiting])
        assert free >= 0
        assert self.box.wait_for_room(free, 0)
        assert not self.box.wait_for_room(free + 1, 0)


TestMailboxBooks = MailboxMachine.TestCase
TestMailboxBooks.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
