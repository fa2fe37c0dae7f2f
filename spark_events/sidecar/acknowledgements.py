"""Messages to the driver, as lines of JSON: acknowledgements of records, statistics, questions and log lines."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from spark_events.event.text import plain


class MessageWriter:
    """Send lines to the driver; thread-safe.

    Args:
        write: writes one line, which ends with a line break; thread-safe.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.write = write

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; lone surrogates in strings, for example in file names, are replaced."""
        plain_fields = {name: plain(value) if isinstance(value, str) else value for name, value in fields.items()}
        self.write(msgspec.json.encode({"kind": kind, **plain_fields}) + b"\n")


#: The driver receives the next event number at least once per this number of unacknowledged events.
_STEP = 256


class Acknowledgements:
    """Acknowledge records whose events are all settled (delivered or dropped) or on disk.

    Each acknowledgement contains the number of the first event after its record. If this sidecar crashes, the driver
    sends the unacknowledged records to a new sidecar, which assigns the same numbers to the events.

    Args:
        messages: sends the acknowledgements.
        next_sequence: the number of the first event.
        most: maximum number of records with events that the driver keeps; it cannot resend older records.
    """

    def __init__(self, messages: MessageWriter, next_sequence: int, most: int) -> None:
        self._messages = messages
        self._lock = threading.Lock()
        # Pairs of a record's seq and the number of the next event.
        self._under_way: deque[tuple[int, int]] = deque()
        self._next_sequence = self._last_sequence = next_sequence
        self._most = most
        self._sent_sequence = next_sequence
        self._acknowledged = self._answered = 0

    def translated(self, seq: int, next_sequence: int) -> None:
        """Record that a record has been translated, and the number of the next event.

        Call this method from one thread only.
        """
        if next_sequence == self._last_sequence:
            # The record produced no event, so the preceding record's acknowledgement includes it.
            return
        self._last_sequence = next_sequence
        # Append without the lock, which would cost more than the append. A deque supports appends while another thread
        # reads its other end.
        self._under_way.append((seq, next_sequence))
        if len(self._under_way) > self._most:
            # Limit the memory used, because a reporter may be unavailable for days.
            with self._lock:
                if len(self._under_way) > self._most:
                    self._remove_oldest()

    def _remove_oldest(self) -> None:
        self._next_sequence = self._under_way.popleft()[1]
        if self._next_sequence - self._sent_sequence >= _STEP:
            # No record can be acknowledged, but a new sidecar must not use these event numbers again.
            self._acknowledge(self._acknowledged)

    def complete(self, progress: Callable[[], tuple[int, int]]) -> None:
        """Acknowledge records whose events are settled or on disk; thread-safe.

        Args:
            progress: returns the seq of the last record up to which all events are settled or on disk, and of the last
                record up to which a waiting driver has received all answers.
        """
        with self._lock:
            seq, answered = progress()
            while self._under_way and self._under_way[0][0] <= seq:
                self._next_sequence = self._under_way.popleft()[1]
            if seq > self._acknowledged:
                self._acknowledge(seq)
            if answered > max(self._answered, seq):
                self._answered = answered
                self._messages.send("answered", seq=answered)

    def _acknowledge(self, seq: int) -> None:
        self._acknowledged, self._sent_sequence = seq, self._next_sequence
        # For speed, format the line without the JSON encoder: one such line follows every batch.
        self._messages.write(b'{"kind":"ack","seq":%d,"sequence":%d}\n' % (seq, self._next_sequence))
