"""Tables in SQLAlchemy: version, upgrades, the insert statement and its errors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

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
    and_,
    exc,
    exists,
    func,
    inspect,
    not_,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import JSON

from spark_events.errors import PermanentError
from spark_events.sql import definitions
from spark_events.sql.run_views import STATUS_OF_RUNS

METADATA = MetaData()


def _partial(name: str, columns: Sequence[str], condition: str) -> Index:
    return Index(name, *columns, postgresql_where=text(condition), sqlite_where=text(condition))


#: One row per event.
EVENTS = Table(
    "spark_events",
    METADATA,
    Column("event_id", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("observed_ts_millis", BigInteger, nullable=False),
    # ``observed_ts_millis`` as a time in UTC; NULL if the year is out of range.
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
    # These partial indexes cover only the rows that the views read, not the numerous commits.
    _partial("spark_events_by_run", ("query_run_id", "observed_ts_millis"), "query_run_id IS NOT NULL"),
    _partial("spark_events_of_runs", ("entity", "app_id"), STATUS_OF_RUNS),
    _partial("spark_events_of_severity", ("severity_number", "name", "observed_ts_millis"), "severity_number >= 13"),
)

#: Table with one row: the schema version.
SCHEMA = Table("spark_events_schema", METADATA, Column("version", BigInteger, nullable=False))


#: SQLSTATE prefixes of errors that a row causes: program limit exceeded (string too long), and exceptions raised by a
#: trigger.
_REFUSALS = ("54", "P0001")
#: Maximum length of an error message, in characters, because PostgreSQL quotes the whole refused row.
_MOST_REASON = 500


@functools.cache
def insert(dialect: str) -> Any:
    """Return the statement that inserts events and skips duplicates, for ``postgresql`` or ``sqlite``.

    The statement has no conflict target, because PostgreSQL would otherwise require the SELECT privilege, no row-level
    security, and a unique index on ``event_id`` alone. As a result, a row counts as a duplicate if it violates any
    unique constraint, even one that the table's owner has added.
    """
    make = postgresql.insert if dialect == "postgresql" else sqlite.insert
    return make(EVENTS).on_conflict_do_nothing()


#: Maximum number of rows per deletion, so that a deletion completes within the timeout of a statement.
MOST_DELETED = 5_000


def delete_older(connection: Connection, before: int) -> int:
    """Delete at most :data:`MOST_DELETED` events older than ``before``, in milliseconds; return their number.

    Start events of applications that have later events are kept, so that the views can compute the duration of the run.
    """
    old, later = EVENTS.alias("old"), EVENTS.alias("later")
    is_alive = exists().where(later.c.app_id == old.c.app_id, later.c.observed_ts_millis >= before)
    is_status = and_(old.c.name == "JobStatusChangeEvent", old.c.entity.in_(("application", "query")))
    chosen = select(old.c.event_id).where(old.c.observed_ts_millis < before, not_(and_(is_status, is_alive)))
    oldest = chosen.order_by(old.c.observed_ts_millis).limit(MOST_DELETED)
    return connection.execute(EVENTS.delete().where(EVENTS.c.event_id.in_(oldest))).rowcount


def newest(connection: Connection) -> int | None:
    """Return the time of the newest event, in milliseconds since the epoch; None without events."""
    return connection.execute(select(func.max(EVENTS.c.observed_ts_millis))).scalar()


def server_time(connection: Connection) -> float | None:
    """Return the server's clock in seconds since the epoch; None for SQLite, which has no server."""
    if connection.dialect.name != "postgresql":
        return None
    return float(connection.execute(text("SELECT extract(epoch FROM now())")).scalar_one())


def is_about_values(error: Exception) -> bool:
    """Return whether a row's values caused the error, in which case a retry cannot help."""
    if isinstance(error, (exc.DataError, exc.IntegrityError)):
        return True
    if isinstance(error, exc.DBAPIError):
        return str(getattr(error.orig, "sqlstate", None) or "").startswith(_REFUSALS)
    # SQLAlchemy or the database driver cannot convert a value to a parameter.
    return isinstance(error, (exc.StatementError, ValueError, OverflowError))


def reason(error: Exception) -> str:
    """Describe an error in one line, without the statement and its values."""
    cause = error.orig if isinstance(error, exc.StatementError) and error.orig is not None else error
    line = " ".join(str(cause).split())
    return f"{type(cause).__name__}: {line[:_MOST_REASON]}"


#: Key of the advisory lock, the same in every version: the letters "sparkevt" as a number.
_LOCK = 0x737061726B657674


#: Version of the tables and views. Views are recreated in an upgrade; a table that changes needs a step in
#: :func:`prepare`.
VERSION = 9
#: Oldest version with the same tables.
_OLDEST = 2


def version(connection: Connection) -> int:
    """Return the version of the existing tables, or 0 if there are none."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    found = connection.execute(select(SCHEMA.c.version)).scalar()
    return 0 if found is None else int(found)


def prepare(connection: Connection) -> None:
    """Create or upgrade the tables and views within a transaction.

    An up-to-date schema is not changed, so the user needs no permission to change it. If several drivers start at the
    same time, one driver upgrades the schema and the other drivers wait. If the events table was dropped, it is created
    again.

    Raises:
        PermanentError: a newer spark-events has upgraded the tables, or their version is too old.
    """
    if _is_done(connection, version(connection)):
        return
    if connection.dialect.name == "postgresql":
        # SQLite needs no lock here, because BEGIN IMMEDIATE already excludes other writers.
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    if _is_done(connection, version(connection)):
        return
    for name in reversed(definitions.NAMES):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
    METADATA.create_all(connection)
    connection.execute(SCHEMA.delete())
    connection.execute(SCHEMA.insert(), {"version": VERSION})
    for definition in definitions.views(connection.dialect.name):
        # View definitions must not contain a percent sign, because psycopg would treat it as a placeholder.
        connection.exec_driver_sql(definition)


def _is_done(connection: Connection, found: int) -> bool:
    has_events = inspect(connection).has_table(EVENTS.name)
    if has_events and 0 < found < _OLDEST:
        raise PermanentError(
            f"the tables in the database have version {found}, this release upgrades version {_OLDEST} and later: use "
            f"another database, or drop the table {EVENTS.name} with its views"
        )
    if found > VERSION:
        raise PermanentError(
            f"the tables in the database have version {found}, this release supports version {VERSION}: upgrade "
            f"spark-events, or use another database"
        )
    return found == VERSION and has_events
