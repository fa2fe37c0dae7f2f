"""The last events of a stream, and waiting for one: a reporter that those can ask who are in the same process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from spark_events.errors import StreamStoppedError, WaitTimeoutError
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter
from spark_events.session.event_matcher import EventMatcher

__all__ = ["EventHistory"]

#: So many of those that did arrive are named by a wait that was in vain.
_NAMED = 5


class _Waiter:
    """Somebody who waits: what he has not looked at yet, and how he is woken."""

    def __init__(self, events: Sequence[Event], notify: Callable[[], None]) -> None:
        self.unseen = deque(events)
        self.notify = notify

    def find(self, choice: EventMatcher, last: int) -> Event | None:
        """The first that is wanted, of those that have a higher number than ``last``."""
        while self.unseen:
            event = self.unseen.popleft()
            if event.sequence > last and choice.fits(event):
                return event
        return None


class EventHistory(Reporter):
    """Keeps events and tells those who wait of new ones. Safe to use from every thread.

    Args:
        size: how many events are kept, the newest ones. Who waits misses none, however few are kept.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._kept: deque[Event] = deque(maxlen=size)
        self._is_over = False
        self._waiting: set[_Waiter] = set()

    @property
    def events(self) -> list[Event]:
        """What has been told so far, oldest first."""
        with self._lock:
            return list(self._kept)

    def report(self, events: Sequence[Event]) -> None:
        with self._lock:
            self._kept.extend(events)
            for waiter in self._waiting:
                waiter.unseen.extend(events)
                waiter.notify()

    def end(self) -> None:
        """Nothing more will be told: whoever waits learns that."""
        with self._lock:
            self._is_over = True
            for waiter in self._waiting:
                waiter.notify()

    def wait_for(self, choice: EventMatcher, after: Event | None, timeout: float) -> Event:
        """The first event of a choice, of those that are kept or still come.

        Args:
            choice: which event.
            after: only events that were told behind this one.
            timeout: seconds.

        Raises:
            WaitTimeoutError: none came in time.
            StreamStoppedError: none came, and none will.
        """
        changed = threading.Event()
        deadline = time.monotonic() + timeout
        with self._waiter(changed.set) as waiter:
            while (found := self._look(waiter, choice, after)) is None:
                if not changed.wait(max(0.0, deadline - time.monotonic())):
                    raise self._in_vain(choice, timeout)
                changed.clear()
        return found

    async def wait_for_async(self, choice: EventMatcher, after: Event | None, timeout: float) -> Event:
        """The same, for a coroutine; its loop goes on meanwhile."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        deadline = loop.time() + timeout
        with self._waiter(lambda: _in_loop(loop, changed.set)) as waiter:
            while (found := self._look(waiter, choice, after)) is None:
                try:
                    await asyncio.wait_for(changed.wait(), max(0.0, deadline - loop.time()))
                except asyncio.TimeoutError:
                    raise self._in_vain(choice, timeout) from None
                changed.clear()
        return found

    @contextmanager
    def _waiter(self, notify: Callable[[], None]) -> Iterator[_Waiter]:
        with self._lock:
            waiter = _Waiter(self._kept, notify)
            self._waiting.add(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiting.discard(waiter)

    def _look(self, waiter: _Waiter, choice: EventMatcher, after: Event | None) -> Event | None:
        # Before it is looked: what comes behind this moment notifies.
        is_over = self._is_over
        found = waiter.find(choice, -1 if after is None else after.sequence)
        if found is None and is_over:
            raise StreamStoppedError(f"the events have ended, and {choice} has not come; {self._arrived()}")
        return found

    def _in_vain(self, choice: EventMatcher, timeout: float) -> WaitTimeoutError:
        return WaitTimeoutError(f"{choice} has not come within {timeout:g} s; {self._arrived()}")

    def _arrived(self) -> str:
        events = self.events
        if not events:
            return "no event came at all"
        counts = Counter(event.name for event in events)
        told = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        last = "; ".join(f"{event.severity.value} {event.name}: {event.body}" for event in events[-_NAMED:])
        return f"what did come: {told}; the last of it: {last}"


def _in_loop(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    # A loop that was closed has nobody in it who waits.
    if not loop.is_closed():
        loop.call_soon_threadsafe(call)
