"""Reporter that writes events to a database, one transaction per batch."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from spark_events.clocks import SYSTEM, Clocks
from spark_events.config.confidence import Confidence, secret_address
from spark_events.errors import PermanentError, TransientError
from spark_events.event import Event
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.reporters.database.event_rows import row_of
from spark_events.reporters.database.retention import Retention
from spark_events.reporters.reporter import REQUEST_LINGER, Reporter, load_extra

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

_LOG = logging.getLogger(__name__)


class DatabaseReporter(Reporter):
    """Store events in SQLite or PostgreSQL, with views for operators.

    The primary key ``event_id`` prevents duplicate rows. All calls block the reporter's own thread. PostgreSQL cancels
    a statement that exceeds the timeout. If the server hangs, the dispatcher abandons the thread and retries the
    events.
    """

    Config: ClassVar[type[DatabaseConfig]] = DatabaseConfig
    linger = REQUEST_LINGER

    def __init__(self, config: DatabaseConfig, clocks: Clocks = SYSTEM) -> None:
        load_extra("sqlalchemy", "database")
        # Import SQLAlchemy only after load_extra has checked its installation.
        from spark_events.reporters.database import engines, event_tables

        self._tables = event_tables
        self._engine: Engine = engines.create(config)
        url = self._engine.url
        self._where = engines.where(url)
        self._hide = Confidence([*secret_address(config.url.reveal()), str(url.password or "")]).hide
        path = url.database
        is_file = self._engine.dialect.name == "sqlite" and path is not None and not path.startswith("file:")
        self._path = path if is_file else None
        self._file: tuple[int, int] | None = None
        self._is_ready = False
        self._retention = Retention(config.retention, self._where, clocks)

    def open(self) -> None:
        if self._path is not None:
            with self._verdicts():
                # Only the owner may read a new file, because events may contain user data.
                os.close(os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._file = _identity(self._path)
        with self._verdicts(), self._engine.begin() as connection:
            self._tables.prepare(connection)
            self._retention.connected(connection)
        self._is_ready = True

    def report(self, events: Sequence[Event]) -> None:
        if self._path is not None and _identity(self._path) != self._file:
            # Reconnect if another process deleted or replaced the file; the open connection would write to the deleted
            # file.
            self._engine.dispose()
            self._is_ready = False
        if not self._is_ready:
            # After a failure, check the schema again, because the server's database may have been replaced.
            self.open()
        rows = [row_of(event) for event in events]
        insert = self._tables.insert(self._engine.dialect.name)
        try:
            with self._engine.begin() as connection:
                connection.execute(insert, rows)
            self._delete_old()
            return
        except Exception as error:
            if not self._tables.is_about_values(error):
                raise self._transient(error) from None
            reason = self._tables.reason(error)
        with self._verdicts(), self._engine.begin() as connection:
            rejected = self._insert_individually(connection, insert, rows)
        if rejected:
            raise PermanentError(f"the database refused {rejected} of {len(rows)} events: {reason}", rejected=rejected)

    def _delete_old(self) -> None:
        """Delete some events that are older than the retention; an error does not affect new events."""
        if self._retention.is_due:
            try:
                with self._engine.begin() as connection:
                    self._retention.delete(connection)
            except Exception as error:
                _LOG.warning("%s: cannot delete old events, retrying in an hour: %s", self._where, self._reason(error))

    def _insert_individually(self, connection: Connection, insert: Any, rows: list[dict[str, Any]]) -> int:
        """Insert rows with one savepoint each and return the number of refused rows."""
        rejected = 0
        for row in rows:
            try:
                with connection.begin_nested():
                    connection.execute(insert, row)
            except Exception as error:
                if not self._tables.is_about_values(error):
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
        """Return a transient error, caused by permissions, the disk or the server, not by an event."""
        self._is_ready = False
        return TransientError(f"{self._where}: {self._reason(error)}")

    def _reason(self, error: Exception) -> str:
        return self._hide(self._tables.reason(error))

    def release(self) -> None:
        self._engine.dispose()


def _identity(path: str) -> tuple[int, int] | None:
    """Return the device and inode numbers of a file, or None if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
