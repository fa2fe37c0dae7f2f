"""Text of events: escaped for terminals and UTF-8, joined into one line, or formatted as HTML for notebooks."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_BREAKS = re.compile("[\t-\r\x85\u2028\u2029]+")
_RETURNS = re.compile("[\x0b-\r\x85\u2028\u2029]")
# Terminal control characters, bidirectional ("Trojan Source") and zero-width characters. Joiners are allowed, because
# emoji and some scripts need them.
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# JSON itself escapes the ASCII control characters except DEL.
_IN_JSON = re.compile(f"[\x85\u2028\u2029]|{_CONTROLS.pattern}")


def on_one_line(text: str) -> str:
    """Return the text on one line: breaks and tabs as spaces, other control characters escaped.

    >>> on_one_line("two\\nlines, \\u202etxt.exe")
    'two lines, \\\\u202etxt.exe'
    """
    return visible(_BREAKS.sub(" ", text))


def visible(text: str) -> str:
    """Escape control characters, including bidirectional characters, but not line breaks and tabs."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def for_terminal(text: str) -> str:
    """Escape control characters, but not line breaks and tabs; a terminal would go back at a carriage return.

    >>> for_terminal("real\\rfake\\x1b[2J\\n")
    'real fake\\\\x1b[2J\\n'
    """
    return visible(_RETURNS.sub(" ", text.replace("\r\n", "\n")))


def json_for_terminal(text: str) -> str:
    """Escape control characters in JSON; a JSON parser reads the same values.

    >>> json_for_terminal('{"name": "red\\x9b2J"}')
    '{"name": "red\\\\u009b2J"}'
    """
    return _IN_JSON.sub(lambda found: json.dumps(found[0])[1:-1], text)


def plain(value: str) -> str:
    """Return a plain str, without the lone surrogates that UTF-8 cannot encode."""
    return value.encode("utf-8", "replace").decode()


@lru_cache(maxsize=1024)
def snake_case(name: str) -> str:
    """Convert a camel-case name to snake case.

    >>> snake_case("triggerExecution")
    'trigger_execution'
    """
    return _WORD.sub("_", name).lower()


def text_of(thing: object, most: int) -> str:
    """Return at most ``most`` characters of the ``str`` of any object; never raise."""
    try:
        return plain(str(thing)[:most])
    except Exception as error:
        return f"(not printable: its __str__ raises {type(error).__name__})"


#: Colour for each severity, readable on light and dark backgrounds.
_COLOURS = {"TRACE": "#808080", "DEBUG": "#808080", "WARN": "#b07800", "ERROR": "#d03030", "FATAL": "#b000b0"}
_OTHER = "#2878c8"
_CELL = "text-align:left;vertical-align:top;padding:0 1em 0 0"


def moment(millis: int, time_format: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format milliseconds since the epoch as local time; return the number if the year is out of range."""
    try:
        return datetime.fromtimestamp(millis / 1000).astimezone().strftime(time_format)
    except (ValueError, OverflowError, OSError):
        return str(millis)


def utc(millis: int, time_format: str = "%Y-%m-%d %H:%M:%SZ") -> str:
    """Format milliseconds since the epoch in UTC; return the number if the year is out of range.

    >>> utc(1_769_853_620_000)
    '2026-01-31 10:00:20Z'
    """
    try:
        return (_EPOCH + timedelta(milliseconds=millis)).strftime(time_format)
    except OverflowError:
        return str(millis)


def ordinal(number: int) -> str:
    """Return a number as an ordinal.

    >>> ordinal(2), ordinal(11), ordinal(1023)
    ('2nd', '11th', '1,023rd')
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def rfc3339(millis: int) -> str:
    """Format milliseconds since the epoch in UTC; a time after the year 9999 becomes the last moment of 9999."""
    try:
        moment = _EPOCH + timedelta(milliseconds=millis)
    except OverflowError:
        moment = datetime.max.replace(tzinfo=timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_line(millis: int, severity: str, name: str, body: str) -> str:
    """Return time, severity, name and body in one line, without control characters."""
    return f"{moment(millis)} {severity} {on_one_line(f'{name}: {body}')}"


def as_card(millis: int, severity: str, name: str, body: str, details: Mapping[str, object]) -> str:
    """Return self-contained HTML: a headline with collapsible details.

    All text is escaped because it comes from users' jobs.
    """
    colour = _COLOURS.get(severity, _OTHER)
    rows = "".join(
        f'<tr><th style="{_CELL}">{_safe(key)}</th><td style="{_CELL};white-space:pre-wrap">{_safe(value)}</td></tr>'
        for key, value in details.items()
    )
    return (
        f'<div style="border-left:4px solid {colour};padding-left:.6em">'
        f'<span style="color:{colour};font-weight:bold">{_safe(severity)}</span> '
        f"<b>{_safe(name)}</b> <small>{_safe(moment(millis))}</small>"
        f'<div style="white-space:pre-wrap">{_safe(body)}</div>'
        f"<details><summary>{len(details)} details</summary><table>{rows}</table></details></div>"
    )


def _safe(value: object) -> str:
    return html.escape(visible(plain(str(value))))


def lasting(millis: int) -> str:
    """Format a duration in readable form: ``0.5 s``, ``60 s``, ``1 h 30 min``."""
    if millis < 10_000:
        return f"{millis / 1000:.1f}".removesuffix(".0") + " s"
    if millis < 120_000:
        return f"{millis // 1000} s"
    minutes = millis // 60_000
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24} d {hours % 24} h" if hours >= 48 else f"{hours} h {minutes} min"
