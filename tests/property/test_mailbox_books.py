"""The conservation law of a mailbox: accepted = delivered + dropped + waiting + in flight, at every moment."""

from __future__ import annotations

from fakes import event, numbers
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_events import Severity
from spark_events.dispatch.mailbox import Mailbox
from spark_events.dispatch.store import Entry


class MailboxBooks(RuleBasedStateMachine):
    """Puts, takes and settles in any order, beside a list that does the same in the obvious way."""

    @initialize(capacity=st.integers(1, 6))
    def begin(self, capacity: int) -> None:
        self.box = Mailbox(capacity)
        self.capacity = capacity
        self.number = 0
        self.record = 0
        self.delivered = 0
        self.shed = 0
        self.waiting: list[tuple[int, Severity, int]] = []
        self.in_flight: list[tuple[int, Severity, int]] = []

    @rule(events=st.lists(st.tuples(st.sampled_from(list(Severity)), st.integers(-3, 2)), max_size=4))
    def put(self, events: list[tuple[Severity, int]]) -> None:
        """Records go up, but for some that were held back."""
        entries = []
        for severity, step in events:
            self.number += 1
            record = max(1, self.record + step)
            self.record = max(self.record, record)
            entries.append(Entry(record, event(self.number, severity)))
            self.waiting.append((self.number, severity, record))
            if len(self.waiting) + len(self.in_flight) > self.capacity:
                # The oldest of the least severe; min() finds the first.
                self.waiting.remove(min(self.waiting, key=lambda item: item[1].number))
                self.shed += 1
        self.box.put(entries)

    @precondition(lambda self: not self.in_flight)
    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        self.in_flight, self.waiting = self.waiting[:most], self.waiting[most:]
        assert numbers(self.box.take(most)) == [number for number, *_ in self.in_flight]

    @precondition(lambda self: self.in_flight)
    @rule()
    def settle(self) -> None:
        self.box.settle()
        self.delivered += len(self.in_flight)
        self.in_flight = []

    @precondition(lambda self: self.in_flight)
    @rule()
    def put_back(self) -> None:
        self.box.put_back()
        self.waiting, self.in_flight = self.in_flight + self.waiting, []

    @rule()
    def clear(self) -> None:
        left = len(self.waiting) + len(self.in_flight)
        assert self.box.clear("shutdown") == left
        self.shed += left
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
        assert self.box.oldest_record() == min((record for _, _, record in left), default=None)
        assert self.box.wait_until_empty(0) is not bool(left)


TestMailboxBooks = MailboxBooks.TestCase
TestMailboxBooks.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
