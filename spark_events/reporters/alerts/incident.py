"""What an event states about its incident: role, keys, environment and tags."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from spark_events.event import AttributeValue, Event

__all__ = [
    "ENVIRONMENT",
    "TAG",
    "about",
    "application_of",
    "client_of",
    "identity_of",
    "is_alarm",
    "is_alert",
    "is_detail",
    "key_of",
    "kind_of",
    "member_of",
    "more_keys_of",
]

ENVIRONMENT = "deployment.environment.name"
#: Prefix of the attributes that contain the tags.
TAG = "spark.tag."
_NAMES = ("spark.app.name", "spark.app.id")
#: Client of a shared server, for the routing of alerts.
_CLIENT = {
    "spark.connect.user_id": "user",
    "spark.connect.session_id": "session",
    "spark.thriftserver.user": "user",
    "spark.thriftserver.session_id": "session",
}


def is_alert(event: Event) -> bool:
    """Return whether the event opens or closes an incident."""
    return event.attributes.get("incident.role") in ("alarm", "recovery")


def is_alarm(event: Event) -> bool:
    """Return whether the event opens an incident."""
    return event.attributes.get("incident.role") == "alarm"


def is_detail(event: Event) -> bool:
    """Return whether the event reports a failure that another event reports as an alarm."""
    return event.attributes.get("incident.role") in ("member", "consequence")


def member_of(event: Event) -> str:
    """Return the key of the incident that a member belongs to; otherwise an empty string."""
    return str(event.attributes.get("incident.key", "")) if event.attributes.get("incident.role") == "member" else ""


def key_of(event: Event) -> str:
    """Return the key of the event's incident.

    Events without an incident, for example those of the user's program, share one key per environment, application and
    event name.
    """
    key = str(event.attributes.get("incident.key", ""))
    if key and is_alert(event):
        return key
    environment = event.attributes.get(ENVIRONMENT)
    parts = [application_of(event.attributes) or "spark", event.name]
    return "/".join([f"environment={quote(str(environment), safe='')}"] * (environment is not None) + parts)


def more_keys_of(event: Event) -> tuple[str, ...]:
    """Return the further keys that a recovery closes."""
    try:
        return tuple(msgspec.json.decode(str(event.attributes.get("incident.more_keys") or "[]"), type=list[str]))
    except msgspec.DecodeError:
        # An event of the user's program may contain any value.
        return ()


def kind_of(key: str) -> str:
    """Return the kind of an incident, for example ``failure`` or ``overdue``.

    >>> kind_of("environment=prod/clickstream/query=clicks/overdue")
    'overdue'
    """
    return key.rpartition("/")[2]


def about(event: Event) -> str:
    """Return the names of the application and the query that the event is about."""
    keys = ("spark.app.name", "spark.streaming.query.name")
    return " / ".join(str(event.attributes[key]) for key in keys if key in event.attributes)


def identity_of(event: Event) -> dict[str, str]:
    """Return the attributes that distinguish the alerts of several applications, environments and teams."""
    return {
        name: str(value)
        for name, value in sorted(event.attributes.items())
        if name in (*_NAMES, *_CLIENT, ENVIRONMENT) or name.startswith(TAG)
    }


def application_of(attributes: Mapping[str, AttributeValue]) -> str:
    """Return the name of the application, otherwise its id, otherwise an empty string."""
    return str(next((attributes[name] for name in _NAMES if attributes.get(name)), ""))


def client_of(attributes: Mapping[str, AttributeValue]) -> dict[str, str]:
    """Return the user and the session of a shared server's client, as labels; empty without a client."""
    return {label: str(attributes[name]) for name, label in _CLIENT.items() if name in attributes}
