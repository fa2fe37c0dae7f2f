"""Callbacks of an event stream, each with its delivery."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from spark_events.dispatch.delivery import Delivery
from spark_events.sidecar.driver_session import DriverSession
from spark_events.stream.callbacks import Callback, delivery_of, name_of
from spark_events.stream.event_history import EventMatcher

__all__ = ["Subscription", "Subscriptions"]

#: Maximum number of events in the mailbox of a callback.
_CAPACITY = 2048


class Subscription(NamedTuple):
    """Callback, with its event filter and its timeout in seconds."""

    function: Callback
    choice: EventMatcher
    timeout: float


class Subscriptions:
    """The callbacks of a stream; thread-safe.

    Args:
        driver_session: the driver session that delivers the events.
        release: called by the thread of a callback before it ends.
        replaces: whether a new callback replaces a callback with the same name.
    """

    def __init__(self, driver_session: DriverSession, release: Callable[[], None], replaces: bool) -> None:
        self._driver_session = driver_session
        self._release = release
        self._replaces = replaces
        self._lock = threading.Lock()
        self._deliveries: list[tuple[Subscription, Delivery]] = []

    @property
    def current(self) -> list[Subscription]:
        """The current callbacks."""
        with self._lock:
            return [subscription for subscription, _ in self._deliveries]

    def add(self, subscription: Subscription) -> None:
        """Deliver events to a callback.

        Raises:
            InvalidChoiceError: when the function or its timeout is invalid.
        """
        function, choice, timeout = subscription
        with self._lock:
            before = None
            if self._replaces and _is_named(function):
                alike = (one for one in self._deliveries if _path(one[0].function) == _path(function))
                before = next(alike, None)
            name = self._free_name(function, before)
            make = delivery_of(name, function, choice, timeout, _CAPACITY, self._release)
            self._deliveries = [one for one in self._deliveries if one is not before]
            self._deliveries.append((subscription, self._driver_session.attach(make)))
        if before is not None:
            self._driver_session.detach(before[1])

    def _free_name(self, function: Callback, before: tuple[Subscription, Delivery] | None) -> str:
        """Return an unused reporter name; the name of a callback that is being replaced counts as unused."""
        others = [one[1].name for one in self._deliveries if one is not before]
        taken = {*self._driver_session.reporters, *others}
        name = name_of(function)
        while name in taken:
            name += "'"
        return name

    def remove(self, function: Callback) -> bool:
        """Remove a callback; return whether there was one."""
        with self._lock:
            deliveries = [delivery for one, delivery in self._deliveries if one.function == function]
            self._deliveries = [one for one in self._deliveries if one[1] not in deliveries]
        for delivery in deliveries:
            self._driver_session.detach(delivery)
        return bool(deliveries)


def _path(function: Callback) -> str:
    return f"{getattr(function, '__module__', '')}.{name_of(function)}"


def _is_named(function: Callback) -> bool:
    """Return whether the function's name identifies the function; False for ``_`` and lambdas."""
    name = name_of(function).rpartition(".")[2]
    return name not in ("_", "<lambda>")
