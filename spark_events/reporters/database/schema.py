"""Schema version of the database, and its upgrades."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from sqlalchemy import Connection, inspect, select, text

from spark_events.errors import PermanentError
from spark_events.reporters.database import views
from spark_events.reporters.database.tables import EVENTS, METADATA, SCHEMA, THRESHOLDS

__all__ = ["STEPS", "Step", "prepare", "version"]

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
