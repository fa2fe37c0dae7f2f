"""Answers to the driver, as lines of JSON."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from spark_events.event.text import plain

__all__ = ["Answers"]


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
            # Formatted by hand: one such line is sent after every batch.
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
