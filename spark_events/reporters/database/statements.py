"""The insert statement, and the classification of database errors."""

from __future__ import annotations

import functools
from typing import Any

from sqlalchemy import Connection, exc, text
from sqlalchemy.dialects import postgresql, sqlite

from spark_events.reporters.database.tables import EVENTS

__all__ = ["insert", "is_about_values", "may_name_key", "reason"]

#: SQLSTATE prefixes that mean a bad row: program limit exceeded (text too long), exception raised by a trigger.
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
#: In characters. PostgreSQL quotes the whole refused row.
_MOST_REASON = 500


@functools.cache
def insert(dialect: str, *, names_key: bool = True) -> Any:
    """Return the statement that inserts events and skips duplicates.

    Args:
        dialect: ``postgresql`` or ``sqlite``.
        names_key: name ``event_id`` as the conflict target, so that a violation of another constraint is an error.
            Without the target, every violation counts as a duplicate.
    """
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return make(EVENTS).on_conflict_do_nothing(index_elements=[EVENTS.c.event_id] if names_key else None)


def may_name_key(connection: Connection) -> bool:
    """Return whether a statement may name ``event_id`` as its conflict target.

    PostgreSQL requires the SELECT privilege on the column, no row-level security, and a unique index on this column
    alone, which a partitioned table does not have.
    """
    if connection.dialect.name != "postgresql":
        return True
    return bool(connection.execute(_MAY_NAME_KEY, {"events": EVENTS.name, "key": EVENTS.c.event_id.name}).scalar())


def is_about_values(error: Exception) -> bool:
    """Return whether the values of a row caused the error, so that a retry cannot help."""
    if isinstance(error, (exc.DataError, exc.IntegrityError)):
        return True
    if isinstance(error, exc.DBAPIError):
        return str(getattr(error.orig, "sqlstate", None) or "").startswith(_REFUSALS)
    # Values that SQLAlchemy or the driver cannot convert to parameters.
    return isinstance(error, (exc.StatementError, ValueError, OverflowError))


def reason(error: Exception) -> str:
    """Describe an error in one line, without the statement and its values."""
    cause = error.orig if isinstance(error, exc.StatementError) and error.orig is not None else error
    said = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {said[:_MOST_REASON]}"
