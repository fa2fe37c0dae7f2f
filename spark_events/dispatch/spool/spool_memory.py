"""What the threads of a spool share under one lock: events that wait for the disk, stored events, counters.

The methods are those of the spool writer; :class:`~spark_events.dispatch.spool.spool.Spool` has those of the dispatcher
and the thread. This module does no I/O.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Mailbox
from spark_events.dispatch.spool.disk import DiskHealth
from spark_events.dispatch.spool.spool_database import Appended, SpoolDatabase
from spark_events.dispatch.spool.stored import SpoolFile, StoredEvent, StoredEvents

_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class SpoolCounts:
    """Counters of a spool, besides those of its mailbox."""

    adopted: int = 0  # events from earlier runs, minus the mailbox's events that were already in a file
    delivered: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class SpoolMemory:
    """Memory of one spool.

    Args:
        capacity: number of events that the mailbox buffers for the disk.
        max_bytes: maximum size of a file.
        reporter: name of the reporter, for the log.
        hang_seconds: time in seconds after which a disk access counts as hanging.
        on_disk_access: called after each disk access, without the lock.

    Attributes:
        lock: guards everything below.
        progress: notified when events are written, settled or dropped.
        work: notified when the spool writer may have work.
        mailbox: events that are not on disk.
        batch: the mailbox's events in use: by a write to disk, by a delivery that bypasses the disk, or by both.
        thread_has_batch: whether the thread delivers ``batch``, bypassing the disk.
        stored: events on disk.
        closing: whether closing the spool was requested.
        closed: whether the spool is closed.
    """

    def __init__(
        self,
        capacity: int,
        max_bytes: int,
        reporter: str,
        hang_seconds: float,
        on_disk_access: Callable[[], None],
    ) -> None:
        self.lock = threading.RLock()
        self.progress = threading.Condition(self.lock)
        self.work = threading.Condition(self.lock)
        self.mailbox = Mailbox(capacity, self.lock)
        self.batch: list[Entry] | None = None
        self.thread_has_batch = False
        self.stored = StoredEvents(max_bytes)
        self.disk = DiskHealth(hang_seconds)
        self.counts = SpoolCounts()
        self.closing = self.closed = False
        self.reporter = reporter
        self._on_disk_access = on_disk_access

    @contextlib.contextmanager
    def disk_access(self) -> Iterator[None]:
        """Return a context manager for a disk access that may hang; on exit, it wakes the thread."""
        self.disk.begin()
        yield
        with self.lock:
            hung = self.disk.end()
        if hung:
            _LOG.warning("reporter %s: the spool's disk answers again", self.reporter)
        self._on_disk_access()

    def await_work(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for work; return False if closing the spool was requested."""
        with self.lock:
            self.work.wait_for(lambda: self.closing or self.has_to_write() or self.stored.to_read(), timeout)
            return not self.closing

    def has_to_write(self) -> bool:
        """Return whether there are events to write or rows to delete; False while the disk fails."""
        with self.lock:
            return not self.disk.is_failing and (self.stored.has_to_delete() or self.mailbox.holds_any)

    def to_read(self) -> tuple[SpoolFile, int] | None:
        """Return the file to read next and the number of rows to read; None if there is nothing to read."""
        with self.lock:
            return self.stored.to_read()

    def settled_through(self, file: SpoolFile) -> int:
        """Return the highest id up to which all rows of a file are settled."""
        with self.lock:
            return self.stored.settled_through(file)

    def is_settled(self, file: SpoolFile) -> bool:
        """Return whether all rows of a file are settled."""
        with self.lock:
            return self.stored.is_settled(file)

    def opened(self, file: SpoolFile, index: int, database: SpoolDatabase) -> None:
        """Account for the rows of a file; insert a new file at ``index`` of the files."""
        with self.lock:
            if file not in self.stored.files:
                self.stored.files.insert(index, file)
                self.counts.adopted += database.rows
            else:
                # Rows are missing if a write shed them and reported an error, but was committed nevertheless.
                self.counts.dropped["spool-full"] += file.unread - database.rows
            file.database, file.unread = database, database.rows

    def discard(self, file: SpoolFile) -> str:
        """Drop the unread events of a corrupt file; return their number as a string."""
        with self.lock:
            lost = self.stored.discard(file)
            if lost is None:
                # Count one event, so that the counters show a loss.
                self.counts.adopted += 1
            self.counts.dropped["spool-corrupt"] += 1 if lost is None else lost
            self.progress.notify_all()
            return "an unknown number of" if lost is None else str(lost)

    def to_write(self, most: int) -> list[Entry]:
        """Return the mailbox's next events for a write; those whose delivery bypasses the disk come first."""
        with self.lock:
            if self.batch is None:
                self.batch = self.mailbox.take_entries(most) or None
            return self.batch or []

    def not_written(self, batch: list[Entry]) -> None:
        """Keep the events of a failed write in the mailbox."""
        with self.lock:
            if batch is self.batch and not self.thread_has_batch:
                self.mailbox.requeue()
                self.batch = None

    def written(self, file: SpoolFile, batch: list[Entry], appended: Appended) -> None:
        """Account for a write to the own file."""
        now, numbered = time.time(), zip(appended.ids, batch, strict=True)
        stored = [StoredEvent(file, id_, entry.event, now, entry.weight) for id_, entry in numbered if id_]
        shed = len(batch) - len(stored) - appended.duplicates
        with self.lock:
            if self.closed:
                return
            dropped = self.counts.dropped
            if appended.shed + shed and not dropped["spool-full"]:
                _LOG.error("reporter %s: spool.max-size reached; dropping the least severe events first", self.reporter)
            file.unread -= appended.shed
            dropped["spool-full"] += appended.shed
            if batch is self.batch:
                self.counts.adopted -= appended.duplicates
                dropped["spool-full"] += shed
                if self.thread_has_batch:
                    self.stored.taken = stored
                else:
                    stored = self.stored.keep(file, stored)
                self.mailbox.ack()
                self.batch, self.thread_has_batch = None, False
            # If the thread delivered these events while the write hung, their rows count as settled.
            file.read_through = stored[-1].id if stored else file.read_through
            self.disk.wrote()
            self.progress.notify_all()

    def was_read(self, file: SpoolFile, found: list[StoredEvent], undecodable: int, through: int) -> None:
        """Account for rows that were read; count undecodable rows as dropped."""
        with self.lock:
            self.stored.read(file, found, len(found) + undecodable, through)
            self.counts.dropped["spool-corrupt"] += undecodable
