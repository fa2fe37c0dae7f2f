"""Verdict of an application, collected from its events."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_events.event import AttributeValue, Event
from spark_events.event.text import rfc3339
from spark_events.reporters.alerts.card import failure_facts, links_of, title_of

__all__ = ["NEEDED", "VerdictDraft", "card_text", "of_failure", "without_failure", "write"]

#: Value of ``filter.includes`` for the events that a verdict needs.
NEEDED = "*:JobFailureEvent,JobStatusChangeEvent,BatchCommitEvent,CommitWrittenEvent"
#: Members of the document, by the attributes of the failure that they repeat.
_OF_FAILURE = {
    "class": "failure.class",
    "retry_useful": "failure.retry_useful",
    "evidence": "failure.evidence",
    "cause": "failure.root_cause",
    "location": "failure.location",
    "source_line": "failure.source_line",
    "error_type": "error.type",
    "incident_id": "incident.id",
    "incident_key": "incident.key",
}
#: Events of a commit; a batch that is only processed has ``spark.batch.committed`` false.
_COMMITS = ("BatchCommitEvent", "CommitWrittenEvent")
_MOST_QUERIES = 1_000


def card_text(event: Event) -> str:
    """Return what a person must know first about a failure: a title, and one fact per line."""
    facts = {**failure_facts(event), "Incident": event.attributes.get("incident.id"), **links_of(event)}
    lines = [f"{name}: {value}" for name, value in facts.items() if value not in (None, "")]
    return "\n".join((title_of(event), *lines)) + "\n"


def of_failure(event: Event) -> dict[str, Any]:
    """Return the members of the document that describe the failure; None for an unknown value."""
    return {name: event.attributes.get(key) for name, key in _OF_FAILURE.items()} | {"card": card_text(event)}


def without_failure(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without the members that describe a failure."""
    return {name: value for name, value in document.items() if name not in (*_OF_FAILURE, "card")}


class VerdictDraft:
    """State of one application, from which its verdict is written.

    Attributes:
        failure: the failure that explains the application's state: that of the application itself, otherwise the last
            alarm that no recovery has followed; None if nothing failed.
    """

    def __init__(self) -> None:
        self._end: Event | None = None
        self._of_application: Event | None = None
        self._alarms: dict[str, Event] = {}
        self._queries: dict[str, dict[str, AttributeValue | list[str]]] = {}

    @property
    def failure(self) -> Event | None:
        if self._of_application is not None:
            return self._of_application
        return next(reversed(self._alarms.values()), None)

    def apply(self, event: Event) -> bool:
        """Apply an event; return whether the verdict or its failure has changed."""
        attributes = event.attributes
        role, key = attributes.get("incident.role"), str(attributes.get("incident.key", ""))
        is_application, has_changed = event.class_scope == "spark.application", False
        if event.name in _COMMITS and attributes.get("spark.batch.committed") is not False:
            self._committed(attributes)
        if role == "recovery":
            for one in (key, *json.loads(str(attributes.get("incident.more_keys") or "[]"))):
                has_changed |= self._alarms.pop(one, None) is not None
        elif role == "alarm":
            # The last alarm comes last.
            self._alarms.pop(key, None)
            self._alarms[key] = event
            has_changed = True
        if event.name == "JobFailureEvent" and is_application:
            self._of_application, has_changed = event, True
        elif event.name == "JobStatusChangeEvent" and is_application and attributes["spark.status.new"] != "RUNNING":
            self._end, has_changed = event, True
        return has_changed

    def _committed(self, attributes: Mapping[str, AttributeValue]) -> None:
        name = str(attributes.get("spark.streaming.query.name") or attributes.get("spark.streaming.query.id") or "")
        if name in self._queries or len(self._queries) < _MOST_QUERIES:
            offsets = json.loads(str(attributes.get("spark.streaming.query.committed_offsets") or "null"))
            if offsets is None:
                sources = json.loads(str(attributes.get("spark.batch.sources") or "[]"))
                offsets = [str(source.get("offset_to")) for source in sources]
            self._queries[name] = {"batch": attributes.get("spark.batch.id", -1), "offsets": offsets}

    def document(self) -> dict[str, Any] | None:
        """Return the verdict as a JSON object; None before the application has ended."""
        if self._end is None:
            return None
        ended = self._end.attributes
        status = str(ended.get("spark.status.new"))
        # A failure that the application survived is not the reason for its end.
        failed = self.failure if status != "FINISHED" else None
        found: dict[str, Any] = {
            "version": 1,
            "application": ended.get("spark.app.name"),
            "app_id": ended.get("spark.app.id"),
            "outcome": status,
            "reason": ended.get("spark.app.end_reason"),
            "exit_code": ended.get("spark.app.exit_code"),
            "ended_at": rfc3339(self._end.observed_ts_millis),
            "body": self._end.body if failed is None else failed.body,
        }
        if failed is not None:
            found |= of_failure(failed)
        elif status == "LOST":
            found |= {"incident_id": ended.get("incident.id"), "incident_key": ended.get("incident.key")}
        found["committed"] = self._queries
        return {name: value for name, value in found.items() if value is not None}


def write(document: Mapping[str, Any], path: Path) -> None:
    """Replace the file at once, so that a reader never sees a part of it; create its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
