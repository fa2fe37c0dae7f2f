"""Times, durations and numbers as strings for sentences; times are in UTC."""

from __future__ import annotations

import itertools
import math
from datetime import datetime, timedelta, timezone

from spark_events.event.text import on_one_line

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))
_MOST_NAME = 60
_MOST_TEXT = 300


def when(millis: int) -> str:
    """Return a time in UTC.

    >>> when(1_769_853_620_000)
    '2026-01-31 10:00:20'
    """
    return (_EPOCH + timedelta(milliseconds=millis)).strftime("%Y-%m-%d %H:%M:%S")


def span(millis: float | None) -> str:
    """Return a duration in its two largest units.

    >>> span(7_380_000), span(1_250), span(31), span(None)
    ('2 h 3 min', '1.2 s', '31 ms', '–')
    """
    if millis is None or math.isnan(millis):
        return "–"
    if millis < 1000:
        return f"{millis:.0f} ms"
    if millis < 60_000:
        return f"{math.floor(millis / 100) / 10:g} s"
    (size, unit), (smaller, smaller_unit) = next(pair for pair in itertools.pairwise(_UNITS) if millis >= pair[0][0])
    rest = int(millis % size // smaller)
    return f"{int(millis // size)} {unit}" + (f" {rest} {smaller_unit}" if rest else "")


def percent(value: float | None) -> str:
    """Return a percentage as a string; values below 100 are not rounded up to 100.

    >>> percent(99.9999), percent(100.0), percent(None)
    ('99.99 %', '100 %', '–')
    """
    if value is None:
        return "–"
    return f"{math.floor(value * 100) / 100:g} %"


def counted(count: int, what: str, plural: str | None = None) -> str:
    """Return a number with its noun in singular or plural.

    >>> counted(1, "failure"), counted(1200, "failure")
    ('1 failure', '1,200 failures')
    """
    return f"{count:,} {what if count == 1 else plural or what + 's'}"


def shortened(text: str | None) -> str:
    """Return an event's text on one line, cut to a readable length."""
    line = on_one_line(text or "").strip()
    return line if len(line) <= _MOST_TEXT else f"{line[: _MOST_TEXT - 1]}…"


def typed(name: str, app_id: str | None) -> str:
    """Return the name of an application for a command, or its id if the terminal shows another or a cut name.

    Without an id, it is a pattern of the name. A name that begins with a hyphen would be an option.

    >>> typed("nightly", "app-1"), typed("-rf", "app-1"), typed("two\\nlines", None)
    ('nightly', 'app-1', 'two?lines')
    """
    if named(name) == name and not name.startswith("-"):
        return name
    return app_id or "".join("?" if one == "[" or on_one_line(one) != one else one for one in name)


def typed_key(key: str, identifier: str) -> str:
    """Return the key of an incident for a command, or the card's id if the key is shown otherwise or cut."""
    return key if shortened(key) == key and not key.startswith("-") else identifier


def named(text: str | None) -> str:
    """Return a name of an application or query on one line, cut so that a sentence stays readable."""
    line = shortened(text)
    return line if len(line) <= _MOST_NAME else f"{line[: _MOST_NAME - 1]}…"
