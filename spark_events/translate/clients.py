"""Clients of a shared server: a Spark Connect server or a Thrift server. Events of their work name user and session."""

from __future__ import annotations

from collections.abc import Mapping

from spark_events.event import AttributeValue

__all__ = ["client_attributes", "client_of", "with_client"]

_USERS = ("spark.connect.user_id", "spark.thriftserver.user")
_PREFIXES = ("spark.connect.", "spark.thriftserver.")
_SESSIONS = ("spark.connect.session_id", "spark.thriftserver.session_id")


def client_of(attributes: Mapping[str, object]) -> str:
    """Return user and session of the client that the attributes of its work name; "" without a client.

    >>> client_of({"spark.connect.user_id": "ada", "spark.connect.session_id": "839c8b37-e5f1"})
    "user 'ada', session 839c8b37"
    """
    user, session = (next((attributes[n] for n in names if attributes.get(n)), None) for names in (_USERS, _SESSIONS))
    if user is None and session is None:
        return ""
    return ", ".join([f"user '{user}'"] * (user is not None) + [f"session {str(session)[:8]}"] * (session is not None))


def client_attributes(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return those of the attributes that name the client, its session and its operation."""
    return {name: value for name, value in attributes.items() if name.startswith(_PREFIXES)}


def with_client(name: str, attributes: Mapping[str, object]) -> str:
    """Return the name of work, as an event's body contains it, with its client in brackets.

    The name is unchanged without a client, and if it contains the client, like the descriptions of Spark Connect.
    """
    client = client_of(attributes)
    return f"{name} ({client})" if client and client not in name else name
