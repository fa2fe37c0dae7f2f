"""Tables in SQLAlchemy, their version and upgrades, the insert statement and its errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Index,
    MetaData,
    SmallInteger,
    Table,
    Text,
    exc,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import JSON

from spark_events.errors import PermanentError
from spark_events.reporters.database import views

METADATA = MetaData()

#: One row per event.
EVENTS = Table(
    "spark_events",
    METADATA,
    Column("event_id", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("observed_ts_millis", BigInteger, nullable=False),
    # The same time in UTC; NULL if the year is out of range.
    Column("observed_at", DateTime(timezone=True)),
    Column("name", Text, nullable=False),
    Column("class_scope", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("severity_number", SmallInteger, nullable=False),
    Column("body", Text, nullable=False),
    # Copies of attributes, for views and indexes.
    Column("app_id", Text),
    Column("app_attempt_id", Text),
    Column("app_name", Text),
    Column("query_id", Text),
    Column("query_run_id", Text),
    Column("query_name", Text),
    Column("entity", Text),
    Column("status", Text),
    Column("error_type", Text),
    Column("batch_id", BigInteger),
    Column("batches", BigInteger),
    Column("input_rows", BigInteger),
    Column("duration_ms", BigInteger),
    Column("attributes", JSON().with_variant(JSONB(), "postgresql"), nullable=False),
    Index("spark_events_by_time", "observed_ts_millis"),
    Index("spark_events_by_name", "name", "observed_ts_millis"),
    Index("spark_events_by_application", "app_id", "observed_ts_millis"),
)

#: Commit duration in milliseconds above which a query is slow; ``*`` is the default. Users edit this table.
THRESHOLDS = Table(
    "spark_events_thresholds",
    METADATA,
    Column("query_name", Text, primary_key=True),
    Column("slow_commit_ms", BigInteger, nullable=False),
)

#: One row: the schema version.
SCHEMA = Table("spark_events_schema", METADATA, Column("version", BigInteger, nullable=False))


#: SQLSTATE prefixes that mean a bad row: program limit exceeded (text too long), exception raised by a trigger.
_REFUSALS = ("54", "P0001")
#: In characters. PostgreSQL quotes the whole refused row.
_MOST_REASON = 500


@functools.cache
def insert(dialect: str) -> Any:
    """Return the statement that inserts events and skips duplicates, for ``postgresql`` or ``sqlite``.

    It names no conflict target, because PostgreSQL would then need the SELECT privilege, no row-level security, and a
    unique index on ``event_id`` alone. So a violation of a unique constraint that the owner has added counts as a
    duplicate.
    """
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return make(EVENTS).on_conflict_do_nothing()


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
    line = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {line[:_MOST_REASON]}"


Step: TypeAlias = Callable[[Connection], None]

#: Key of the advisory lock, the same in every version: the letters "sparkevt" as a number.
_LOCK = 0x737061726B657674
_SLOW_COMMIT_MS = 60_000


def _first(connection: Connection) -> None:
    METADATA.create_all(connection, [EVENTS], checkfirst=False)
    # If only the events table was dropped, keep the thresholds that the user has set.
    if not inspect(connection).has_table(THRESHOLDS.name):
        METADATA.create_all(connection, [THRESHOLDS], checkfirst=False)
        connection.execute(THRESHOLDS.insert(), {"query_name": "*", "slow_commit_ms": _SLOW_COMMIT_MS})


#: Upgrade steps: ``STEPS[n]`` leads from version n to n + 1. Never change a released step. Only the first may use
#: ``tables``, because that module describes the newest version.
STEPS: Sequence[Step] = (_first,)


def version(connection: Connection) -> int:
    """Return the version of the existing tables, or 0 if there are none."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    found = connection.execute(select(SCHEMA.c.version)).scalar()
    return 0 if found is None else int(found)


def prepare(connection: Connection, steps: Sequence[Step] = STEPS) -> None:
    """Create or upgrade the tables and views within a transaction.

    An up-to-date schema needs no write, and so no permission to write. If several drivers start at the same time, one
    upgrades and the others wait. If the events table was dropped, it is created again.

    Raises:
        PermanentError: a newer spark-events has upgraded the tables.
    """
    if _is_done(connection, version(connection), steps):
        return
    if connection.dialect.name == "postgresql":
        # SQLite needs no lock of ours: BEGIN IMMEDIATE already excludes other writers.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    found = version(connection)
    if _is_done(connection, found, steps):
        return
    if not _has_events(connection):
        found = 0
    if found == 0:
        METADATA.create_all(connection, [SCHEMA], checkfirst=True)
        connection.execute(SCHEMA.delete())
        connection.execute(SCHEMA.insert(), {"version": 0})
    for name in reversed(views.NAMES):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
    for step in steps[found:]:
        step(connection)
    for definition in views.definitions(connection.dialect.name):
        # exec_driver_sql passes no parameters, so percent signs in the view are safe.
        connection.exec_driver_sql(definition)
    connection.execute(SCHEMA.update(), {"version": len(steps)})


def _is_done(connection: Connection, found: int, steps: Sequence[Step]) -> bool:
    if found > len(steps):
        raise PermanentError(
            f"the database's tables have version {found}, this spark-events supports {len(steps)}:"
            " a newer spark-events has upgraded them; upgrade this one, or use another database"
        )
    return found == len(steps) and _has_events(connection)


def _has_events(connection: Connection) -> bool:
    return inspect(connection).has_table(EVENTS.name)
