"""In-memory history of a stream's last events, and calls that wait for a matching event."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import NamedTuple

from spark_events.dispatch.selection import Filter, SelectionConfig
from spark_events.errors import InvalidChoiceError, StreamStoppedError, WaitTimeoutError
from spark_events.event import Event, Severity
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.reporters.reporter import Reporter


@dataclasses.dataclass(frozen=True, slots=True)
class EventMatcher:
    """Event filter: names, scope, lowest severity and an optional function.

    In names and scope, ``*`` matches any characters.
    """

    names: tuple[str, ...]
    class_scope: str
    min_severity: Severity
    where: Callable[[Event], object] | None = None

    @classmethod
    def of(
        cls,
        names: tuple[object, ...],
        class_scope: object = "*",
        min_severity: object = Severity.TRACE,
        where: Callable[[Event], object] | None = None,
    ) -> EventMatcher:
        """Validate the caller's arguments and return the matcher.

        Args:
            names: event names; empty: all events.
            class_scope: scope of the events.
            min_severity: lowest severity that matches.
            where: predicate that the event must satisfy.

        Raises:
            InvalidChoiceError: when a name or the scope is not a non-empty str, the severity is unknown, or ``where``
                is not callable.
        """
        for what, value in [*(("name", name) for name in names), ("class_scope", class_scope)]:
            if not isinstance(value, str) or not value.strip():
                raise InvalidChoiceError(f"{what}: given {value!r}, expected a str, in which * matches any text")
        if where is not None and not callable(where):
            raise InvalidChoiceError(f"where: given {where!r}, expected a function of an event")
        wanted = tuple(str(name) for name in names) or ("*",)
        return cls(wanted, str(class_scope), _severity(min_severity), where)

    @property
    def selection(self) -> SelectionConfig:
        """The criteria in the form of reporter settings, without the predicate."""
        includes = (Filter(self.class_scope, self.names),)
        return SelectionConfig(includes, min_severity=self.min_severity, heartbeats=HEARTBEAT in self.names)

    def fits(self, event: Event) -> bool:
        """Return whether the event matches; an exception raised by the predicate propagates to the caller."""
        if event.severity < self.min_severity or not Filter(self.class_scope, self.names).matches(
            event.class_scope, event.name
        ):
            return False
        return self.where is None or bool(self.where(event))

    def __str__(self) -> str:
        severity = "" if self.min_severity is Severity.TRACE else f" of {self.min_severity.value} or worse"
        scope = "" if self.class_scope == "*" else f" of {self.class_scope}"
        test = "" if self.where is None else " for which `where` holds"
        names = "any event" if self.names == ("*",) else " or ".join(self.names)
        return f"{names}{scope}{severity}{test}"


def _severity(given: object) -> Severity:
    try:
        return Severity(given.upper() if isinstance(given, str) else given)
    except ValueError:
        allowed = ", ".join(severity.value for severity in Severity)
        raise InvalidChoiceError(f"min_severity: given {given!r}, expected one of {allowed}") from None


#: Number of recent events that the message of a failed wait lists.
_NAMED = 5


class _Waiter(NamedTuple):
    """Pending call of ``wait_for``, with its criteria and its result."""

    choice: EventMatcher
    after: int
    found: Future[Event]

    def offer(self, events: Iterable[Event]) -> None:
        """Set the first matching event as the result.

        If the predicate raises an error, set this error as the exception.
        """
        try:
            match = next((one for one in events if one.sequence > self.after and self.choice.fits(one)), None)
            if match is not None:
                self.found.set_result(match)
        except BaseException as error:
            self.found.set_exception(error)


class EventHistory(Reporter):
    """Reporter that keeps the last events and wakes waiting calls; thread-safe.

    Args:
        size: the maximum number of kept events. A waiting call receives every new event, even if ``size`` is small.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._kept: deque[Event] = deque(maxlen=size)
        self._is_over = False
        self._waiting: set[_Waiter] = set()

    @property
    def events(self) -> list[Event]:
        """The kept events, oldest first."""
        with self._lock:
            return list(self._kept)

    def report(self, events: Sequence[Event]) -> None:
        with self._lock:
            self._kept.extend(events)
            for waiter in self._waiting:
                if not waiter.found.done():
                    waiter.offer(events)

    def end(self) -> None:
        """Mark the stream as ended and wake the waiting calls."""
        with self._lock:
            self._is_over = True
            for waiter in self._waiting:
                self._stop(waiter)

    def wait_for(self, choice: EventMatcher, after: Event | None, timeout: float) -> Event:
        """Return the first matching event; search the kept events first, then wait for new events.

        Args:
            choice: the events to match.
            after: accept only events after this event.
            timeout: seconds to wait.

        Raises:
            WaitTimeoutError: when no matching event arrived in time.
            StreamStoppedError: when the stream ended without a matching event.
        """
        with self._found(choice, after) as found:
            if not wait([found], timeout).done:
                raise self._timeout_error(choice, timeout)
            return found.result()

    async def wait_for_async(self, choice: EventMatcher, after: Event | None, timeout: float) -> Event:
        """Wait like :meth:`wait_for`, without blocking the event loop."""
        with self._found(choice, after) as found:
            done, _ = await asyncio.wait([asyncio.wrap_future(found)], timeout=timeout)
            if not done:
                raise self._timeout_error(choice, timeout)
            return done.pop().result()

    @contextmanager
    def _found(self, choice: EventMatcher, after: Event | None) -> Iterator[Future[Event]]:
        waiter = _Waiter(choice, -1 if after is None else after.sequence, Future())
        with self._lock:
            waiter.offer(self._kept)
            if self._is_over:
                self._stop(waiter)
            self._waiting.add(waiter)
        try:
            yield waiter.found
        finally:
            with self._lock:
                self._waiting.discard(waiter)

    def _stop(self, waiter: _Waiter) -> None:
        if not waiter.found.done():
            why = f"the stream ended while waiting for {waiter.choice}; {self._arrived()}"
            waiter.found.set_exception(StreamStoppedError(why))

    def _timeout_error(self, choice: EventMatcher, timeout: float) -> WaitTimeoutError:
        return WaitTimeoutError(f"timed out after {timeout:g} s waiting for {choice}; {self._arrived()}")

    def _arrived(self) -> str:
        events = self.events
        if not events:
            return "no event arrived"
        counts = Counter(event.name for event in events)
        counted_names = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        last = "; ".join(f"{event.severity.value} {event.name}: {event.body}" for event in events[-_NAMED:])
        return f"events that arrived: {counted_names}; the last of them: {last}"
