"""One record in, the events that it means out: hands each record to the subject it is about."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

from spark_events.bridge.records import (
    ApplicationEnd,
    ApplicationStart,
    Dropped,
    JobEnd,
    JobStart,
    QueryProgress,
    QueryStarted,
    QueryTerminated,
)
from spark_events.event import Attributes, AttributeValue, Event
from spark_events.translate.applications import Applications
from spark_events.translate.commits import commit
from spark_events.translate.draft import Draft
from spark_events.translate.drops import dropped
from spark_events.translate.jobs import Jobs
from spark_events.translate.queries import Queries

__all__ = ["Translator"]


class Translator:
    """Records of one application to its events, in order.

    Args:
        first_sequence: the number of the first event; a sidecar that was started anew goes on counting
            where its predecessor had stopped.
    """

    def __init__(self, first_sequence: int = 1) -> None:
        self.next_sequence = first_sequence
        self.defects = 0
        self._application = Applications()
        self._queries = Queries()
        self._jobs = Jobs(self._queries)
        self._handlers: dict[type, Callable[[Any], Iterable[Draft]]] = {
            ApplicationStart: self._application.started,
            ApplicationEnd: self._application_ended,
            QueryStarted: self._queries.started,
            QueryProgress: self._progressed,
            QueryTerminated: self._queries.terminated,
            JobStart: self._jobs.started,
            JobEnd: self._jobs.ended,
            Dropped: dropped,
        }

    @property
    def application_is_over(self) -> bool:
        """Whether the application's end has been seen."""
        return self._application.is_over

    def translate(self, record: object) -> list[Event]:
        """The events that a record means, numbered; none for a record without meaning."""
        handler = self._handlers.get(type(record))
        return [] if handler is None else [self._event(draft) for draft in handler(record)]

    def restore(self, record: object) -> None:
        """Takes in what a predecessor has already reported."""
        handler = self._handlers.get(type(record))
        if handler is not None:
            for _ in handler(record):
                pass

    def driver_lost(self, at: int, orderly: bool) -> list[Event]:
        """The pipe has closed and no end of the application was seen.

        Args:
            at: milliseconds since the epoch.
            orderly: the JVM had said that it goes down; the driver was not killed.
        """
        return [self._event(d) for d in self._application.lost(at, orderly, self._queries.running_names())]

    def _application_ended(self, record: ApplicationEnd) -> Iterable[Draft]:
        return self._application.ended(record, self._queries.failed_names(), self._jobs.last_failed)

    def _progressed(self, record: QueryProgress) -> Iterable[Draft]:
        query = self._queries.of(record.progress.id, record.progress.run_id, record.progress.name)
        return commit(record, query)

    def _event(self, draft: Draft) -> Event:
        attributes: dict[str, AttributeValue] = {**self._application.scope_variables, **draft.attributes}
        event = Event(
            name=draft.name,
            class_scope=draft.class_scope,
            body=draft.body,
            severity=draft.severity,
            observed_ts_millis=draft.observed_ts_millis,
            event_id=self._event_id(draft),
            sequence=self.next_sequence,
            attributes=Attributes(attributes),
        )
        self.next_sequence += 1
        return event

    def _event_id(self, draft: Draft) -> str:
        key = "\x1f".join(map(str, (*self._application.identity, draft.name, *draft.key)))
        return hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=16).hexdigest()
