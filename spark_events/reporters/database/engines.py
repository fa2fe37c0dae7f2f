"""How SQLAlchemy is to talk to each database."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from spark_events.config.kinds import placed
from spark_events.reporters.database.config import DatabaseConfig
from spark_events.reporters.extras import load_extra

__all__ = ["create"]


def create(config: DatabaseConfig) -> Engine:
    """An engine of one connection, which is looked at before each use and made anew when it is broken.

    Raises:
        MissingExtraError: PostgreSQL's driver is not installed.
        ValueError: the URL is none; the message does not quote it.
    """
    try:
        url = make_url(config.url.reveal())
    except (ArgumentError, ValueError):
        # The library's own message may quote what is between the colons, and that may be a password.
        raise ValueError("url: it cannot be read; characters such as @ : / in a password must be escaped") from None
    if config.password is not None:
        url = url.set(password=config.password.reveal())
    make = _sqlite if url.get_backend_name() == "sqlite" else _postgresql
    return make(url, config.timeout)


def _create(url: Any, arguments: dict[str, Any]) -> Engine:
    return create_engine(
        url,
        pool_size=1,
        max_overflow=0,
        pool_pre_ping=True,
        hide_parameters=True,
        # The rows have attributes as JSON already.
        json_serializer=lambda text: text,
        connect_args={key: value for key, value in arguments.items() if key not in url.query},
    )


def _sqlite(url: Any, timeout: float) -> Engine:
    if url.database and not url.database.startswith((":memory:", "file:")):
        # Somebody else's code may change the directory that it is relative to.
        url = url.set(database=placed(url.database))
    # Half of the time is for another driver's transaction, half is left for our own.
    engine = _create(url, {"timeout": timeout / 2, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        # Else Python's driver begins transactions of its own, later than we say.
        connection.isolation_level = None
        # Who reads does not hold up who writes. Where it cannot be had (read-only, no shared memory) it goes without.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that would write only later could find, then, that another one has written: that is an error.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgresql(url: Any, timeout: float) -> Engine:
    load_extra("psycopg", "database")
    seconds = max(2, math.floor(timeout / 2))
    engine = _create(
        url,
        {
            "application_name": "spark-events",
            # Not the database's: of one that has none (SQL_ASCII), texts would come back as bytes.
            "client_encoding": "utf8",
            "connect_timeout": seconds,
            "keepalives_idle": seconds,
            "tcp_user_timeout": seconds * 1000,
        },
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # For this transaction only: behind a connection pooler, the next one may be somebody else's.
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(timeout * 1000))}")

    return engine
