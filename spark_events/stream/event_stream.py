"""Event stream of a running application, as returned by ``spark_events.start``."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from spark_events.errors import InvalidChoiceError, SessionError, is_seconds
from spark_events.event import Event, Severity
from spark_events.sidecar.driver_session import DriverSession
from spark_events.stream.callbacks import Callback, name_of
from spark_events.stream.client_bridge import ClientBridge
from spark_events.stream.driver_bridge import DriverBridge, means_exit
from spark_events.stream.event_history import EventHistory, EventMatcher
from spark_events.stream.subscriptions import Subscription, Subscriptions

if TYPE_CHECKING:
    from spark_events.report.notebook import InlineReport

_LOG = logging.getLogger(__name__)
_F = TypeVar("_F", bound=Callback)

#: Additional time that ``stop`` waits after the shutdown timeout, in seconds.
_GRACE_SECONDS = 1.0
_SHOWN = 10


class EventStream:
    """Stream of an application's events, for callbacks, ``wait_for`` and reporters.

    :func:`spark_events.start` creates the stream. The stream is a context manager that stops on exit. All methods are
    thread-safe. In a forked child process, the stream is not running.

    Args:
        driver_session: a driver session whose ``run`` was not called yet.
        bridge: the source of the driver session's records.
        recorded: the history of the stream, which is also one of the driver session's reporters.
        patience: when the stream ends, time limit for the delivery of the last events, in seconds.
        started_at: file and line of the ``start`` call, for messages.
        replaces_callbacks: whether a new callback replaces a callback with the same name, for notebook cells that run
            again.
        on_end: called with the stream on the stream's thread, after the stream has ended.
    """

    def __init__(
        self,
        driver_session: DriverSession,
        bridge: DriverBridge | ClientBridge,
        recorded: EventHistory,
        patience: float,
        started_at: str,
        replaces_callbacks: bool,
        on_end: Callable[[EventStream], None],
    ) -> None:
        self.started_at = started_at
        self._driver_session = driver_session
        self._bridge = bridge
        self._recorded = recorded
        self._patience = patience
        self._subscriptions = Subscriptions(driver_session, bridge.release, replaces_callbacks)
        self._on_end = on_end
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="spark-events", daemon=True)

    def begin(self) -> None:
        """Start the stream's thread; called by ``spark_events.start``."""
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the stream still receives events."""
        return os.getpid() == self._pid and self._thread.is_alive() and not self._stopping

    @property
    def next_sequence(self) -> int:
        """Sequence number of the next event; a stream that replaces this stream begins with this number."""
        return self._driver_session.next_sequence

    @property
    def history(self) -> list[Event]:
        """The last events, oldest first; ``start(history=…)`` limits their number."""
        return self._recorded.events

    @property
    def subscriptions(self) -> list[Subscription]:
        """The current callbacks."""
        return self._subscriptions.current

    @overload
    def on(self, function: _F, /) -> _F: ...

    @overload
    def on(
        self, *names: str, class_scope: str = "*", min_severity: str | Severity = "TRACE", timeout: float = 60.0
    ) -> Callable[[_F], _F]: ...

    def on(
        self, *names: Any, class_scope: str = "*", min_severity: str | Severity = "TRACE", timeout: float = 60.0
    ) -> Any:
        """Call a function for each matching event; use as a decorator.

        >>> @events.on("JobFailureEvent", min_severity="ERROR")                                     # doctest: +SKIP
        ... async def page(event): ...

        Each function runs in its own thread. It receives one event at a time, in order, and never receives the same
        event twice. If the function raises an exception, the exception is logged and counted, and the next event
        follows as usual. Spark and other reporters are not affected.

        Args:
            names: event names; ``*`` matches any characters. Without names: all events.
            class_scope: scope of the events; ``*`` matches any characters.
            min_severity: lowest severity to deliver.
            timeout: time limit of one call, in seconds. After this time, an ``async`` function is cancelled, and the
                thread of a plain function is abandoned and replaced. While four abandoned threads still hang, a further
                hanging thread is not replaced.

        Raises:
            InvalidChoiceError: when an argument is invalid.
            SessionError: when the stream has ended.
        """
        if len(names) == 1 and callable(names[0]):
            return self.on()(names[0])
        choice = EventMatcher.of(names, class_scope, min_severity)

        def subscribe(function: _F) -> _F:
            self.subscribe(Subscription(function, choice, timeout))
            return function

        return subscribe

    def subscribe(self, subscription: Subscription) -> None:
        """Add an existing subscription, for example one from a stopped stream.

        Raises:
            InvalidChoiceError: when the function or its timeout is invalid.
            SessionError: when the stream has ended.
        """
        if not self.is_running:
            name = name_of(subscription.function)
            raise SessionError(
                f"the event stream has ended, so {name} would receive no events: call spark_events.start again"
            )
        self._subscriptions.add(subscription)

    def off(self, function: Callback) -> None:
        """Remove a callback; a call in progress is its last call.

        Raises:
            SessionError: when the function is not subscribed.
        """
        if not self._subscriptions.remove(function):
            raise SessionError(f"{name_of(function)} is not a callback of this stream: pass a function given to on()")

    def wait_for(
        self,
        *names: str,
        class_scope: str = "*",
        min_severity: str | Severity = "TRACE",
        where: Callable[[Event], object] | None = None,
        after: Event | None = None,
        timeout: float,
    ) -> Event:
        """Return the first matching event; search the history first, then wait for new events.

        >>> events.wait_for("BatchCommitEvent", where=lambda e: "late" in e.body, timeout=30)       # doctest: +SKIP

        Args:
            names: see :meth:`on`.
            class_scope: see :meth:`on`.
            min_severity: see :meth:`on`.
            where: predicate that the event must satisfy. The predicate also runs in the stream's threads and must not
                block.
            after: accept only events after this event. In a loop, pass the event of the preceding call.
            timeout: seconds to wait.

        Raises:
            WaitTimeoutError: when no matching event arrived in time; the message lists the events that arrived.
            StreamStoppedError: when the stream ended without a matching event.
            InvalidChoiceError: when an argument is invalid.
        """
        return self._recorded.wait_for(
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
        """Wait like :meth:`wait_for`, without blocking the event loop."""
        choice = EventMatcher.of(names, class_scope, min_severity, where)
        return await self._recorded.wait_for_async(choice, after, _seconds(timeout))

    def report(self, *, sla: float | None = None) -> InlineReport:
        """Return a report on the events of the history: findings, a timeline, failures.

        A notebook shows the report as a page.

        Args:
            sla: longest acceptable duration of a commit, in seconds.

        Raises:
            MissingExtraError: the extra ``report`` is not installed.
            SparkEventsError: the history has no event.
        """
        from spark_events.report.notebook import inline_report

        return inline_report(self.history, None if sla is None else round(_seconds(sla, "sla") * 1000))

    def stop(self) -> None:
        """Stop the stream, and deliver the events received so far within the shutdown timeout.

        Further calls have no effect. A call from a callback returns immediately, because the stream waits for its
        callbacks before it ends.
        """
        if os.getpid() != self._pid:
            return
        with self._lock:
            first, self._stopping = not self._stopping, True
        if first:
            try:
                self._bridge.stop()
            except Exception as error:
                if not means_exit(error):
                    _LOG.warning("cannot stop recording Spark's events; the stream ends with the JVM: %r", error)
        if not threading.current_thread().name.startswith("spark-events"):
            self._thread.join(self._patience + _GRACE_SECONDS)

    def _run(self) -> None:
        try:
            self._driver_session.run()
        except Exception:
            _LOG.exception("a defect ended the event stream; the application continues without events; report this")
        finally:
            self._stopping = True
            self._recorded.end()
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
        """Return the last events as HTML for a notebook, newest first."""
        newest = self.history[: -_SHOWN - 1 : -1]
        return f"<div>{escape(repr(self))}</div>" + "".join(event._repr_html_() for event in newest)


def _seconds(timeout: object, name: str = "timeout") -> float:
    if not is_seconds(timeout) or timeout < 0:
        raise InvalidChoiceError(f"{name}: given {timeout!r}, expected a number of seconds, 0 or more")
    return float(timeout)
