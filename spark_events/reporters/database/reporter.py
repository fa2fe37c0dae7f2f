"""Writes events to a database, one transaction a batch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from spark_events.config import without_password
from spark_events.config.confidence import Confidence
from spark_events.config.references import is_telling
from spark_events.errors import PermanentError, TransientError
from spark_events.event import Event
from spark_events.reporters.database.config import DatabaseConfig
from spark_events.reporters.database.rows import row_of
from spark_events.reporters.extras import load_extra
from spark_events.reporters.reporter import Reporter

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["DatabaseReporter"]


class DatabaseReporter(Reporter):
    """A table of events in SQLite or PostgreSQL, with views of what operators ask.

    Delivering an event twice leaves one row: its ``event_id`` is the key. Everything blocks, which is what the
    reporter's own thread is for; PostgreSQL is told to give up a statement that takes longer than the timeout, and
    a server that does not even hear that costs a thread, and no event.
    """

    Config: ClassVar[type[DatabaseConfig]] = DatabaseConfig

    def __init__(self, config: DatabaseConfig) -> None:
        load_extra("sqlalchemy", "database")
        # Everything that imports SQLAlchemy itself stands behind this line.
        from spark_events.reporters.database import engines, schema, statements

        self._schema = schema
        self._statements = statements
        self._engine: Engine = engines.create(config)
        url = self._engine.url
        # Its query may hold a password, and who connects from where is nobody else's affair.
        self._where = url.set(query={}).render_as_string(hide_password=True)
        told = [str(value) for key, value in url.query.items() if is_telling(key)]
        self._hide = Confidence([url.password or "", *told]).hide
        path = url.database
        is_file = self._engine.dialect.name == "sqlite" and path is not None and not path.startswith("file:")
        self._path = path if is_file else None
        self._file: tuple[int, int] | None = None
        self._is_ready = False
        self._names_key = True

    def open(self) -> None:
        if self._path is not None:
            with self._verdicts():
                # Events may hold what a job's messages hold: a new file is for its owner alone.
                os.close(os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._file = _identity(self._path)
        with self._verdicts(), self._engine.begin() as connection:
            self._schema.prepare(connection)
            self._names_key = self._statements.may_name_key(connection)
        self._is_ready = True

    def report(self, events: Sequence[Event]) -> None:
        if self._path is not None and _identity(self._path) != self._file:
            # Who removes a file on Unix does not stop who writes to it: those rows would be nowhere.
            self._engine.dispose()
            self._is_ready = False
        if not self._is_ready:
            # After a failure: the database that is there now may be a new one, or another one.
            self.open()
        rows = [row_of(event) for event in events]
        insert = self._statements.insert(self._engine.dialect.name, names_key=self._names_key)
        try:
            with self._engine.begin() as connection:
                connection.execute(insert, rows)
            return
        except Exception as error:
            if not self._statements.is_about_values(error):
                raise self._transient(error) from None
            reason = self._statements.reason(error)
        with self._verdicts(), self._engine.begin() as connection:
            rejected = self._one_by_one(connection, insert, rows)
        if rejected:
            raise PermanentError(f"{rejected} of {len(rows)} events were refused: {reason}", rejected=rejected)

    def _one_by_one(self, connection: Connection, insert: Any, rows: list[dict[str, Any]]) -> int:
        """Still one transaction, but a row that is refused is refused alone; returns how many were."""
        rejected = 0
        for row in rows:
            try:
                with connection.begin_nested():
                    connection.execute(insert, row)
            except Exception as error:
                if not self._statements.is_about_values(error):
                    raise
                rejected += 1
        return rejected

    @contextlib.contextmanager
    def _verdicts(self) -> Iterator[None]:
        try:
            yield
        except PermanentError:
            raise
        except Exception as error:
            raise self._transient(error) from None

    def _transient(self, error: Exception) -> TransientError:
        """Wrong rights, a full disk, a server that is away: nothing is wrong with the events, so they are kept."""
        self._is_ready = False
        return TransientError(f"{self._where}: {self._hide(without_password(self._statements.reason(error)))}")

    def close(self) -> None:
        self._engine.dispose()


def _identity(path: str) -> tuple[int, int] | None:
    """Which file it is; None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
