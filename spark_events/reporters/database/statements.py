"""The one statement that events need, and what the errors of databases mean."""

from __future__ import annotations

import functools
from typing import Any

from sqlalchemy import Connection, exc, text
from sqlalchemy.dialects import postgresql, sqlite

from spark_events.reporters.database.tables import EVENTS

__all__ = ["insert", "is_about_values", "may_read", "reason"]

#: SQLSTATE: "program limit exceeded", a text that is too long for PostgreSQL say.
_TOO_LARGE = "54"
#: Characters; PostgreSQL quotes the whole row that it refuses.
_MOST_REASON = 500


@functools.cache
def insert(dialect: str, *, may_read: bool = True) -> Any:
    """Inserts events that are not there yet.

    What another rule of the table refuses, one that somebody has added, is an error. Only where PostgreSQL allows
    nothing but to insert (``may_read`` is False) it cannot be told from an event that is there: to name the key is to
    read it.
    """
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return make(EVENTS).on_conflict_do_nothing(index_elements=[EVENTS.c.event_id] if may_read else None)


def may_read(connection: Connection) -> bool:
    """Whether the key may be read by who is connected."""
    if connection.dialect.name != "postgresql":
        return True
    asked = text("SELECT has_column_privilege(:events, :key, 'SELECT')")
    return bool(connection.execute(asked, {"events": EVENTS.name, "key": EVENTS.c.event_id.name}).scalar())


def is_about_values(error: Exception) -> bool:
    """Whether it is the values of a row that are wrong, so that trying again cannot help."""
    if isinstance(error, (exc.DataError, exc.IntegrityError)):
        return True
    if isinstance(error, exc.DBAPIError):
        return str(getattr(error.orig, "sqlstate", None) or "").startswith(_TOO_LARGE)
    # What a driver cannot even turn into a parameter: SQLAlchemy's own, or what Python says.
    return isinstance(error, (exc.StatementError, ValueError, OverflowError))


def reason(error: Exception) -> str:
    """What went wrong, in one line, without the statement and its values."""
    cause = error.orig if isinstance(error, exc.StatementError) and error.orig is not None else error
    said = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {said[:_MOST_REASON]}"
