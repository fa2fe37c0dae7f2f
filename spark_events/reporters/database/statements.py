"""The one statement that events need, and what the errors of databases mean."""

from __future__ import annotations

import functools
from typing import Any

from sqlalchemy import Connection, exc, text
from sqlalchemy.dialects import postgresql, sqlite

from spark_events.reporters.database.tables import EVENTS

__all__ = ["insert", "is_about_values", "may_name_key", "reason"]

#: SQLSTATE: "program limit exceeded", a text that is too long for PostgreSQL say; what a trigger of somebody's raises.
_REFUSALS = ("54", "P0001")
_MAY_NAME_KEY = text(
    """
    SELECT has_column_privilege(:events, :key, 'SELECT') AND NOT row_security_active(:events) AND EXISTS (
      SELECT 1 FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
      WHERE indrelid = CAST(:events AS regclass) AND attname = :key
        AND indisunique AND indnkeyatts = 1 AND indpred IS NULL AND indexprs IS NULL AND indimmediate
    )
    """
)
#: Characters; PostgreSQL quotes the whole row that it refuses.
_MOST_REASON = 500


@functools.cache
def insert(dialect: str, *, names_key: bool = True) -> Any:
    """Inserts events that are not there yet.

    What another rule of the table refuses, one that somebody has added, is an error. Only where the key cannot be named
    it is not told from an event that is there.
    """
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return make(EVENTS).on_conflict_do_nothing(index_elements=[EVENTS.c.event_id] if names_key else None)


def may_name_key(connection: Connection) -> bool:
    """Whether a statement may say which key it means.

    In PostgreSQL that is to read it, for which a role may have no right, or only to rows of a policy; and there must be
    an index of it alone, which a table that somebody has partitioned does not have.
    """
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.execute(_MAY_NAME_KEY, {"events": EVENTS.name, "key": EVENTS.c.event_id.name}).scalar())


def is_about_values(error: Exception) -> bool:
    """Whether it is the values of a row that are wrong, so that trying again cannot help."""
    if isinstance(error, (exc.DataError, exc.IntegrityError)):
        return True
    if isinstance(error, exc.DBAPIError):
        return str(getattr(error.orig, "sqlstate", None) or "").startswith(_REFUSALS)
    # What a driver cannot even turn into a parameter: SQLAlchemy's own, or what Python says.
    return isinstance(error, (exc.StatementError, ValueError, OverflowError))


def reason(error: Exception) -> str:
    """What went wrong, in one line, without the statement and its values."""
    cause = error.orig if isinstance(error, exc.StatementError) and error.orig is not None else error
    said = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {said[:_MOST_REASON]}"
