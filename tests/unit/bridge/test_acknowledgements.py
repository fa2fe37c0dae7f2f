"""What the driver may forget, and what it need not wait for."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from spark_events.bridge.acknowledgements import Acknowledgements
from spark_events.bridge.answers import Answers
from spark_events.bridge.pipe import line_writer


class Told:
    """A pipe, and what was said on it."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        os.set_blocking(self._read, False)

    def answers(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in os.read(self._read, 65_536).splitlines()]
        except BlockingIOError:
            return []

    def close(self) -> None:
        os.close(self._read)
        os.close(self.write)


@pytest.fixture
def told() -> Iterator[Told]:
    pipe = Told()
    yield pipe
    pipe.close()


def test_an_acknowledgement_carries_the_number_after_its_record(told: Told) -> None:
    """A successor counts on from the last record that is done with, not from the last that was read."""
    acknowledgements = Acknowledgements(Answers(line_writer(told.write)), 1, 100)
    for record, following in ((1, 3), (2, 3), (3, 7)):
        acknowledgements.translated(record, following)
    acknowledgements.complete(lambda: (2, 0))
    assert told.answers() == [{"kind": "ack", "through": 2, "sequence": 3}]
    acknowledgements.complete(lambda: (3, 0))
    assert told.answers() == [{"kind": "ack", "through": 3, "sequence": 7}]


def test_what_is_held_back_is_answered_but_not_acknowledged(told: Told) -> None:
    """A driver that waits goes on; one that must send again still has what was held."""
    acknowledgements = Acknowledgements(Answers(line_writer(told.write)), 1, 100)
    for record in range(1, 6):
        acknowledgements.translated(record, record + 1)
    acknowledgements.hold(3)
    acknowledgements.complete(lambda: (5, 5))
    assert told.answers() == [
        {"kind": "ack", "through": 2, "sequence": 3},
        {"kind": "answered", "through": 5},
    ]
    acknowledgements.complete(lambda: (5, 5))
    assert told.answers() == []
    acknowledgements.hold(None)
    acknowledgements.complete(lambda: (5, 5))
    assert told.answers() == [{"kind": "ack", "through": 5, "sequence": 6}]


def test_what_is_let_go_just_now_is_not_acknowledged_before_it_is_delivered(told: Told) -> None:
    """A reporter's thread has asked how far all are when what was held back was nowhere yet, and then had to wait."""
    acknowledgements = Acknowledgements(Answers(line_writer(told.write)), 1, 100)
    for record in range(1, 6):
        acknowledgements.translated(record, record + 1)
    acknowledgements.hold(3)
    letting_go = threading.Thread(target=acknowledgements.hold, args=[None])

    def before_it_was_dispatched() -> tuple[int, int]:
        letting_go.start()
        letting_go.join(0.1)
        return 5, 0

    acknowledgements.complete(before_it_was_dispatched)
    letting_go.join(20)
    assert told.answers() == [{"kind": "ack", "through": 2, "sequence": 3}]


def test_what_the_driver_cannot_send_again_is_not_remembered(told: Told) -> None:
    """A reporter that is away for days, and what it holds: a successor counts on from where the driver can go back."""
    acknowledgements = Acknowledgements(Answers(line_writer(told.write)), 1, 3)
    for record in range(1, 101):
        acknowledgements.translated(record, record + 1)
    assert len(acknowledgements._under_way) == 3
    acknowledgements.complete(lambda: (1, 0))
    assert told.answers() == [{"kind": "ack", "through": 1, "sequence": 98}]
    acknowledgements.complete(lambda: (99, 0))
    assert told.answers() == [{"kind": "ack", "through": 99, "sequence": 100}]


def test_records_without_events_are_not_remembered(told: Told) -> None:
    """Most are such; what holds for the last one with an event holds for them."""
    acknowledgements = Acknowledgements(Answers(line_writer(told.write)), 1, 10)
    acknowledgements.translated(1, 2)
    for record in range(2, 1_000):
        acknowledgements.translated(record, 2)
    assert len(acknowledgements._under_way) == 1
    acknowledgements.translated(1_000, 3)
    acknowledgements.complete(lambda: (999, 0))
    assert told.answers() == [{"kind": "ack", "through": 999, "sequence": 2}]


def test_a_driver_is_told_the_numbers_that_are_given_while_one_reporter_is_away(told: Told) -> None:
    """A successor must not give them again, though nothing is done with meanwhile."""
    acknowledgements = Acknowledgements(Answers(line_writer(told.write)), 1, 3)
    for record in range(1, 601):
        acknowledgements.translated(record, record + 1)
        # Others deliver, and time passes.
        acknowledgements.complete(lambda: (0, 0))
    assert told.answers() == [{"kind": "ack", "through": 0, "sequence": number} for number in (257, 513)]
