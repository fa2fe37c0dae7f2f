"""Tests of acknowledgements, and of answers that let a waiting driver continue."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from fakes import event

from spark_events.dispatch.entries import Entry
from spark_events.sidecar.acknowledgements import Acknowledgements, MessageWriter
from spark_events.sidecar.pipe import line_writer


class RecordingPipe:
    """Pipe that records the session's answers."""

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
def recording() -> Iterator[RecordingPipe]:
    pipe = RecordingPipe()
    yield pipe
    pipe.close()


def test_an_acknowledgement_carries_the_number_after_its_record(recording: RecordingPipe) -> None:
    """An acknowledgement contains the event number after its record, with which the next sidecar continues."""
    acknowledgements = Acknowledgements(MessageWriter(line_writer(recording.write)), 1, 100)
    for record, following in ((1, 3), (2, 3), (3, 7)):
        acknowledgements.translated(record, following)
    acknowledgements.complete(lambda: (2, 0))
    assert recording.answers() == [{"kind": "ack", "seq": 2, "sequence": 3}]
    acknowledgements.complete(lambda: (3, 0))
    assert recording.answers() == [{"kind": "ack", "seq": 3, "sequence": 7}]


def test_records_that_the_driver_cannot_resend_are_removed(recording: RecordingPipe) -> None:
    """Records that the driver can no longer send again are removed.

    The next sidecar starts with the oldest remaining record.
    """
    acknowledgements = Acknowledgements(MessageWriter(line_writer(recording.write)), 1, 3)
    for record in range(1, 101):
        acknowledgements.translated(record, record + 1)
    assert len(acknowledgements._under_way) == 3
    acknowledgements.complete(lambda: (1, 0))
    assert recording.answers() == [{"kind": "ack", "seq": 1, "sequence": 98}]
    acknowledgements.complete(lambda: (99, 0))
    assert recording.answers() == [{"kind": "ack", "seq": 99, "sequence": 100}]


def test_the_limit_counts_records_whatever_number_of_events_they_make(recording: RecordingPipe) -> None:
    """All records that the driver can send again keep their numbers, also if each has made several events."""
    acknowledgements = Acknowledgements(MessageWriter(line_writer(recording.write)), 1, 3)
    events = [msgspec.structs.replace(event(number), sequence=number) for number in range(1, 7)]
    entries = [Entry((one.sequence + 1) // 2, one) for one in events]
    acknowledgements.translated(3, 7, entries)
    acknowledgements.complete(lambda: (1, 0))
    acknowledgements.complete(lambda: (2, 0))
    assert recording.answers() == [{"kind": "ack", "seq": seq, "sequence": 2 * seq + 1} for seq in (1, 2)]


def test_records_without_events_are_not_stored(recording: RecordingPipe) -> None:
    """Records without events are not stored. They are acknowledged together with the last record that has an event."""
    acknowledgements = Acknowledgements(MessageWriter(line_writer(recording.write)), 1, 10)
    acknowledgements.translated(1, 2)
    for record in range(2, 1_000):
        acknowledgements.translated(record, 2)
    assert len(acknowledgements._under_way) == 1
    acknowledgements.translated(1_000, 3)
    acknowledgements.complete(lambda: (999, 0))
    assert recording.answers() == [{"kind": "ack", "seq": 999, "sequence": 2}]


def test_driver_gets_the_next_number_while_a_reporter_is_unavailable(recording: RecordingPipe) -> None:
    """Even while a reporter is unavailable, the driver receives event numbers; the next sidecar must not reuse them."""
    acknowledgements = Acknowledgements(MessageWriter(line_writer(recording.write)), 1, 3)
    for record in range(1, 601):
        acknowledgements.translated(record, record + 1)
        # The progress is reported although no record is complete.
        acknowledgements.complete(lambda: (0, 0))
    assert recording.answers() == [{"kind": "ack", "seq": 0, "sequence": number} for number in (257, 513)]
