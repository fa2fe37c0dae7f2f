"""Event with contents that destinations may reject or misinterpret."""

from __future__ import annotations

from collections.abc import Mapping

from spark_events import Event, Severity
from spark_events.event import Attributes, AttributeValue

__all__ = ["AWKWARD", "awkward_event"]

#: Characters with a special meaning in JSON, SQL, printf, C, HTML, shells, Slack and templates.
AWKWARD = (
    "line\nbreak \"quotes\" 'single' back\\slash \\u0000 nul:\0 tab\t emoji:🦊"
    " %s :name ; DROP TABLE spark_events -- <!channel> & {{x}} ${body}"
)


def awkward_event(
    attributes: Mapping[str, AttributeValue],
    *,
    name: str = "N",
    event_id: str = "i",
    observed_ts_millis: int = 2**63 - 1,
) -> Event:
    """Build an event whose body ends with a lone surrogate, which UTF-8 cannot represent."""
    return Event(
        name=name,
        class_scope="s",
        body=f"{AWKWARD}\ud800",
        severity=Severity.INFO,
        observed_ts_millis=observed_ts_millis,
        event_id=event_id,
        attributes=Attributes(attributes),
    )
