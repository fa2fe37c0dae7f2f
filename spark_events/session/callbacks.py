"""Functions that get events: each is a reporter of its own, with a thread and a mailbox, and harms nobody else."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.errors import InvalidChoiceError, PermanentError
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter
from spark_events.session.event_matcher import EventMatcher

__all__ = ["Callback", "CallbackReporter", "delivery_of", "name_of"]

Callback: TypeAlias = Callable[[Event], Awaitable[object] | object]

#: What an attempt may take longer than the callback, before its thread is given up.
_GRACE_SECONDS = 1.0
#: Of that, how long one that is cancelled has to end.
_UNWIND_SECONDS = 0.5


class CallbackReporter(Reporter):
    """Calls a function with one event after the other, and never twice with the same.

    Args:
        function: plain or ``async``.
        timeout: seconds after which an ``async`` one is cancelled.
        begun: the identifier of the event that was handed over last, shared with the reporter that takes over when the
            function blocks its thread.
        on_close: called in the thread, behind everything.
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
            # A program may add one event twice; what is handed over again is the same in its number, too.
            told = f"{event.sequence}/{event.event_id}"
            if told in self._begun:
                raise PermanentError(f"its call with {event.name} {event.event_id} blocks its thread, and was given up")
            self._begun[:] = [told]
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
                raise PermanentError(f"{event.name}: it raised\n{_told(error)}") from error

    async def _end(self, call: asyncio.Future[BaseException | None]) -> BaseException | None:
        done, _ = await asyncio.wait({call}, timeout=self._timeout)
        if not done:
            call.cancel()
            # It is to be out of the way before the next is called; one that will not end is not waited for.
            await asyncio.wait({call}, timeout=_UNWIND_SECONDS)
            return PermanentError(f"no answer within {self._timeout:g} s (timeout)")
        return call.result()

    def close(self) -> None:
        self._on_close()


async def _outcome(result: Awaitable[object]) -> BaseException | None:
    """What a function has raised, whatever it is: an exit that leaves a task ends the whole loop."""
    try:
        await result
    except BaseException as error:
        return error
    return None


def _told(error: BaseException) -> str:
    """The traceback, from the function on: how it came to be called is no matter of its author's."""
    tail = error.__traceback__.tb_next if error.__traceback__ is not None else None
    return "".join(traceback.format_exception(type(error), error, tail)).rstrip()


def name_of(function: object) -> str:
    """By which a callback is known in logs and in the account at the end."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def delivery_of(
    name: str, function: Callback, choice: EventMatcher, timeout: float, capacity: int, on_close: Callable[[], None]
) -> Callable[[Hooks], Delivery]:
    """What makes the delivery to a callback.

    Raises:
        InvalidChoiceError: it cannot be called with an event.
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
        raise InvalidChoiceError(f"callback: given {function!r}, allowed is a function of one event")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise InvalidChoiceError(
            f"callback: {name_of(function)} cannot be called with one argument, the event"
        ) from None
    except ValueError:
        # Written in C, say: there is no signature to look at.
        pass
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
        raise InvalidChoiceError(f"timeout: given {timeout!r}, allowed are seconds, more than 0")
