"""What a long command says on standard error while it works: notes, and on a terminal one line that moves."""

from __future__ import annotations

import time
from typing import TextIO

__all__ = ["Progress"]

_INTERVAL_SECONDS = 0.1
_WIDTH = 24
_CLEAR = "\r\033[K"


class Progress:
    """A bar, and notes above it.

    Args:
        stream: standard error.
        total: how many bytes there are to read.
        most_notes: further notes are counted instead of shown.
    """

    def __init__(self, stream: TextIO, total: int, most_notes: int) -> None:
        self._stream = stream
        self._total = max(1, total)
        self._left = most_notes
        self._untold = 0
        self._moves = stream.isatty()
        self._next = 0.0
        self._shown = False

    @property
    def is_due(self) -> bool:
        """Whether the bar may move again."""
        return self._moves and time.monotonic() >= self._next

    def show(self, done: int, events: int) -> None:
        """Moves the bar.

        Args:
            done: bytes read.
            events: how many events they have given.
        """
        self._next = time.monotonic() + _INTERVAL_SECONDS
        share = min(1.0, done / self._total)
        bar = ("#" * round(share * _WIDTH)).ljust(_WIDTH, ".")
        read = f"{done / 1e6:,.1f} of {self._total / 1e6:,.1f} MB"
        self._stream.write(f"{_CLEAR}{bar} {share:4.0%}  {read}, {events:,} events")
        self._stream.flush()
        self._shown = True

    def note(self, text: str) -> None:
        """Says something that stays; after many of them, they are only counted."""
        if self._left > 0:
            self._left -= 1
            self.say(text)
        else:
            self._untold += 1

    def say(self, text: str) -> None:
        """Says something that stays, however much has been said before."""
        self.clear()
        self._stream.write(f"spark-events: {text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Takes the bar away."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._shown = False

    def close(self) -> None:
        """Takes the bar away for good, and tells how many notes were not shown."""
        self.clear()
        if self._untold:
            self.say(f"... and {self._untold:,} more of these")
            self._untold = 0
