"""Selection of events by name, scope, severity and predicate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from spark_events.dispatch.selection import Filter, SelectionConfig
from spark_events.errors import InvalidChoiceError
from spark_events.event import Event, Severity
from spark_events.event.heartbeat import HEARTBEAT

__all__ = ["EventMatcher"]


@dataclasses.dataclass(frozen=True, slots=True)
class EventMatcher:
    """Event filter: names, scope, lowest severity and an optional function.

    In names and scope, ``*`` matches any text.
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
                raise InvalidChoiceError(f"{what}: given {value!r}, allowed is a str, in which * stands for anything")
        if where is not None and not callable(where):
            raise InvalidChoiceError(f"where: given {where!r}, allowed is a function of an event")
        wanted = tuple(str(name) for name in names) or ("*",)
        return cls(wanted, str(class_scope), _severity(min_severity), where)

    @property
    def selection(self) -> SelectionConfig:
        """The same criteria as a reporter's configuration, without the predicate."""
        includes = (Filter(self.class_scope, self.names),)
        return SelectionConfig(includes, min_severity=self.min_severity, heartbeats=HEARTBEAT in self.names)

    def fits(self, event: Event) -> bool:
        """Return whether the event matches; exceptions of the predicate propagate."""
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
        raise InvalidChoiceError(f"min_severity: given {given!r}, allowed is one of {allowed}") from None
