"""What a reporter is. The model is FLIP-481's EventReporter and its factory, in Python's manners."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Awaitable, Sequence
from typing import Any, ClassVar, Protocol

from spark_events.event import Event

__all__ = ["REQUEST_LINGER", "NoOptions", "Reporter", "ReporterFactory"]

#: ``linger`` of the built-in reporters that send a request for each batch, in seconds.
REQUEST_LINGER = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class NoOptions:
    """The configuration of a reporter that needs none."""


class Reporter(abc.ABC):
    """Takes events to one destination.

    Every reporter runs in a thread and an event loop of its own; its methods may be plain or ``async``
    and are never called two at a time. Between the calls the loop goes on where a method is ``async``, or
    ``open`` has set tasks going; otherwise it stands still, because the thread is quicker to wake then.
    What a method raises is a verdict:
    :class:`~spark_events.errors.PermanentError` gives up on these events,
    :class:`~spark_events.errors.ThrottledError` asks for a pause, and anything else is transient:
    the same events are handed over again, in the same order.

    Attributes:
        max_batch_size: how many events one call of ``report`` gets at most, where that is less than ``batch.size``;
            None: that says it alone. Timeouts, verdicts and the books are about calls: a destination that takes one
            event a request is best asked for one a call. It may change from call to call; what is no positive number
            is taken for None.
        linger: how long, in seconds, an event may wait for others before a call of ``report``, unless ``batch.linger``
            is set. For destinations where a call costs much more than an event. Events of severity WARN and above, and
            those that Spark waits for, do not wait.
    """

    Config: ClassVar[type[Any]] = NoOptions
    max_batch_size: int | None = None
    linger: float = 0.0

    def __init__(self, config: Any = None) -> None:
        """Gets what its ``Config`` has been read into."""
        self.config = config

    def open(self) -> Awaitable[None] | None:
        """Called once before the first events; called again when it raised."""
        return None

    @abc.abstractmethod
    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        """Delivers some events, oldest first. Having returned, it answers for all of them."""

    def close(self) -> Awaitable[None] | None:
        """Called once after the last events; never, where ``open`` was not, or its thread was given up."""
        return None


class ReporterFactory(Protocol):
    """Makes a reporter from its configuration; a :class:`Reporter` class is one by itself.

    ``Config`` is a frozen dataclass whose fields are declared with :func:`spark_events.config.option`;
    its keys stand below ``events.reporter.<name>.``.
    """

    @property
    def Config(self) -> type[Any]: ...

    def __call__(self, config: Any, /) -> Reporter: ...
