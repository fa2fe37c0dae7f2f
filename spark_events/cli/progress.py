"""Notes and, on a terminal, a progress bar on standard error."""

from __future__ import annotations

import time
from typing import TextIO

_INTERVAL_SECONDS = 0.1
_WIDTH = 24
_CLEAR = "\r\033[K"


class ProgressLine:
    """A progress bar with notes above it.

    Args:
        stream: standard error.
        total: bytes to read in total.
        most_notes: number of notes to print; later notes are only counted.
    """

    def __init__(self, stream: TextIO, total: int, most_notes: int) -> None:
        self._stream = stream
        self._total = max(1, total)
        self._left = most_notes
        self._unshown = 0
        self._moves = stream.isatty()
        self._next = 0.0
        self._shown = False

    @property
    def is_due(self) -> bool:
        """Whether the bar is shown and its update interval has passed."""
        return self._moves and time.monotonic() >= self._next

    def show(self, done: int, events: int) -> None:
        """Redraw the bar.

        Args:
            done: bytes read.
            events: events made from these bytes.
        """
        self._next = time.monotonic() + _INTERVAL_SECONDS
        share = min(1.0, done / self._total)
        bar = ("#" * round(share * _WIDTH)).ljust(_WIDTH, ".")
        read = f"{done / 1e6:,.1f} of {self._total / 1e6:,.1f} MB"
        self._stream.write(f"{_CLEAR}{bar} {share:4.0%}  {read}, {events:,} events")
        self._stream.flush()
        self._shown = True

    def note(self, text: str) -> None:
        """Print a note, or only count the note once ``most_notes`` are printed."""
        if self._left > 0:
            self._left -= 1
            self.say(text)
        else:
            self._unshown += 1

    def say(self, text: str) -> None:
        """Print a note, regardless of the limit."""
        self.clear()
        self._stream.write(f"spark-events: {text}\n")
        self._stream.flush()

    def clear(self) -> None:
        """Erase the bar."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._shown = False

    def close(self) -> None:
        """Erase the bar and print how many notes were not shown."""
        self.clear()
        if self._unshown:
            self.say(f"{self._unshown:,} further notes not shown")
            self._unshown = 0
