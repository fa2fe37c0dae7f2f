"""Routes: each record goes to the handler of its type."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from spark_events.records.types import ApplicationStart, ExecutorAdded, ExecutorRemoved
from spark_events.translate.draft import Draft
from spark_events.translate.timed_parts import TimedParts

__all__ = ["Handler", "Moment", "Router", "each"]

#: Handler of a record; None instead of drafts: the record only changes the state.
Handler: TypeAlias = Callable[[Any], Iterable[Draft] | None]
#: Time of a record in milliseconds since the epoch; 0 if the record contains none.
Moment: TypeAlias = Callable[[Any], int]
#: Types of the records that may arrive before the application's start.
_EARLY = (ExecutorAdded, ExecutorRemoved)


def each(*handlers: Handler) -> Handler:
    """Return a handler that calls several handlers, in this order."""

    def handle(record: Any) -> Iterator[Draft]:
        for handler in handlers:
            yield from handler(record) or ()

    return handle


class Router:
    """Pass each record to its handler, after the timers of queries that are due before it.

    Args:
        handlers: for each type of record, the function that returns its time, and its handler.
        timed: the timers.
        knows_application: whether the application's start is known. Until then, records of executors are held: they are
            translated after the start record, or before any other record.
    """

    def __init__(
        self, handlers: Mapping[type, tuple[Moment, Handler]], timed: TimedParts, knows_application: Callable[[], bool]
    ) -> None:
        self._timed = timed
        self._knows_application = knows_application
        self._handlers = dict(handlers)
        self._early: list[ExecutorAdded | ExecutorRemoved] = []

    def drafts(self, record: Any, *, is_released: bool = False) -> Iterable[Draft]:
        """Return the drafts of a record.

        Args:
            record: the record.
            is_released: whether the record was held, or the held records have been translated before it.
        """
        kind = type(record)
        if (self._early or kind in _EARLY) and not is_released:
            return self._in_order(record)
        known = self._handlers.get(kind)
        if known is None:
            return ()
        moment_of, handler = known
        moment = moment_of(record)
        if moment:
            timed = self._timed
            timed.latest = moment, record.at
            if timed.runs and timed.is_due_before(moment):
                return self._after_timers(moment, handler, record)
        return handler(record) or ()

    def _in_order(self, record: Any) -> Iterable[Draft]:
        """Hold a record that came too early, or return the drafts of the held records and of this one."""
        if type(record) in _EARLY and not self._knows_application():
            self._early.append(record)
            return ()
        early, self._early = self._early, []
        records = [record, *early] if isinstance(record, ApplicationStart) else [*early, record]
        return itertools.chain.from_iterable(self.drafts(one, is_released=True) for one in records)

    def _after_timers(self, moment: int, handler: Handler, record: Any) -> Iterator[Draft]:
        yield from self._timed.before(moment)
        yield from handler(record) or ()
