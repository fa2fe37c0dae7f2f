"""Overdue deadlines; each change of their status is reported once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from spark_events.event import AttributeValue, Severity
from spark_events.translate.draft import Draft, lasting, present

__all__ = ["Edges", "Work"]

#: An overdue deadline becomes an ERROR at this multiple of its limit.
_FACTOR = 3
_LATE = 1
_VERY_LATE = 2
#: Subject and class scope of the events of each rule.
_RULES = {
    "batch": ("batch", "spark.streaming.query"),
    "progress": ("query", "spark.streaming.query"),
    "lag": ("query", "spark.streaming.query"),
    "resources": ("stage", "spark.stage"),
    "job": ("job", "spark.job"),
    "application": ("application", "spark.application"),
}


class Work(NamedTuple):
    """Work with a deadline.

    Attributes:
        name: identifies the work while it runs.
        rule: the last part of the rule's key.
        key: identifies the deadline in the application, in this run and in a replay.
        attributes: event attributes that describe the work.
    """

    name: str
    rule: str
    key: tuple[str | int, ...]
    attributes: dict[str, AttributeValue | None]


class _Edge(msgspec.Struct, array_like=True):
    """Overdue deadline: level reported so far, start of the work, limit, key of the events."""

    level: int
    since: int
    limit: int
    key: list[str | int]


class Edges:
    """Overdue deadlines of an application, by name."""

    def __init__(self) -> None:
        self._open: dict[str, _Edge] = {}

    def dump(self) -> str:
        """Return all overdue deadlines as a string, which a restarted sidecar can load."""
        return msgspec.json.encode(self._open).decode()

    def load(self, text: str) -> None:
        """Load the overdue deadlines that the preceding sidecar reported."""
        self._open = msgspec.json.decode(text or "{}", type=dict[str, _Edge])

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
            yield _draft(edge, work, "ON_TIME", since + limit, Severity.WARN, sentence, details)
        if edge.level == _LATE and now - edge.since >= _FACTOR * edge.limit:
            edge.level = _VERY_LATE
            at = edge.since + _FACTOR * edge.limit
            yield _draft(edge, work, "OVERDUE", at, Severity.ERROR, sentence, details)

    def close(self, work: Work, now: int, sentence: str, details: str = "") -> Iterator[Draft]:
        """Yield the recovery event of an overdue deadline; nothing if the deadline was on time.

        In the body, the details replace the limit.
        """
        edge = self._open.pop(work.name, None)
        if edge is not None:
            edge.level = 0
            yield _draft(edge, work, "OVERDUE", now, Severity.INFO, sentence, details)

    def forget(self, name: str) -> None:
        """Remove a deadline whose work is unknown; emit no event."""
        self._open.pop(name, None)


def _draft(
    edge: _Edge,
    work: Work,
    old: str,
    at: int,
    severity: Severity,
    sentence: str,
    details: str,
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
            }
        ),
    )
