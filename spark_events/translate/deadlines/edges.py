"""Overdue deadlines; each change of their status is reported once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from spark_events.event import AttributeValue, Severity
from spark_events.event.text import lasting
from spark_events.translate.draft import Draft, present
from spark_events.translate.incidents.incidents import Incidents

__all__ = ["Edges", "Work"]

#: An overdue deadline becomes an ERROR at this multiple of its limit.
_FACTOR = 3
_LATE = 1
_VERY_LATE = 2
#: Severity of an event that is the alarm, by level.
_SEVERITIES = {_LATE: Severity.WARN, _VERY_LATE: Severity.ERROR}
#: Subject and class scope of the events of each rule.
_RULES = {
    "batch": ("batch", "spark.streaming.query"),
    "progress": ("query", "spark.streaming.query"),
    "lag": ("query", "spark.streaming.query"),
    "backlog.records": ("query", "spark.streaming.query"),
    "backlog.bytes": ("query", "spark.streaming.query"),
    "backlog.files": ("query", "spark.streaming.query"),
    "backlog.seconds": ("query", "spark.streaming.query"),
    "resources": ("stage", "spark.stage"),
    "job": ("job", "spark.job"),
    "application": ("application", "spark.application"),
}


class Work(NamedTuple):
    """Work with a deadline.

    Attributes:
        name: identifies the work while it runs.
        rule: the rule's key below ``events.deadline``.
        key: identifies the deadline in the application, in this run and in a replay.
        attributes: event attributes that describe the work.
    """

    name: str
    rule: str
    key: tuple[str | int, ...]
    attributes: dict[str, AttributeValue | None]


class _Edge(msgspec.Struct, array_like=True):
    """Overdue deadline: level reported so far, start of the work, limit, key of the events, key of the incident."""

    level: int
    since: int
    limit: int
    key: list[str | int]
    incident: str = ""


class Edges:
    """Overdue deadlines of an application, by name.

    Args:
        incidents: decides which event of a hang is the alarm.
        scope: returns the attributes of all events of the application.
    """

    def __init__(self, incidents: Incidents, scope: Callable[[], Mapping[str, AttributeValue]]) -> None:
        self._incidents = incidents
        self._scope = scope
        self._open: dict[str, _Edge] = {}

    def dump(self) -> str:
        """Return all overdue deadlines as a string, which a restarted sidecar can load."""
        return msgspec.json.encode(self._open).decode()

    def load(self, text: str) -> None:
        """Load the overdue deadlines that the preceding sidecar reported."""
        self._open = msgspec.json.decode(text or "{}", type=dict[str, _Edge])
        for name, edge in self._open.items():
            self._incidents.still_overdue(name, edge.incident, _SEVERITIES[edge.level])

    def clock_stepped(self, by: int) -> None:
        """Move all times by the step of the wall clock, in milliseconds."""
        for edge in self._open.values():
            edge.since += by

    def names(self) -> list[str]:
        """Return the names of all overdue deadlines."""
        return list(self._open)

    def since(self, name: str) -> int | None:
        """Return the start time of overdue work; None if the work is on time."""
        edge = self._open.get(name)
        return None if edge is None else edge.since

    def due(self, name: str, since: int, limit: int) -> int | None:
        """Return the time at which the next event of a deadline is due; None if all events were reported."""
        edge = self._open.get(name)
        if edge is None:
            return since + limit
        return edge.since + _FACTOR * edge.limit if edge.level == _LATE else None

    def judge(self, work: Work, limit: int, since: int, now: int, sentence: str, details: str = "") -> Iterator[Draft]:
        """Yield the events of a deadline that are due: WARN at the limit, ERROR at three times the limit.

        Args:
            work: the work.
            limit: the time limit, in milliseconds.
            since: start time of the work, in milliseconds since the epoch.
            now: milliseconds since the epoch.
            sentence: first words of the body, before the elapsed time and the limit.
            details: end of the body.
        """
        edge = self._open.get(work.name)
        if edge is None:
            if now - since < limit:
                return
            edge = self._open[work.name] = _Edge(_LATE, since, limit, list(work.key))
            yield self._overdue(edge, work, "ON_TIME", since + limit, sentence, details)
        if edge.level == _LATE and now - edge.since >= _FACTOR * edge.limit:
            edge.level = _VERY_LATE
            at = edge.since + _FACTOR * edge.limit
            yield self._overdue(edge, work, "OVERDUE", at, sentence, details)

    def close(self, work: Work, now: int, sentence: str, details: str = "") -> Iterator[Draft]:
        """Yield the recovery event of an overdue deadline; nothing if the deadline was on time.

        In the body, the details replace the limit.
        """
        edge = self._open.pop(work.name, None)
        if edge is not None:
            edge.level = 0
            about = self._incidents.on_time(work.name)
            yield _draft(edge, work, "OVERDUE", now, Severity.INFO, sentence, details, about)

    def forget(self, name: str) -> None:
        """Remove a deadline whose work is unknown; emit no event."""
        if self._open.pop(name, None) is not None:
            self._incidents.on_time(name)

    def _overdue(self, edge: _Edge, work: Work, old: str, at: int, sentence: str, details: str) -> Draft:
        attributes = {**self._scope(), **present(work.attributes)}
        severity, about = self._incidents.overdue(work.name, attributes, _SEVERITIES[edge.level])
        edge.incident = str(about["incident.key"])
        return _draft(edge, work, old, at, severity, sentence, details, about)


def _draft(
    edge: _Edge,
    work: Work,
    old: str,
    at: int,
    severity: Severity,
    sentence: str,
    details: str,
    about: Mapping[str, AttributeValue],
) -> Draft:
    elapsed = max(0, at - edge.since)
    subject, scope = _RULES[work.rule]
    limit = f" (limit {lasting(edge.limit)})"
    ending = f"for {lasting(elapsed)}{limit}{details}" if edge.level else f"after {lasting(elapsed)}{details or limit}"
    return Draft(
        name="DeadlineStatusChangeEvent",
        class_scope=scope,
        key=("deadline", work.rule, *edge.key, edge.level),
        body=f"{sentence} {ending}",
        severity=severity,
        observed_ts_millis=at,
        attributes=present(
            {
                "spark.deadline.subject": subject,
                "spark.deadline.rule": work.rule,
                "spark.status.old": old,
                "spark.status.new": "OVERDUE" if edge.level else "ON_TIME",
                "spark.deadline.limit_ms": edge.limit,
                "spark.deadline.elapsed_ms": elapsed,
                **work.attributes,
                **about,
            }
        ),
    )
