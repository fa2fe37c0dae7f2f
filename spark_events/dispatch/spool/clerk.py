"""The thread that does a spool's work on the disk: writes, reads, removes, and copes when the disk does not."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from pathlib import Path
from typing import Protocol

import msgspec

from spark_events.dispatch.mailbox import worth_of
from spark_events.dispatch.spool.config import SpoolConfig, default_directory
from spark_events.dispatch.spool.database import Database, Done, NewRow, Row, salvage
from spark_events.dispatch.spool.files import Claim, claim, orphans
from spark_events.dispatch.spool.window import Waiting
from spark_events.event import decode_event, encode_event

__all__ = ["Clerk", "Desk"]

_LOG = logging.getLogger(__name__)
#: So many events are written in one transaction.
_BATCH = 512
#: How often a disk that does not work is tried again, in seconds.
_RETRY_SECONDS = 1.0


class Desk(Protocol):
    """What the clerk works on: see :class:`~spark_events.dispatch.spool.spool.Spool`."""

    def await_work(self, failing: bool, timeout: float | None) -> bool: ...
    def to_write(self, most: int) -> list[Waiting]: ...
    def has_to_write(self) -> bool: ...
    def to_remove(self) -> list[Done]: ...
    def written(self, count: int, added: int, shed: int, removed: int) -> None: ...
    def not_written(self) -> None: ...
    def pass_by(self) -> None: ...
    def adopted(self, rows: int, shed: int) -> None: ...
    def to_read(self) -> int: ...
    def was_read(self, found: list[Waiting], unreadable: list[Done]) -> None: ...
    def was_damaged(self, saved: int) -> None: ...


class Clerk:
    """Works on a desk until it is closed.

    Args:
        application: its name; a spool is found again by it.
        reporter: its name in the configuration.
        config: where, and how large.
        desk: what to work on.
    """

    def __init__(self, application: str, reporter: str, config: SpoolConfig, desk: Desk) -> None:
        self._application = application
        self._reporter = reporter
        self._config = config
        self._desk = desk
        self._claim: Claim | None = None
        self._database: Database | None = None
        self._read_through = 0
        self._retry_at: float | None = None
        self._full = False
        self._thread = threading.Thread(target=self._run, name=f"spark-events-spool-{reporter}", daemon=True)

    @property
    def is_failing(self) -> bool:
        """Whether the disk did not work when it was tried last."""
        return self._retry_at is not None

    def start(self) -> None:
        """Starts the thread; the file is opened there."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Waits for the thread, at most ``timeout`` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        self._turn()
        while self._desk.await_work(self.is_failing, self._patience()):
            self._turn()
        # Whatever has failed before: this is the last chance.
        self._retry_at = None
        self._turn()
        while not self.is_failing and self._desk.has_to_write():
            self._turn()
        self._leave()

    def _leave(self) -> None:
        """Nothing is left behind but what is to be delivered."""
        database, own = self._database, self._claim
        if database is not None:
            database.close()
        if own is not None and database is not None and not database.count:
            own.delete()
        elif own is not None:
            own.release()

    def _patience(self) -> float | None:
        return None if self._retry_at is None else max(0.0, self._retry_at - time.monotonic())

    def _turn(self) -> None:
        if self._retry_at is None or time.monotonic() >= self._retry_at:
            try:
                database = self._database or self._open()
                self._write(database)
                self._read(database)
                self._works()
                return
            except (sqlite3.OperationalError, OSError, RuntimeError) as error:
                self._fails(error)
            except sqlite3.DatabaseError as error:
                self._replace(error)
            self._desk.not_written()
        if self.is_failing:
            self._desk.pass_by()

    def _open(self) -> Database:
        config = self._config
        directory = default_directory() if config.directory is None else Path(config.directory)
        own = self._claim = self._claim or claim(directory, self._application, self._reporter)
        database = Database(own.path, config.fsync)
        try:
            shed = 0
            for orphan in orphans(directory, self._application, self._reporter, own):
                rows = salvage(orphan.path, 0)
                shed += database.append(rows, (), 0, config.max_size).shed
                orphan.delete()
        except BaseException:
            database.close()
            raise
        self._database = database
        self._desk.adopted(database.count + shed, shed)
        if database.count:
            _LOG.warning(
                "reporter %s: %d events that an earlier run could not deliver are delivered now",
                self._reporter,
                database.count,
            )
        return database

    def _write(self, database: Database) -> None:
        waiting = self._desk.to_write(_BATCH)
        done = self._desk.to_remove()
        if not waiting and not done:
            return
        rows = [
            NewRow(one.event.event_id, worth_of(one.event), one.accepted, encode_event(one.event)) for one in waiting
        ]
        appended = database.append(rows, done, self._read_through, self._config.max_size)
        if appended.shed and not self._full:
            _LOG.error(
                "reporter %s: its spool has reached spool.max-size (%d bytes), what is worth least is dropped",
                self._reporter,
                self._config.max_size,
            )
        self._full = self._full or appended.shed > 0
        self._desk.written(len(rows), appended.added, appended.shed, len(done))
        if not database.count:
            self._full = False
            database.shrink()

    def _read(self, database: Database) -> None:
        if (room := self._desk.to_read()) and (rows := database.read(self._read_through, room)):
            found, unreadable = _decoded(rows)
            self._read_through = rows[-1].id
            self._desk.was_read(found, unreadable)

    def _works(self) -> None:
        if self._retry_at is not None:
            self._retry_at = None
            _LOG.warning("reporter %s: its spool works again", self._reporter)

    def _fails(self, error: Exception) -> None:
        if self._retry_at is None:
            _LOG.error(
                "reporter %s: its spool cannot be used, until it can its events are in memory alone: %s",
                self._reporter,
                error,
            )
        self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _replace(self, damage: sqlite3.DatabaseError) -> None:
        """The file is damaged: what can be read of it goes into a new one."""
        assert self._claim is not None
        if self._database is not None:
            self._database.close()
            self._database = None
        try:
            aside = self._claim.set_aside(str(time.time_ns() // 1_000_000))
            rows = salvage(aside, self._read_through)
            database = Database(self._claim.path, self._config.fsync)
            kept = database.append(rows, (), 0, self._config.max_size)
        except (sqlite3.Error, OSError) as error:
            self._fails(error)
            return
        self._read_through = 0
        self._database = database
        self._desk.was_damaged(kept.added - kept.shed)
        _LOG.error(
            "reporter %s: its spool is damaged (%s); it was set aside as %s, %d events could be saved from it",
            self._reporter,
            damage,
            aside,
            len(rows),
        )


def _decoded(rows: list[Row]) -> tuple[list[Waiting], list[Done]]:
    found, unreadable = [], []
    for row in rows:
        try:
            found.append(Waiting(decode_event(row.event), row.accepted, row.done))
        except msgspec.MsgspecError:
            unreadable.append(row.done)
    return found, unreadable
