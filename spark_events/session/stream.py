"""The events of a running application, in the Python that drives it: ``spark_events.start`` returns one of these."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from html import escape
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar, overload

from spark_events.dispatch.delivery import Delivery
from spark_events.driver_session import DriverSession
from spark_events.errors import InvalidChoiceError, SessionError
from spark_events.event import Event, Severity
from spark_events.session.callbacks import Callback, delivery_of, name_of
from spark_events.session.event_history import EventHistory
from spark_events.session.event_matcher import EventMatcher

__all__ = ["Bridge", "EventStream", "Subscription"]

_LOG = logging.getLogger(__name__)
_F = TypeVar("_F", bound=Callback)

#: How many events wait for a callback, at most.
_CAPACITY = 2048
#: What the end of a stream may take longer than the time that its last events have.
_GRACE_SECONDS = 1.0
_SHOWN = 10


class Bridge(Protocol):
    """The way to whatever tells the events: see :mod:`spark_events.bridge`."""

    def stop(self) -> None:
        """Nothing more is listened to; what has happened up to now is still told."""

    def end(self) -> None:
        """The session is over: lets go of everything. On the thread that led it."""

    def release(self) -> None:
        """Lets go of what belongs to the calling thread."""


class Subscription(NamedTuple):
    """A callback, and what it is called with."""

    function: Callback
    choice: EventMatcher
    timeout: float


class EventStream:
    """Events as they come, for callbacks, for whoever waits, and for the reporters it was started with.

    A context manager: at its end the stream stops. Safe to use from every thread; in a process that was forked, it is
    not running.

    Args:
        session: begun, not yet running.
        bridge: where its records come from.
        journal: one of its reporters.
        patience: seconds that the last events have at the end.
        started_at: where in the program, for messages.
        replaces_callbacks: whether a callback takes the place of the one of its name, as in a cell that runs again.
        on_end: told when it is over, on its own thread.
    """

    def __init__(
        self,
        session: DriverSession,
        bridge: Bridge,
        journal: EventHistory,
        patience: float,
        started_at: str,
        replaces_callbacks: bool,
        on_end: Callable[[EventStream], None],
    ) -> None:
        self.started_at = started_at
        self._conversation = session
        self._bridge = bridge
        self._journal = journal
        self._patience = patience
        self._replaces = replaces_callbacks
        self._on_end = on_end
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._subscriptions: dict[str, tuple[Subscription, Delivery]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="spark-events", daemon=True)

    def begin(self) -> None:
        """Starts its thread; for who made it."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether events still come."""
        return os.getpid() == self._pid and self._thread.is_alive() and not self._stopping

    @property
    def next_sequence(self) -> int:
        """The number that the next event would have; a stream that takes this one's place begins there."""
        return self._conversation.next_sequence

    @property
    def history(self) -> list[Event]:
        """The last events, oldest first; as many as ``start`` was told to keep."""
        return self._journal.events

    @property
    def subscriptions(self) -> list[Subscription]:
        """The callbacks there are."""
        with self._lock:
            return [subscription for subscription, _ in self._subscriptions.values()]

    @overload
    def on(self, function: _F, /) -> _F: ...

    @overload
    def on(
        self, *names: str, class_scope: str = "*", min_severity: str | Severity = "TRACE", timeout: float = 60.0
    ) -> Callable[[_F], _F]: ...

    def on(
        self, *names: Any, class_scope: str = "*", min_severity: str | Severity = "TRACE", timeout: float = 60.0
    ) -> Any:
        """Has a function called with every event of some names, as a decorator.

        >>> @events.on("JobFailureEvent", min_severity="ERROR")                                     # doctest: +SKIP
        ... async def page(event): ...

        It is called in a thread of its own, with one event at a time, in order, and never twice with the same. What it
        raises is logged and counted, and the next event comes; Spark, and the others, notice nothing.

        Args:
            names: of events, with ``*`` for anything; none: all events.
            class_scope: in the same manner.
            min_severity: nothing less severe.
            timeout: seconds that one call may take. Then an ``async`` function is cancelled; the thread of a plain one
                is given up; while eight of them hang, nothing more is called.

        Raises:
            InvalidChoiceError: an argument is not what it must be.
            SessionError: the stream has ended.
        """
        if len(names) == 1 and callable(names[0]):
            return self.on()(names[0])
        choice = EventMatcher.of(names, class_scope, min_severity)

        def subscribe(function: _F) -> _F:
            self.subscribe(Subscription(function, choice, timeout))
            return function

        return subscribe

    def subscribe(self, subscription: Subscription) -> None:
        """The same for a subscription that is there already."""
        function, choice, timeout = subscription
        if not self.is_running:
            name = name_of(function)
            raise SessionError(f"the events have ended, {name} would never be called: call spark_events.start again")
        with self._lock:
            key = _key(function)
            before = self._subscriptions.get(key) if self._replaces and _has_a_name(function) else None
            name = self._free_name(function, before)
            make = delivery_of(name, function, choice, timeout, _CAPACITY, self._bridge.release)
            if before is not None:
                del self._subscriptions[key]
            while key in self._subscriptions:
                key += "'"
            self._subscriptions[key] = subscription, self._conversation.attach(make)
        if before is not None:
            self._conversation.detach(before[1])

    def _free_name(self, function: Callback, before: tuple[Subscription, Delivery] | None) -> str:
        """One that the account at the end has for nobody else, but for the one that it takes the place of."""
        others = [one[1].name for one in self._subscriptions.values() if one is not before]
        taken = {*self._conversation.reporters, *others}
        name = name_of(function)
        while name in taken:
            name += "'"
        return name

    def off(self, function: Callback) -> None:
        """Has it called no more; an event that it is being called with is its last.

        Raises:
            SessionError: it was never subscribed.
        """
        with self._lock:
            found = [key for key, (one, _) in self._subscriptions.items() if one.function == function]
            deliveries = [self._subscriptions.pop(key)[1] for key in found]
        if not found:
            raise SessionError(f"{name_of(function)} is not subscribed to these events")
        for delivery in deliveries:
            self._conversation.detach(delivery)

    def wait_for(
        self,
        *names: str,
        class_scope: str = "*",
        min_severity: str | Severity = "TRACE",
        where: Callable[[Event], object] | None = None,
        after: Event | None = None,
        timeout: float,
    ) -> Event:
        """Waits for an event, and returns it; one that has come already is found in the history.

        >>> events.wait_for("BatchCommitEvent", where=lambda e: "late" in e.body, timeout=30)       # doctest: +SKIP

        Args:
            names: as of :meth:`on`; so are ``class_scope`` and ``min_severity``.
            class_scope: see there.
            min_severity: see there.
            where: a test that the event passes; called by the one who waits.
            after: only events that came behind this one: in a loop, the one that was found last.
            timeout: seconds.

        Raises:
            WaitTimeoutError: it has not come; the message says what has.
            StreamStoppedError: it has not come, and never will.
            InvalidChoiceError: an argument is not what it must be.
        """
        return self._journal.wait_for(
            EventMatcher.of(names, class_scope, min_severity, where), after, _seconds(timeout)
        )

    async def wait_for_async(
        self,
        *names: str,
        class_scope: str = "*",
        min_severity: str | Severity = "TRACE",
        where: Callable[[Event], object] | None = None,
        after: Event | None = None,
        timeout: float,
    ) -> Event:
        """The same as :meth:`wait_for`, to be awaited; the loop goes on meanwhile."""
        choice = EventMatcher.of(names, class_scope, min_severity, where)
        return await self._journal.wait_for_async(choice, after, _seconds(timeout))

    def stop(self) -> None:
        """Ends the stream: what has happened up to now is still told and delivered, as far as the time suffices.

        Calling it again changes nothing. From a callback it returns at once, because the end waits for callbacks.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            first, self._stopping = not self._stopping, True
        if first:
            # Spark itself may be gone, and then the session has noticed.
            with contextlib.suppress(Exception):
                self._bridge.stop()
        if not threading.current_thread().name.startswith("spark-events"):
            self._thread.join(self._patience + _GRACE_SECONDS)

    def _run(self) -> None:
        try:
            self._conversation.run()
        except Exception:
            _LOG.exception("the events of this application have ended, by a defect; the application goes on")
        finally:
            self._stopping = True
            self._journal.end()
            self._bridge.end()
            self._on_end(self)

    def __enter__(self) -> EventStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "ended"
        return f"<EventStream {state}, started at {self.started_at}: {len(self.history)} events>"

    def _repr_html_(self) -> str:
        """How a notebook shows it: the last events, newest first."""
        newest = self.history[: -_SHOWN - 1 : -1]
        return f"<div>{escape(repr(self))}</div>" + "".join(event._repr_html_() for event in newest)


def _seconds(timeout: object) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise InvalidChoiceError(f"timeout: given {timeout!r}, allowed are seconds, 0 or more")
    return float(timeout)


def _key(function: Callback) -> str:
    return f"{getattr(function, '__module__', '')}.{name_of(function)}"


def _has_a_name(function: Callback) -> bool:
    """Whether a function of that name is the same one again: a lambda, or a `_`, is any."""
    name = name_of(function).rpartition(".")[2]
    return name not in ("_", "<lambda>")
