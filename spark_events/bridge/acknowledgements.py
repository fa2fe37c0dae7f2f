"""What the driver may forget, and where a successor of this sidecar would go on counting."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from spark_events.bridge.answers import Answers

__all__ = ["Acknowledgements"]

#: While nothing is acknowledged, the driver is told every so many events where a successor would go on counting.
_STEP = 256


class Acknowledgements:
    """Acknowledges records once all their events have come to their end.

    Each acknowledgement carries the number of the event after those of its record: the records behind it
    are sent again to a successor, whose events then get the same numbers.

    Args:
        answers: where acknowledgements go.
        next_sequence: the number of the first event of all.
        most: records with events that the driver holds at most; those before them it cannot send again.
    """

    def __init__(self, answers: Answers, next_sequence: int, most: int) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._under_way: deque[tuple[int, int]] = deque()
        self._next_sequence = self._last_sequence = next_sequence
        self._most = most
        self._told = next_sequence
        self._held: int | None = None
        self._answered = 0

    def hold(self, record: int | None) -> None:
        """From that record on, nothing may be forgotten: its event is still to come. None: all have come."""
        with self._lock:
            self._held = record

    def translated(self, record: int, next_sequence: int) -> None:
        """A record has been translated; the next event will have that number. From one thread only."""
        if next_sequence == self._last_sequence:
            # No event came of it: what holds for the record before holds for it.
            return
        self._last_sequence = next_sequence
        # Without the lock, which costs more than this: a deque takes an append while its other end is read.
        self._under_way.append((record, next_sequence))
        if len(self._under_way) > self._most:
            # One reporter may be away for days.
            with self._lock:
                if len(self._under_way) > self._most:
                    self._forget_the_oldest()

    def _forget_the_oldest(self) -> None:
        self._next_sequence = self._under_way.popleft()[1]
        if self._next_sequence - self._told >= _STEP:
            # Nothing more is done with, but a successor must not give these numbers again.
            self._told = self._next_sequence
            self._answers.renumber(self._next_sequence)

    def complete(self, progress: Callable[[], tuple[int, int]]) -> None:
        """Events have come to their end. From whatever thread.

        Args:
            progress: tells up to which record every event has; what is held back is not acknowledged, even then. And up
                to which one a driver that waits need not wait any more.
        """
        with self._lock:
            # Asked in here: what is held back may else be let go in between, and would be neither there nor held.
            through, answered = progress()
            if self._held is not None:
                through = min(through, self._held - 1)
            while self._under_way and self._under_way[0][0] <= through:
                self._next_sequence = self._under_way.popleft()[1]
            if self._answers.acknowledge(through, self._next_sequence):
                self._told = self._next_sequence
            if answered > max(self._answered, through):
                self._answered = answered
                self._answers.send("answered", through=answered)
