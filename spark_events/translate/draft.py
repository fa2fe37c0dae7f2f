"""What a state machine says has happened, before it becomes an Event of this application."""

from __future__ import annotations

from datetime import datetime, timezone

import msgspec

from spark_events.event import AttributeValue, Severity

__all__ = ["Draft", "counted", "iso_millis", "present"]


# No draft is part of a cycle: the collector need not look for one.
class Draft(msgspec.Struct, gc=False):
    """An event without what every event of the application has.

    Attributes:
        key: what makes this fact this fact and no other, within the application. The event's
            identifier is made of it, so a fact that is told twice (after a crash, or by a replay) has
            the same identifier both times.
    """

    name: str
    class_scope: str
    key: tuple[str | int, ...]
    body: str
    severity: Severity
    observed_ts_millis: int
    attributes: dict[str, AttributeValue]


def present(attributes: dict[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """The attributes that are known."""
    return {key: value for key, value in attributes.items() if value is not None}


def counted(number: int, noun: str, verb: tuple[str, str] | None = None) -> str:
    """Return ``1 row`` or ``1,204 rows``, with a verb of the same number: ``counted(1, "row", ("was", "were"))``."""
    words = f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
    return words if verb is None else f"{words} {verb[number != 1]}"


def iso_millis(timestamp: str, otherwise: int) -> int:
    """Spark's ISO-8601 timestamps (``2026-01-31T10:00:00.000Z``) as milliseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    except ValueError:
        return otherwise
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)
