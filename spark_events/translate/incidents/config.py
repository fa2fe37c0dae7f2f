"""Settings of incidents, and of the links in failure events."""

from __future__ import annotations

import dataclasses
import string
from urllib.parse import urlsplit

from spark_events.config import Kind, duration, option

__all__ = ["URL", "IncidentConfig", "LinkConfig"]

#: Placeholders of the runbook template.
PLACEHOLDERS = ("app", "query", "group", "error_type", "fingerprint", "key")


def _url(value: str) -> str | None:
    if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).netloc):
        raise ValueError("not a URL")
    return value.rstrip("/") or None


def _template(value: str) -> str | None:
    for _, name, format_spec, conversion in string.Formatter().parse(value):
        if name is not None and (name not in PLACEHOLDERS or format_spec or conversion):
            raise ValueError(f"unknown placeholder {{{name}}}")
    return _url(value)


#: An http or https URL.
URL: Kind[str | None] = Kind("an http or https URL, or an empty value", _url)
_TEMPLATE: Kind[str | None] = Kind(
    f"an http or https URL, optionally with {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}, or an empty value",
    _template,
)


@dataclasses.dataclass(frozen=True, slots=True)
class IncidentConfig:
    """Settings below ``events.incident``."""

    settle: float = option(
        "settle",
        duration,
        2.0,
        doc="How long the events of a failure wait for a failure of the next higher level. 0s: not at all. Events "
        "never wait if Spark waits for a reporter.",
    )


@dataclasses.dataclass(frozen=True, slots=True)
class LinkConfig:
    """Settings below ``events.link``."""

    history: str | None = option(
        "history", URL, None, doc="Address of the history server; default: spark.yarn.historyServer.address."
    )
    runbook: str | None = option(
        "runbook",
        _TEMPLATE,
        None,
        doc="Address of the runbook. Placeholders: {app}, {query}, {group}, {error_type}, {fingerprint}, {key}.",
    )
