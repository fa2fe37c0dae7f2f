"""Fixtures: one PostgreSQL server for all tests, with a separate database for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from reporters.database.databases import Database, OfPostgreSQL, OfSQLite
from reporters.peers.postgresql import PostgreSQL

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """Yield a running PostgreSQL server."""
    server = PostgreSQL()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture
def in_postgresql(postgresql: PostgreSQL) -> Iterator[OfPostgreSQL]:
    """Yield an empty database of a running PostgreSQL server."""
    if not postgresql.server.is_running:
        postgresql.start()
    name = f"events{next(_NUMBERS)}"
    postgresql.psql(f"CREATE DATABASE {name}", database="postgres")
    yield OfPostgreSQL(postgresql, name)
    if postgresql.server.is_running:
        postgresql.thaw()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Yield an empty database, once for SQLite and once for PostgreSQL."""
    if request.param == "sqlite":
        return OfSQLite(tmp_path / "events.db")
    found: OfPostgreSQL = request.getfixturevalue("in_postgresql")
    return found
