"""Messages to the driver, as lines of JSON: acknowledgements of records, statistics, questions and log lines."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from spark_events.dispatch.entries import Entry
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
        most: maximum number of records to remember; the driver cannot resend older records.
    """

    def __init__(self, messages: MessageWriter, next_sequence: int, most: int) -> None:
        self._messages = messages
        self._lock = threading.Lock()
        # The records of each dispatch that made events: their numbers, and the numbers of their last events.
        self._under_way: deque[tuple[list[int], list[int]]] = deque()
        self._count = 0
        self._next_sequence = self._last_sequence = next_sequence
        self._most = most
        self._sent_sequence = next_sequence
        self._acknowledged = self._answered = 0

    def translated(self, seq: int, next_sequence: int, entries: Sequence[Entry] = ()) -> None:
        """Note that records have been translated. Call this method from one thread only.

        Args:
            seq: the last of these records.
            next_sequence: the number of the next event.
            entries: the events of these records.
        """
        if next_sequence == self._last_sequence:
            # The records produced no event, so the preceding record's acknowledgement includes them.
            return
        self._last_sequence = next_sequence
        last = {entry.seq: entry.event.sequence for entry in entries}
        if not entries or entries[-1].event.sequence != next_sequence - 1:
            last[seq] = next_sequence - 1
        seqs, sequences = [*last], [*last.values()]
        with self._lock:
            self._under_way.append((seqs, sequences))
            self._count += len(seqs)
            # Limit the memory used, because a reporter may be unavailable for days.
            while self._count > self._most:
                self._settle(min(self._count - self._most, len(self._under_way[0][0])))
                if self._next_sequence - self._sent_sequence >= _STEP:
                    # No record can be acknowledged, but a new sidecar must not use these event numbers again.
                    self._acknowledge(self._acknowledged)

    def _settle(self, count: int) -> None:
        """Remove the oldest records of the oldest dispatch."""
        seqs, sequences = self._under_way[0]
        self._next_sequence = sequences[count - 1] + 1
        self._count -= count
        if count == len(seqs):
            self._under_way.popleft()
        else:
            del seqs[:count], sequences[:count]

    def complete(self, progress: Callable[[], tuple[int, int]]) -> None:
        """Acknowledge records whose events are settled or on disk; thread-safe.

        Args:
            progress: returns the seq of the last record up to which all events are settled or on disk, and of the last
                record up to which a waiting driver has received all answers.
        """
        with self._lock:
            seq, answered = progress()
            while self._under_way and (count := bisect_right(self._under_way[0][0], seq)):
                self._settle(count)
            if seq > self._acknowledged:
                self._acknowledge(seq)
            if answered > max(self._answered, seq):
                self._answered = answered
                self._messages.send("answered", seq=answered)

    def _acknowledge(self, seq: int) -> None:
        self._acknowledged, self._sent_sequence = seq, self._next_sequence
        # For speed, format the line without the JSON encoder: one such line follows every batch.
        self._messages.write(b'{"kind":"ack","seq":%d,"sequence":%d}\n' % (seq, self._next_sequence))
