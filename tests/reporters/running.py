"""Reporters as the sidecar has them: read from settings, in a pipeline of their own."""

from __future__ import annotations

import time
from collections.abc import Sequence

from fakes import eventually

from spark_events import Event
from spark_events.config import Settings
from spark_events.dispatch.books import Books
from spark_events.dispatch.entries import Entry
from spark_events.pipeline import build

__all__ = ["IMPATIENT", "Running"]

#: For tests in which destinations are away: tried often, never left alone.
IMPATIENT = {"retry.initial": "20ms", "retry.max": "50ms", "circuit-breaker.failures": "1000"}


class Running:
    """A reporter at work. A context manager: at its end it is stopped, and its books balance.

    Args:
        type_name: the reporter's type.
        settings: keys below its name, as a user would write them.
    """

    def __init__(self, type_name: str, settings: dict[str, str]) -> None:
        keys = {f"events.reporter.peer.{key}": value for key, value in {**settings, "type": type_name}.items()}
        keys |= {"events.dispatcher.queue.size": "20000", "events.dispatcher.type": "async-queued"}
        pipeline = build(Settings.of(keys))
        self._dispatcher = pipeline.dispatcher
        (self._delivery,) = pipeline.deliveries
        self._stopped = False
        self._dispatcher.start()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stopped:
            self.stop()

    @property
    def books(self) -> Books:
        return self._delivery.books()

    def put(self, events: Sequence[Event]) -> None:
        self._dispatcher.dispatch([Entry(0, event) for event in events], 0)

    def deliver(self, events: Sequence[Event] = (), within: float = 30) -> None:
        """Puts events, and waits until all there are have come to their end."""
        self.put(events)
        assert self._delivery.wait_until_settled(within), self.books

    def await_failures(self, count: int = 1) -> None:
        """Waits for so many more failed attempts."""
        before = self.books.failures
        eventually(lambda: self.books.failures >= before + count, what=f"{count} failures after {before}")

    def stop(self, within: float = 10) -> float:
        """Ends it; returns when that began."""
        self._stopped = True
        began = time.monotonic()
        self._dispatcher.stop(began + within)
        assert self.books.balances
        return began
