"""What was told by processes that were killed: lines that a death has torn, and facts that are told more than once."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["Event", "facts", "whole_lines"]

Event = dict[str, Any]


def whole_lines(data: bytes, deaths: int) -> list[Event]:
    """The events of a file, but those that a death has torn, one at most for each: they stand whole behind themselves.

    The kernel may end a write at a page's end when its process is killed.
    """
    whole: list[Event] = []
    behind: list[bytes] = []
    torn = []
    for line in reversed(data.splitlines()):
        try:
            whole.append(json.loads(line))
            behind.append(line)
        except ValueError:
            # What comes again may have another sequence number, which stands behind the event's id.
            begins = line.partition(b',"sequence":')[0]
            assert any(other.startswith(begins) for other in behind), f"torn, and not told again: {line!r}"
            torn.append(line)
    assert len(torn) <= deaths, torn
    return whole[::-1]


def facts(events: Iterable[Event]) -> dict[str, Event]:
    """By their identifiers, in the order of their first telling; what is told twice is the same but its number."""
    first: dict[str, Event] = {}
    for event in events:
        known = first.setdefault(event["event_id"], event)
        assert {**known, "sequence": 0} == {**event, "sequence": 0}
    return first
