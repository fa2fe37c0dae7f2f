"""Display of an event as a line of text and as HTML in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from datetime import datetime

from spark_events.event.text import on_one_line, plain, visible

__all__ = ["as_card", "as_line", "moment"]

#: Colour of a severity, readable on light and dark backgrounds.
_COLOURS = {"TRACE": "#808080", "DEBUG": "#808080", "WARN": "#b07800", "ERROR": "#d03030", "FATAL": "#b000b0"}
_OTHER = "#2878c8"
_CELL = "text-align:left;vertical-align:top;padding:0 1em 0 0"


def moment(millis: int, time_format: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format milliseconds since the epoch as local time; return the number if the year is out of range."""
    try:
        return datetime.fromtimestamp(millis / 1000).strftime(time_format)
    except (ValueError, OverflowError, OSError):
        return str(millis)


def as_line(millis: int, severity: str, name: str, body: str) -> str:
    """Return time, severity, name and body in one line, without control characters."""
    return f"{moment(millis)} {severity} {on_one_line(f'{name}: {body}')}"


def as_card(millis: int, severity: str, name: str, body: str, details: Mapping[str, object]) -> str:
    """Return self-contained HTML: a headline with collapsible details.

    All text is escaped, because it comes from jobs.
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
