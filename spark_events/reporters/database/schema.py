"""Which version of the tables a database has, and how it gets to ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from sqlalchemy import Connection, inspect, select, text

from spark_events.errors import PermanentError
from spark_events.reporters.database import views
from spark_events.reporters.database.tables import EVENTS, METADATA, SCHEMA, THRESHOLDS

__all__ = ["STEPS", "Step", "prepare", "version"]

Step: TypeAlias = Callable[[Connection], None]

#: Drivers of any version must agree on it: the letters of "sparkevt" as a number.
_LOCK = 0x737061726B657674
_SLOW_COMMIT_MS = 60_000


def _first(connection: Connection) -> None:
    METADATA.create_all(connection, [EVENTS], checkfirst=False)
    # Where somebody has dropped the events alone, it is there, with what was set in it.
    if not inspect(connection).has_table(THRESHOLDS.name):
        METADATA.create_all(connection, [THRESHOLDS], checkfirst=False)
        connection.execute(THRESHOLDS.insert(), {"query_name": "*", "slow_commit_ms": _SLOW_COMMIT_MS})


#: What leads from each version to the next; the first leads from nothing to version 1. A step, once released, is
#: never changed: it says what it does to the tables of its time, so only the first may use what ``tables`` says now.
STEPS: Sequence[Step] = (_first,)


def version(connection: Connection) -> int:
    """The version of the tables that are there; 0 where there are none."""
    if not inspect(connection).has_table(SCHEMA.name):
        return 0
    found = connection.execute(select(SCHEMA.c.version)).scalar()
    return 0 if found is None else int(found)


def prepare(connection: Connection, steps: Sequence[Step] = STEPS) -> None:
    """Makes the tables and views, or brings them from an older version to this one, within a transaction.

    Who drops the table of events wants to begin anew: it is made again, whatever version is said to be there.

    Nothing is written, and so no right to do so is needed, where they are as they should be. Of several drivers that
    come at the same time one does it, the others wait.

    Raises:
        PermanentError: a newer spark-events has been here.
    """
    if _is_done(connection, version(connection), steps):
        return
    if connection.dialect.name == "postgresql":
        # SQLite's transactions lock others out by themselves.
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
        # Not as a statement with parameters: the driver would look for them in its percent signs.
        connection.exec_driver_sql(definition)
    connection.execute(SCHEMA.update(), {"version": len(steps)})


def _is_done(connection: Connection, found: int, steps: Sequence[Step]) -> bool:
    if found > len(steps):
        raise PermanentError(
            f"the database's tables have version {found}, this spark-events knows {len(steps)}:"
            " a newer one has been here; upgrade this one, or give it a database of its own"
        )
    return found == len(steps) and _has_events(connection)


def _has_events(connection: Connection) -> bool:
    return inspect(connection).has_table(EVENTS.name)
