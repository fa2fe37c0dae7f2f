"""What is said to the driver, as lines of JSON."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from spark_events.event.text import plain

__all__ = ["Answers"]


class Answers:
    """Lines to the driver. Safe to use from every thread.

    Args:
        write: takes one line after the other, each with its line break.
    """

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._send = write
        self._lock = threading.Lock()
        self._encode = msgspec.json.Encoder().encode
        self._acknowledged = 0

    def acknowledge(self, through: int, sequence: int) -> bool:
        """Every record up to ``through`` is done with; ``sequence`` is the next event's number.

        Returns:
            Whether that is news.
        """
        with self._lock:
            if through <= self._acknowledged:
                return False
            self._acknowledged = through
            # By hand, for it is what is said after every batch.
            self._send(b'{"kind":"ack","through":%d,"sequence":%d}\n' % (through, sequence))
            return True

    def renumber(self, sequence: int) -> None:
        """No further record is done with, but ``sequence`` is the next event's number."""
        with self._lock:
            self._send(b'{"kind":"ack","through":%d,"sequence":%d}\n' % (self._acknowledged, sequence))

    def send(self, kind: str, **fields: Any) -> None:
        """Any other answer. Of what quotes others, lone surrogates are replaced: a file's name may hold them."""
        told = {name: plain(value) if isinstance(value, str) else value for name, value in fields.items()}
        with self._lock:
            self._send(self._encode({"kind": kind, **told}) + b"\n")
