"""The last step of the translation: a draft becomes an event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from spark_events.event import Attributes, Event
from spark_events.translate.applications import Applications, named
from spark_events.translate.draft import Draft
from spark_events.translate.incidents.incidents import Incidents

__all__ = ["EventFactory"]


class Observer(Protocol):
    """Part of the translation that learns about events."""

    def observe(self, draft: Draft, /) -> None:
        """Note an event, except routine ones."""


# Attributes refuse changes; the factory changes them before anyone else has them.
_extend = dict.update


class EventFactory:
    """Complete drafts: number, id, the application's attributes and name, and the attributes of the incident.

    Args:
        application: supplies the attributes, the name and the ids.
        incidents: decides which incident an event belongs to.
        observers: the parts that count failures, or remember them.
        first_sequence: the number of the first event.

    Attributes:
        next_sequence: the number of the next event.
    """

    def __init__(
        self,
        application: Applications,
        incidents: Incidents,
        observers: Sequence[Observer],
        first_sequence: int,
    ) -> None:
        self._application = application
        self._incidents = incidents
        self._observers = observers
        self.next_sequence = first_sequence

    def of(self, draft: Draft) -> Event:
        """Return the event of a draft, with the next number."""
        name, number, application = draft.name, self.next_sequence, self._application
        self.next_sequence = number + 1
        attributes = Attributes(application.scope_variables)
        _extend(attributes, draft.attributes)
        if not draft.is_routine:
            for observer in self._observers:
                observer.observe(draft)
            _extend(attributes, self._incidents.of(draft, attributes))
        return Event(
            name=name,
            class_scope=draft.class_scope,
            body=named(draft.body, application.prefix) if draft.names_application else draft.body,
            severity=draft.severity,
            observed_ts_millis=draft.observed_ts_millis,
            event_id=application.event_id(name, draft.key),
            sequence=number,
            attributes=attributes,
        )

    def restore(self, draft: Draft) -> None:
        """Note an event that the preceding sidecar has already reported."""
        self._incidents.of(draft, {**self._application.scope_variables, **draft.attributes})
