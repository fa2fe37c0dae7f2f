"""Spools for tests, with real files and threads, and with a database in which the test can inject faults."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fakes import PATIENCE, event, eventually, numbers

from spark_events import Severity
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Counts
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.spool.spool_database import Appended, SpoolDatabase
from spark_events.dispatch.spool.writer import SpoolConfig, SpoolWriter

FULL = sqlite3.OperationalError("database or disk is full")
FAILS = sqlite3.OperationalError("disk I/O error")
CORRUPT = sqlite3.DatabaseError("database disk image is malformed")


class Disk:
    """Active disk faults."""

    def __init__(self) -> None:
        self.opening: Exception | None = None
        self.writing: Exception | None = None
        self.reading: Exception | None = None
        #: The next commit succeeds but is reported as failed.
        self.lies = False
        #: Function that is called during each write, and may block the write.
        self.hang: Callable[[], object] = lambda: None

    def database(self) -> type[SpoolDatabase]:
        """Return a database class with this disk's faults."""
        disk = self

        class FaultyDatabase(SpoolDatabase):
            def __init__(self, *how: Any) -> None:
                if disk.opening is not None:
                    raise disk.opening
                super().__init__(*how)

            def append(self, rows: Sequence[tuple[str, int, float, bytes]], through: int, protected: int) -> Appended:
                if disk.writing is not None:
                    raise disk.writing
                disk.hang()
                last_id = self.last_id
                appended = super().append(rows, through, protected)
                if disk.lies:
                    disk.lies, self.last_id = False, last_id
                    raise FAILS
                return appended

            def read(self, after: int, most: int) -> list[tuple[int, float, bytes]]:
                if type(disk.reading) is sqlite3.DatabaseError:
                    raise disk.reading
                # Let SQLite itself raise the error instead of this class.
                self._db.set_progress_handler(None if disk.reading is None else lambda: 1, 1)
                try:
                    return super().read(after, most)
                finally:
                    self._db.set_progress_handler(None, 1)

        return FaultyDatabase


class Gate:
    """Gate that blocks writes to the disk until the test opens the gate."""

    def __init__(self, disk: Disk) -> None:
        self.entered, self._open = threading.Event(), threading.Event()
        disk.hang = self._hang

    def _hang(self) -> None:
        self.entered.set()
        self._open.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()


class Owner:
    """Spool with its writer thread. The methods act as the reporter's thread and as the driver."""

    def __init__(
        self,
        directory: Path,
        application: str = "shop",
        reporter: str = "audit",
        driver: str = "",
        disk: Disk | None = None,
        hang_seconds: float = 3.0,
        **config: Any,
    ) -> None:
        settings = SpoolConfig(directory=str(directory), **config)
        self.disk = disk or Disk()
        self.woken = threading.Event()
        writer = partial(
            SpoolWriter,
            application,
            reporter,
            settings,
            driver=driver,
            retry=(0.01, 0.05),
            look=0.05,
            database=self.disk.database(),
        )
        self.spool = Spool(1024, writer, self.woken.set, lambda: None, settings.max_size, reporter, hang_seconds)
        self._record = 0
        self.spool.start()
        # Wait until this spool has started, so that two spools start in a known order.
        eventually(lambda: self.spool.memory.stored.files or self.spool.memory.disk.is_failing)

    def put(self, *which: int, severity: Severity = Severity.INFO, weight: int = 1, **attributes: Any) -> None:
        """Add events with these numbers to the spool, each with its own record."""
        made = [event(n, severity, **attributes) for n in which]
        self.spool.put([Entry(self._record + n, one, weight) for n, one in enumerate(made, 1)])
        self._record += len(which)

    def write(self, *which: int, **about: Any) -> None:
        """Add events and wait until they are on disk."""
        for first in range(0, len(which), 500):
            self.put(*which[first : first + 500], **about)
            assert self.spool.wait_until_answered(PATIENCE)

    def deliver(self, count: int) -> list[int]:
        """Dequeue and acknowledge ``count`` events."""
        taken: list[int] = []
        while len(taken) < count:
            take = partial(self.spool.take, min(5, count - len(taken)))
            taken += numbers(eventually(take, what=f"{count} events, there were {taken}"))
            self.spool.ack()
        return taken

    def counts(self) -> Counts:
        """Return the counters, and assert that they balance."""
        counts = self.spool.counts()
        assert counts.accepted == counts.delivered + sum(counts.dropped.values()) + counts.spooled + counts.held
        return counts

    def hang(self) -> Gate:
        """Block the next write, and return once the spool has detected that the disk hangs."""
        gate = Gate(self.disk)
        self.put(-1)
        assert gate.entered.wait(PATIENCE)
        eventually(lambda: self.spool.memory.disk.hangs, meanwhile=self.spool.check)
        return gate

    def close(self) -> None:
        """Close the spool without a time limit."""
        self.spool.close(time.monotonic() + PATIENCE)

    @property
    def file(self) -> Path:
        """Return the database file that the spool owns."""
        return eventually(lambda: self.spool.memory.stored.files)[-1].folder.path


def spoil(path: Path) -> None:
    """Overwrite the first pages of the database and of the write-ahead log."""
    for part in (path, path.with_name(f"{path.name}-wal")):
        if part.exists():
            part.write_bytes(b"\xff" * max(4096, part.stat().st_size))


def rows_of(path: Path) -> int:
    """Return the number of rows in a file that no process has opened."""
    db = sqlite3.connect(path)
    try:
        return int(db.execute("SELECT COUNT(*) FROM events").fetchone()[0])
    finally:
        db.close()
