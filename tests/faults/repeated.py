"""Read the events that killed processes wrote, drop incomplete lines, and compare repeated events."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["Event", "facts", "whole_lines"]

Event = dict[str, Any]


def whole_lines(data: bytes, deaths: int) -> list[Event]:
    """Return the events of all complete lines. Each incomplete line must occur again later as a complete line.

    Each killed process may write one incomplete line, because the kernel may end a write at a page boundary.
    """
    whole: list[Event] = []
    behind: list[bytes] = []
    torn = []
    for line in reversed(data.splitlines()):
        try:
            whole.append(json.loads(line))
            behind.append(line)
        except ValueError:
            # Compare the lines up to the sequence number, because the number of a repeated event may differ.
            begins = line.partition(b',"sequence":')[0]
            assert any(other.startswith(begins) for other in behind), (
                f"partial line without a later complete one: {line!r}"
            )
            torn.append(line)
    assert len(torn) <= deaths, torn
    return whole[::-1]


def facts(events: Iterable[Event]) -> dict[str, Event]:
    """Map ids to events, in the order of their first delivery.

    Repeated events may differ only in their sequence number.
    """
    first: dict[str, Event] = {}
    for event in events:
        known = first.setdefault(event["event_id"], event)
        assert {**known, "sequence": 0} == {**event, "sequence": 0}
    return first
