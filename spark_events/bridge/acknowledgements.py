"""Answers to the driver: which records it may forget, and everything else, as lines of JSON."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from spark_events.event.text import plain


class Answers:
    """Sends lines to the driver. Safe to use from any thread.

    Args:
        write: writes one line; the line ends with a line break.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._send = write
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode
        self._acknowledged = 0

    def acknowledge(self, through: int, sequence: int) -> bool:
        """Acknowledge the records up to ``through``; ``sequence`` is the next event's number.

        Returns:
            Whether a line was sent, because the acknowledgement is new.
        """
        with self._lock:
            if through <= self._acknowledged:
                return False
            self._acknowledged = through
            # Formatted by hand for speed, because one such line is sent after every batch.
            self._send(b'{"kind":"ack","through":%d,"sequence":%d}\n' % (through, sequence))
            return True

    def renumber(self, sequence: int) -> None:
        """Send the next event's number without acknowledging a further record."""
        with self._lock:
            self._send(b'{"kind":"ack","through":%d,"sequence":%d}\n' % (self._acknowledged, sequence))

    def send(self, kind: str, **fields: Any) -> None:
        """Send any other answer; lone surrogates in strings, as in file names, are replaced."""
        plain_fields = {name: plain(value) if isinstance(value, str) else value for name, value in fields.items()}
        with self._lock:
            self._send(self._encode({"kind": kind, **plain_fields}) + b"\n")


#: Without acknowledgements, the driver gets the next event number after this many events.
_STEP = 256


class Acknowledgements:
    """Acknowledges records once all their events are settled: delivered, dropped or on disk.

    Each acknowledgement carries the number of the event after those of its record. After a crash, the driver sends
    the unacknowledged records to a successor, whose events then get the same numbers.

    Args:
        answers: sends the acknowledgements.
        next_sequence: the number of the first event.
        most: maximum number of records with events that the driver keeps; it cannot resend older ones.
    """

    def __init__(self, answers: Answers, next_sequence: int, most: int) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._under_way: deque[tuple[int, int]] = deque()
        self._next_sequence = self._last_sequence = next_sequence
        self._most = most
        self._sent_sequence = next_sequence
        self._held: int | None = None
        self._answered = 0

    def hold(self, record: int | None) -> None:
        """Acknowledge nothing from this record on, because its event is held; None lifts the limit."""
        with self._lock:
            self._held = record

    def translated(self, record: int, next_sequence: int) -> None:
        """Note that a record has been translated, and the next event number; call from one thread only."""
        if next_sequence == self._last_sequence:
            # The record made no event, so it is acknowledged together with the record before it.
            return
        self._last_sequence = next_sequence
        # Without the lock, which costs more than the append: a deque supports appends while the other end is read.
        self._under_way.append((record, next_sequence))
        if len(self._under_way) > self._most:
            # Limit the memory: a reporter may be unavailable for days.
            with self._lock:
                if len(self._under_way) > self._most:
                    self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        self._next_sequence = self._under_way.popleft()[1]
        if self._next_sequence - self._sent_sequence >= _STEP:
            # Nothing can be acknowledged, but a successor must not reuse these numbers.
            self._sent_sequence = self._next_sequence
            self._answers.renumber(self._next_sequence)

    def complete(self, progress: Callable[[], tuple[int, int]]) -> None:
        """Acknowledge records whose events are settled. May be called from any thread.

        Args:
            progress: returns the last record up to which all events are settled, and the last record up to which a
                waiting driver has its answers. Records from the held record on are not acknowledged, even if settled.
        """
        with self._lock:
            # Called under the lock: otherwise a held record could be released in between and count as settled.
            through, answered = progress()
            if self._held is not None:
                through = min(through, self._held - 1)
            while self._under_way and self._under_way[0][0] <= through:
                self._next_sequence = self._under_way.popleft()[1]
            if self._answers.acknowledge(through, self._next_sequence):
                self._sent_sequence = self._next_sequence
            if answered > max(self._answered, through):
                self._answered = answered
                self._answers.send("answered", through=answered)
