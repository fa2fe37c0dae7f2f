"""SQLAlchemy engines for SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from spark_events.config import scheme_and_host
from spark_events.config.value_kinds import placed
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.reporters.reporter import load_extra


def create(config: DatabaseConfig) -> Engine:
    """Create an engine with one connection; the connection is tested before each use.

    Raises:
        MissingExtraError: PostgreSQL's driver is not installed.
        ValueError: the URL is invalid; the message does not quote it.
    """
    try:
        url = make_url(config.url.reveal())
    except (ArgumentError, ValueError):
        # SQLAlchemy's own message may quote a password.
        raise ValueError("url: not a valid URL; percent-encode characters such as @ : / in a password") from None
    if config.password is not None:
        url = url.set(password=config.password.reveal())
    make = _sqlite if url.get_backend_name() == "sqlite" else _postgresql
    return make(url, config.timeout)


def where(url: URL) -> str:
    """Return the address of a database for messages: the path of a SQLite file, or scheme and host."""
    if url.get_backend_name() == "sqlite":
        return url.database or "SQLite in memory"
    return scheme_and_host(f"postgresql://{url.host or 'localhost'}{f':{url.port}' if url.port else ''}")


def _create(url: Any, arguments: dict[str, Any]) -> Engine:
    return create_engine(
        url,
        pool_size=1,
        max_overflow=0,
        pool_pre_ping=True,
        hide_parameters=True,
        # ``rows.row_of`` has already encoded the attributes as JSON.
        json_serializer=lambda text: text,
        connect_args={key: value for key, value in arguments.items() if key not in url.query},
    )


def _sqlite(url: Any, timeout: float) -> Engine:
    if url.database and not url.database.startswith((":memory:", "file:")):
        # Use an absolute path, because user code in this process may change the working directory later.
        url = url.set(database=placed(url.database))
    # Wait at most half of the timeout for another driver's transaction, so that the other half remains for this
    # transaction.
    engine = _create(url, {"timeout": timeout / 2, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:
        # Prevent Python's driver from beginning transactions implicitly.
        connection.isolation_level = None
        # With a write-ahead log, readers do not block the writer. Read-only files and some file systems do not support
        # this log.
        with contextlib.suppress(sqlite3.OperationalError):
            connection.execute("PRAGMA journal_mode = WAL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # Use BEGIN IMMEDIATE. A deferred transaction fails if another connection writes between its first read and its
        # first write.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _postgresql(url: Any, timeout: float) -> Engine:
    load_extra("psycopg", "database")
    seconds = max(2, math.floor(timeout / 2))
    engine = _create(
        url,
        {
            "application_name": "spark-events",
            # Set the encoding, because psycopg returns strings as bytes if the database's encoding is SQL_ASCII.
            "client_encoding": "utf8",
            "connect_timeout": seconds,
            "keepalives_idle": seconds,
            "tcp_user_timeout": seconds * 1000,
        },
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # LOCAL limits the setting to this transaction, because a connection pooler may assign the session to another
        # client later.
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(timeout * 1000))}")

    return engine
