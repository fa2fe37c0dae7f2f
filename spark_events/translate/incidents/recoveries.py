"""Detect events that open or close an incident although they report no failure.

The tracker stores no state of earlier runs. The first success of a run closes the incident that an earlier run may have
left open. Closing an incident that is not open has no effect.

These events close incidents:

==================================  ==============================================================================
first commit of a query's run       the incident of the query; the application's first commit also closes its own
application FINISHED                incidents of the application, its job groups, and queries that had no data
deadline ON_TIME                    the incident of the deadline, if no other work of the incident is overdue
breaker closed                      the incident of the reporter
==================================  ==============================================================================
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from spark_events.event import AttributeValue

__all__ = ["Recoveries", "incident_key"]

_ALARM, _RECOVERY = "alarm", "recovery"
_NOTHING: Mapping[str, AttributeValue] = {}
_RUN = "spark.streaming.query.run_id"
#: Attributes that distinguish overdue work with the same incident key. At most one stage is overdue at a time.
_WORK = ("spark.job.id", _RUN, "spark.deadline.source", "spark.deadline.topic")
#: Maximum number of queries and job groups whose incidents are closed when the application ends.
_MOST_SUBJECTS = 20
#: Maximum number of stored query runs without a commit.
_MOST_RUNS = 1_000
#: Job group id that some servers generate for each statement.
_GENERATED = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE)


def incident_key(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the key of the incident of a failure; the key stays the same after a restart of the application."""
    return _key(attributes, _subject(attributes))


def _key(attributes: Mapping[str, AttributeValue], subject: str, kind: str = "failure") -> str:
    application = str(attributes.get("spark.app.name") or attributes.get("spark.app.id") or "")
    return "/".join(part for part in (application, subject, kind) if part)


def _subject(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the part of an incident's key that identifies the query or the job group."""
    query = attributes.get("spark.streaming.query.name") or attributes.get("spark.streaming.query.id")
    group = str(attributes.get("spark.job.group", ""))
    return str(query or ("" if _GENERATED.search(group) else group))


class Recoveries:
    """Queries and job groups of this run whose incidents later events may close."""

    def __init__(self) -> None:
        self._has_committed = False
        # The run of each query that has neither committed nor failed.
        self._runs: dict[str, AttributeValue | None] = {}
        self._groups: dict[str, None] = {}
        # Overdue work by incident key. The change to ON_TIME, which follows each change to OVERDUE, removes the work.
        self._overdue: dict[str, set[tuple[AttributeValue | None, ...]]] = {}

    def of(self, name: str, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        """Return the incident role and key for an event that opens or closes an incident.

        The result is empty for any other event.
        """
        if name == "JobStatusChangeEvent":
            return self._changed(attributes)
        if name == "BatchCommitEvent":
            return self._committed(attributes)
        new = attributes.get("spark.status.new")
        if name == "DeadlineStatusChangeEvent":
            return self._deadline_changed(attributes)
        if name == "ReporterStatusChangeEvent" and new in ("open", "closed"):
            key = _key(attributes, str(attributes.get("spark.events.reporter.name")), "reporter")
            return _role(_ALARM if new == "open" else _RECOVERY, key)
        return _NOTHING

    def _deadline_changed(self, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        key = _key(attributes, _subject(attributes), f"deadline-{attributes.get('spark.deadline.rule')}")
        work = tuple(attributes.get(name) for name in _WORK)
        overdue = self._overdue.setdefault(key, set())
        if attributes.get("spark.status.new") == "OVERDUE":
            overdue.add(work)
            return _role(_ALARM, key)
        overdue.discard(work)
        if overdue:
            return _NOTHING
        del self._overdue[key]
        return _role(_RECOVERY, key)

    def _committed(self, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        subject, run = _subject(attributes), attributes.get(_RUN)
        if run is None or self._runs.get(subject) != run:
            return _NOTHING
        del self._runs[subject]
        # A streaming application may never end on its own, so its first commit closes its incident.
        more = [] if self._has_committed else [_key(attributes, "")]
        self._has_committed = True
        return _role(_RECOVERY, _key(attributes, subject), more)

    def _changed(self, attributes: Mapping[str, AttributeValue]) -> Mapping[str, AttributeValue]:
        entity = attributes.get("spark.entity")
        if entity == "job":
            # Handle job events first, because they are the most frequent events.
            is_group = "spark.job.group" in attributes and _RUN not in attributes and len(self._groups) < _MOST_SUBJECTS
            if is_group and (subject := _subject(attributes)):
                self._groups[subject] = None
            return _NOTHING
        subject, new = _subject(attributes), attributes.get("spark.status.new")
        if entity == "application" and new == "FINISHED":
            more = [_key(attributes, one) for one in dict.fromkeys([*self._runs, *self._groups])]
            return _role(_RECOVERY, _key(attributes, ""), more[:_MOST_SUBJECTS])
        if entity == "query" and new == "FAILED":
            self._runs.pop(subject, None)
        elif entity == "query" and new == "RUNNING" and len(self._runs) < _MOST_RUNS:
            self._runs[subject] = attributes.get(_RUN)
        return _NOTHING


def _role(role: str, key: str, more: Sequence[str] = ()) -> Mapping[str, AttributeValue]:
    about: dict[str, AttributeValue] = {"incident.key": key, "incident.role": role}
    if more:
        about["incident.more_keys"] = json.dumps(more)
    return about
