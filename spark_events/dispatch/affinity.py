"""Where the threads of one interpreter run: on one processor, as long as nobody else wants it.

Of these threads the interpreter's lock lets one go on at a time, yet the kernel spreads them over all processors. Then
what one has made, the other fetches from a far cache, and each has to wake the other's processor.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

__all__ = ["Affinity"]

#: Less between two looks says little, and each look costs a little.
_LOOK_SECONDS = 0.9
#: What others may take from the leader, as a part of what it got itself, and of the time.
_MOST_OF_ITS_OWN, _MOST_OF_ALL = 0.25, 0.02
#: How long they then go separate ways, in seconds: at first, doubling each time, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0
#: Where a line of ``stat`` tells the processor, counted behind the name in brackets, which may be anything.
_PROCESSOR = 36


class _Times(NamedTuple):
    """Of one thread up to now, in seconds: how long it ran, and how long it could have run and had no processor."""

    ran: float
    waited: float


def _processors() -> frozenset[int]:
    """Where threads of this process may run; none where that cannot be told, or where no lock makes them take turns."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return frozenset()
    try:
        return frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return frozenset()


class Affinity:
    """Keeps companions of a thread on the processor where that one runs.

    No processor is taken for good, for the kernel may want it for somebody else: should the leader have to wait for
    anybody but its companions, or one of these for anybody but the rest, all of them may run anywhere again, and it is
    tried later, less and less often. Without Linux's means for this, or where there is one processor alone, nothing is
    done. For one thread at a time, which is none of them.

    Args:
        leader: the thread, by its native identifier.
        clock: in seconds.
        tasks: where the kernel tells of this process's threads.
    """

    def __init__(
        self,
        leader: int,
        clock: Callable[[], float] = time.monotonic,
        tasks: Path = Path("/proc/self/task"),
    ) -> None:
        self._leader = leader
        self._clock = clock
        self._tasks = tasks
        self._anywhere: frozenset[int] = frozenset()
        self._processor: int | None = None
        self._kept: set[int] = set()
        self._times: dict[int, _Times] = {}
        self._looked = self._gathered = float("-inf")
        self._apart_until = float("-inf")
        self._pause = _FIRST_PAUSE / 2

    def look(self, companions: Collection[int]) -> None:
        """Gathers, or lets go; called now and then.

        Args:
            companions: native identifiers of the threads that are to run where the leader does.
        """
        now = self._clock()
        elapsed = now - self._looked
        if elapsed < _LOOK_SECONDS:
            return
        self._looked = now
        was = self._times
        # Only those that are there: a number may be another's by now.
        wanted = (self._leader, *companions)
        self._times = {thread: times for thread in wanted if (times := self._times_of(thread)) is not None}
        threads = tuple(self._times)
        anywhere = _processors()
        is_possible = len(anywhere) > 1 and len(threads) > 1 and self._leader in self._times
        if anywhere != self._anywhere or not is_possible:
            self._scatter()
            self._anywhere = anywhere
        if not is_possible:
            return
        if self._processor is None:
            if now >= self._apart_until:
                self._gathered = now
                self._processor = self._processor_of(self._leader)
                self._keep(threads)
        elif self._is_crowded(was, elapsed):
            self._scatter()
            self._pause = _FIRST_PAUSE if now - self._gathered > self._pause else min(2 * self._pause, _LONGEST_PAUSE)
            self._apart_until = now + self._pause
        else:
            self._keep(threads)

    def _is_crowded(self, was: dict[int, _Times], elapsed: float) -> bool:
        """Whether others have kept one of them waiting, beyond the time for which the rest of them ran."""
        spent = [
            _Times(now.ran - was[thread].ran, now.waited - was[thread].waited)
            for thread, now in self._times.items()
            if thread in was
        ]
        together = sum(one.ran for one in spent)
        return any(
            one.waited - (together - one.ran) > max(_MOST_OF_ITS_OWN * one.ran, _MOST_OF_ALL * elapsed) for one in spent
        )

    def _keep(self, threads: Collection[int]) -> None:
        """Those and no others run there."""
        if self._processor not in self._anywhere:
            self._scatter()
            return
        self._let_go(self._kept.difference(threads))
        for thread in set(threads) - self._kept:
            self._bind(thread, {self._processor})
        self._kept = set(threads)

    def _scatter(self) -> None:
        self._let_go(self._kept)
        self._kept = set()
        self._processor = None

    def _let_go(self, threads: Collection[int]) -> None:
        for thread in threads:
            if (self._tasks / str(thread)).exists():
                self._bind(thread, self._anywhere)

    @staticmethod
    def _bind(thread: int, processors: Collection[int]) -> None:
        # It may have ended; its processors may have been taken away from this process; it may be forbidden.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, processors)

    def _times_of(self, thread: int) -> _Times | None:
        try:
            ran, waited, _ = (self._tasks / str(thread) / "schedstat").read_text().split()
            # What has never run is not counted.
            return _Times(int(ran) / 1e9, int(waited) / 1e9) if int(ran) else None
        except (OSError, ValueError):
            return None

    def _processor_of(self, thread: int) -> int | None:
        try:
            return int((self._tasks / str(thread) / "stat").read_text().rpartition(")")[2].split()[_PROCESSOR])
        except (OSError, ValueError, IndexError):
            return None
