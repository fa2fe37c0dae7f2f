"""Callbacks: user functions that receive events.

Each callback is a separate reporter with its own thread and mailbox, so it cannot delay other callbacks.
"""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.errors import InvalidChoiceError, PermanentError, is_seconds
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter
from spark_events.stream.event_history import EventMatcher

Callback: TypeAlias = Callable[[Event], Awaitable[object] | object]

#: Time between the callback's timeout and the moment when the dispatcher abandons the reporter's thread, in seconds.
_GRACE_SECONDS = 1.0
#: Time limit for a cancelled callback to finish, in seconds; part of the grace period above.
_UNWIND_SECONDS = 0.5


class CallbackReporter(Reporter):
    """Reporter that calls a user function once for each event.

    Args:
        function: the user's function, plain or ``async``.
        timeout: seconds until an ``async`` call is cancelled.
        begun: contains the identifier of the last event that the function received. A replacement reporter shares this
            list, so that it does not repeat a call that blocked the thread of its predecessor.
        on_close: called in the reporter's thread when the reporter closes.
    """

    def __init__(
        self, function: Callback, timeout: float, begun: list[str], on_close: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._function = function
        self._timeout = timeout
        self._begun = begun
        self._on_close = on_close

    async def report(self, events: Sequence[Event]) -> None:
        for event in events:
            # A program may add the same event twice. Only a repeated delivery also has the same sequence number.
            identity = f"{event.sequence}/{event.event_id}"
            if identity in self._begun:
                raise PermanentError(
                    f"its call with {event.name} {event.event_id} blocks its thread, which is abandoned"
                )
            self._begun[:] = [identity]
            error: BaseException | None = None
            try:
                result = self._function(event)
            except BaseException as raised:
                error = raised
            else:
                if inspect.isawaitable(result):
                    error = await self._end(asyncio.ensure_future(_outcome(result)))
            if isinstance(error, PermanentError):
                raise error
            if error is not None:
                raise PermanentError(f"{event.name}: the callback raised an error\n{_traceback_of(error)}") from error

    async def _end(self, call: asyncio.Future[BaseException | None]) -> BaseException | None:
        done, _ = await asyncio.wait({call}, timeout=self._timeout)
        if not done:
            call.cancel()
            # Let the cancelled call finish before the next call starts; give up on a call that ignores the
            # cancellation.
            await asyncio.wait({call}, timeout=_UNWIND_SECONDS)
            return PermanentError(f"no answer within {self._timeout:g} s (timeout)")
        return call.result()

    def close(self) -> None:
        self._on_close()


async def _outcome(result: Awaitable[object]) -> BaseException | None:
    """Return the exception that the function raised, or None.

    Catch every exception, because a SystemExit raised in a task would end the whole event loop.
    """
    try:
        await result
    except BaseException as error:
        return error
    return None


def _traceback_of(error: BaseException) -> str:
    """Return the traceback, starting at the user's function."""
    tail = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return "".join(traceback.format_exception(type(error), error, tail)).rstrip()


def name_of(function: object) -> str:
    """Return the name of a callback in log messages and in the final report."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def delivery_of(
    name: str, function: Callback, choice: EventMatcher, timeout: float, capacity: int, on_close: Callable[[], None]
) -> Callable[[Hooks], Delivery]:
    """Return a function that creates the delivery to a callback.

    Args:
        name: the reporter's name.
        function: the user's function, plain or ``async``.
        choice: the events to deliver.
        timeout: time limit of one call, in seconds.
        capacity: the maximum number of events in the mailbox.
        on_close: called in the reporter's thread when the reporter closes.

    Raises:
        InvalidChoiceError: when ``function`` does not accept one argument, or ``timeout`` is not a positive number.
    """
    _check(function, timeout)
    begun: list[str] = []

    def make(hooks: Hooks) -> Delivery:
        config = DeliveryConfig(timeout=timeout + _GRACE_SECONDS, batch_size=1)
        reporter = lambda: CallbackReporter(function, timeout, begun, on_close)  # noqa: E731
        return Delivery(name, reporter, config, capacity, hooks, choice.selection)

    return make


def _check(function: object, timeout: object) -> None:
    if not callable(function):
        raise InvalidChoiceError(f"callback: given {function!r}, expected a function of one event")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise InvalidChoiceError(
            f"callback: {name_of(function)} cannot be called with one argument, the event"
        ) from None
    except ValueError:
        # Some functions written in C have no signature to inspect.
        pass
    if not is_seconds(timeout) or timeout <= 0:
        raise InvalidChoiceError(f"timeout: given {timeout!r}, expected a number of seconds above 0")
