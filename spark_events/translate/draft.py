"""Drafts: incomplete events from the state machines; the translator completes them."""

from __future__ import annotations

import msgspec

from spark_events.event import AttributeValue, Severity
from spark_events.records.query_progress import iso_millis

__all__ = ["Draft", "capitalized", "counted", "iso_millis", "present"]


# gc=False: drafts are never part of a reference cycle.
class Draft(msgspec.Struct, gc=False):
    """An event without the attributes that all events of the application share.

    Attributes:
        key: identifies the fact within the application. The event id is a hash of the key, so a fact that is reported
            twice, after a crash or by a replay, has the same event id both times.
        body: one sentence, which may begin with a small letter; see :func:`~spark_events.translate.applications.named`.
        names_application: whether the body of the event begins with the application's name; False for the program's
            own events, whose bodies are not changed.
        culprit: key of the failure event whose incident the event belongs to, if it is not the event's own.
        is_routine: whether the event belongs to no incident and counts in no summary.
    """

    name: str
    class_scope: str
    key: tuple[str | int, ...]
    body: str
    severity: Severity
    observed_ts_millis: int
    attributes: dict[str, AttributeValue]
    names_application: bool = True
    is_routine: bool = False
    culprit: tuple[str | int, ...] | None = None


def capitalized(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def present(attributes: dict[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    """Return a copy of the attributes without those whose value is None."""
    return {key: value for key, value in attributes.items() if value is not None}


def counted(number: int, noun: str, verb: tuple[str, str] | None = None) -> str:
    """Return a count with its noun, such as ``1 row`` or ``1,204 rows``.

    If ``verb`` (singular, plural) is set, the result also contains the form that agrees with the count: ``1 row was``
    for ``counted(1, "row", ("was", "were"))``.
    """
    phrase = f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
    return phrase if verb is None else f"{phrase} {verb[number != 1]}"
