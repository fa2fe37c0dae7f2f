"""Reporter interface, modelled on FLIP-481's EventReporter and its factory."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import importlib
from collections.abc import Awaitable, Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar, NamedTuple, Protocol

from spark_events.config import Kind, duration
from spark_events.config.value_kinds import WORDS
from spark_events.errors import MissingExtraError
from spark_events.event import Event, Severity

#: ``linger``, in seconds, of the built-in reporters that send one request per batch.
REQUEST_LINGER = 0.2
#: Upper limit for the linger time or the rest of a reporter, in seconds.
LONGEST_LINGER = 60.0


def _severity(text: str) -> Severity:
    try:
        return Severity(text.upper())
    except ValueError:
        raise ValueError from None


class Rest(NamedTuple):
    """Time after a call of ``report`` in which further events wait, so that one request can contain them all.

    A full batch and the end of the application end the rest. If ``batch.linger`` is set, or Spark waits for the events,
    there is no rest.

    Attributes:
        seconds: duration, from the end of the call; 0: no rest.
        through: events of a higher severity end the rest.
    """

    seconds: float = 0.0
    through: Severity = Severity.TRACE


#: Type of a setting that contains a severity, in upper or lower case.
severity: Kind[Severity] = Kind(
    f"one of {', '.join(severity.value for severity in Severity)}",
    _severity,
    lambda severity: severity.value,
    harmless=WORDS,
)


def _wait(text: str) -> float:
    seconds = duration.parse(text)
    if seconds > LONGEST_LINGER:
        raise ValueError
    return seconds


#: Type of a setting that contains a linger time.
short_duration: Kind[float] = Kind(
    "a whole number with a unit (ms, s, min), say 5s, 1min at most", _wait, duration.format, harmless=WORDS
)


@dataclasses.dataclass(frozen=True, slots=True)
class NoOptions:
    """Configuration of a reporter without settings."""


class Reporter(abc.ABC):
    """Base class of reporters, which deliver events to one destination.

    Every reporter runs in its own thread with its own event loop. Its methods may be plain or ``async``, and never run
    concurrently. The loop also runs between calls, for the reporter's tasks, connections and timers.

    The exception that a method raises determines the next step:

    - :class:`~spark_events.errors.PermanentError` drops these events.
    - :class:`~spark_events.errors.ThrottledError` requests a pause before the retry.
    - Any other exception is transient: the same events are delivered again, in the same order.

    Attributes:
        max_batch_size: maximum number of events per call of ``report``, if lower than ``batch.size``. None: only
            ``batch.size`` applies. Timeouts, exceptions and counters apply to a whole call, so a destination that
            accepts one event per request should use 1. May change between calls. An invalid value is logged and
            ignored.
        linger: how long an event may wait for further events before ``report`` is called, in seconds, unless
            ``batch.linger`` is set. Set it if the cost per call is much higher than the cost per event. An
            invalid value is logged and ignored. Events of severity WARN or higher (of some built-in reporters: no
            event), and events that Spark waits for, are delivered without this wait.
        wants_heartbeats: whether reporters of this type receive heartbeats unless ``heartbeats`` is set.
        notifies: whether reporters of this type notify people, or a service that does. ``spark-events replay`` leaves
            them out, because old failures must alert nobody. The class's ``Config`` may define this attribute instead,
            if it depends on a setting.
        min_severity: the lowest severity that reporters of this type receive unless ``filter.min-severity`` is set.
        default_includes: the value of ``filter.includes`` for reporters of this type unless this setting is set. Define
            it if the type ignores all other events, so that these events are not buffered and never count as dropped.
    """

    Config: ClassVar[type[Any]] = NoOptions
    max_batch_size: int | None = None
    linger: float = 0.0
    # Not public, for the built-in reporters that list several failures in one message. Events of a higher severity end
    # the linger time.
    lingers_through: Severity = Severity.INFO
    # Set in ``report``.
    rest: Rest = Rest()
    wants_heartbeats: ClassVar[bool] = False
    notifies: ClassVar[bool] = False
    min_severity: ClassVar[Severity] = Severity.TRACE
    default_includes: ClassVar[str] = "*:*"

    def __init__(self, config: Any = None) -> None:
        """Store the configuration, an instance of the class's ``Config``."""
        self.config = config

    def open(self) -> Awaitable[None] | None:
        """Prepare for the first events; called once, and again after each call that raised an error."""
        return None

    @abc.abstractmethod
    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        """Deliver the events, oldest first; a normal return acknowledges all of them."""

    def close(self) -> Awaitable[None] | None:
        """Deliver what is left, and release resources, after the last events; called once.

        The method is not called if ``open`` was never called. If the reporter's thread was abandoned, or ended by the
        reporter itself, :meth:`release` is called instead.
        """
        return self.release()

    def release(self) -> Awaitable[None] | None:
        """Close connections and files without delivering anything, because another object delivers the events.

        Called in the abandoned thread as soon as its blocked call has returned, even if ``open`` was not called.
        """
        return None


class ReporterFactory(Protocol):
    """Callable that creates a reporter, such as a :class:`Reporter` class.

    ``Config`` is a frozen dataclass. Its fields are declared with :func:`spark_events.config.option`, and their keys
    are below ``events.reporter.<name>.``.
    """

    @property
    def Config(self) -> type[Any]: ...

    def __call__(self, config: Any, /) -> Reporter: ...


def load_extra(module: str, extra: str) -> ModuleType:
    """Import a module of an optional dependency.

    Raises:
        MissingExtraError: the library is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is not installed; run: pip install 'spark-events[{extra}]'") from None


#: Pause before the first retry, and longest pause between retries, in seconds.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.05


async def until(done: Callable[[], bool]) -> None:
    """Call ``done`` until it returns True, with growing pauses between the calls.

    The caller must limit the total time.
    """
    pause = _FIRST_PAUSE
    while not done():
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
