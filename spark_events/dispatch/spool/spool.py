"""State that the threads of a spool share under one lock: mailbox, prefetched events, counters.

This module does no I/O.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Counts, Mailbox, dropped_of
from spark_events.dispatch.spool.database import Appended, SpoolDatabase
from spark_events.dispatch.spool.ownership import SpoolFolder
from spark_events.event import Event

_LOG = logging.getLogger(__name__)
#: Minimum capacity of the mailbox, and maximum number of prefetched events for the reporter.
_LEAST_CAPACITY, _MOST_AHEAD = 3_072, 2_048
#: Minimum number of rows to prefetch, and the number of bytes of spool size that allow one more row. Prefetched rows
#: cannot be shed.
_LEAST_AHEAD, _BYTES_AHEAD = 64, 8_192
#: How long the dispatcher waits for the disk, in seconds. After a timeout, it waits again only after a faster write.
#: The same limit applies to closing the spool if the disk fails or hangs.
_PATIENCE_SECONDS = 0.25


@dataclass(slots=True, eq=False)
class SpoolFile:
    """One file of the spool."""

    folder: SpoolFolder
    database: SpoolDatabase | None = None  # the open database, which only the spool writer's thread uses
    last_id: int = -1  # id of the last row when the file was closed; -1 before the first open
    read_through: int = 0  # id of the last row that was read into memory
    deleted_through: int = 0  # id of the last row that was deleted
    unread: int = -1  # number of rows that are only on disk; -1 before the first count


class StoredEvent(NamedTuple):
    """Event in memory that also has a row in a file; ``accepted`` is in seconds since the epoch."""

    file: SpoolFile
    id: int
    event: Event
    accepted: float
    weight: int


class Spool:
    """Memory part of the spool, with the methods of a :class:`~spark_events.dispatch.mailbox.Mailbox`."""

    is_durable = True

    def __init__(
        self,
        capacity: int,  # number of events that the mailbox buffers for the disk
        writer: Callable[[Spool], threading.Thread],
        wake: Callable[[], None],  # callback that wakes the reporter's worker
        on_progress: Callable[[], None],  # callback after events were written
        max_bytes: int = _MOST_AHEAD * _BYTES_AHEAD,  # maximum size of a file
        reporter: str = "",  # name of the reporter, for the log
        hang_seconds: float = 3.0,  # time in seconds after which a disk access counts as hanging
    ) -> None:
        self._lock = threading.RLock()
        self._progress = threading.Condition(self._lock)
        self._work = threading.Condition(self._lock)
        self._wake = wake
        self._on_progress = on_progress
        self._reporter = reporter
        self._hang_seconds = hang_seconds
        self._capacity = max(capacity, _LEAST_CAPACITY)
        self._most_ahead = min(_MOST_AHEAD, max(_LEAST_AHEAD, max_bytes // _BYTES_AHEAD))
        self._mailbox = Mailbox(self._capacity, self._lock)
        # Mailbox events in use: by a write to disk, by a delivery that bypasses the disk, or by both.
        self._batch: list[Entry] | None = None
        self._worker_has_batch = False
        #: Files in reading order, the own file last. Only the spool writer changes this list.
        self.files: list[SpoolFile] = []
        self._ready: deque[StoredEvent] = deque()
        self._taken: list[StoredEvent] = []
        # Number of events from earlier runs, minus the mailbox's events that were already in a file.
        self._adopted = self._delivered = 0
        self._dropped: Counter[str] = Counter()
        self.is_failing = False
        self._hangs = self._is_slow = self._closing = self._closed = False
        self._busy_since: float | None = None
        self._overdue: float | None = None
        self._writer = writer(self)

    def start(self) -> None:
        self._writer.start()

    def put(self, entries: Sequence[Entry]) -> bool:
        with self._lock:
            self._mailbox.put(entries)
            self._work.notify()
            return self._bypasses_disk()

    @property
    def fullness(self) -> float:
        return self._mailbox.fullness

    def oldest_record(self) -> int | None:
        return self._mailbox.oldest_record()

    def unanswered_for(self) -> float:
        return self._mailbox.unanswered_for()

    def wait_until_answered(self, timeout: float) -> bool:
        with self._lock:
            return self._progress.wait_for(lambda: not self._mailbox.holds_any, timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        with self._lock:
            return self._progress.wait_for(lambda: not self._taken and self._is_empty(self._unread()), timeout)

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        """Wait briefly for the disk, to avoid shedding in a burst; do not wait for a disk that hangs or fails."""
        if self.is_failing or self._hangs or self._is_slow:
            return False
        fits = self._mailbox.wait_for_room(min(weight, self._capacity), max(timeout, _PATIENCE_SECONDS))
        self._is_slow = not fits
        return fits

    def check(self) -> None:
        """Detect a disk access that hangs."""
        with self._lock:
            since, seen, self._overdue = self._busy_since, self._overdue, None
            if since is None or time.monotonic() - since < self._hang_seconds:
                return
            self._overdue = since
            # Require two consecutive checks, because this process may have been suspended before the first check.
            if since != seen or self._hangs:
                return
            self._hangs = True
        _LOG.error("reporter %s: the spool's disk does not answer; buffering events in memory", self._reporter)
        self._wake()

    def take(self, most: int) -> list[Event]:
        with self._lock:
            if not self._ready and self._bypasses_disk():
                # A write of these events may hang; the worker then settles them before the write returns.
                self._mailbox.requeue()
                self._batch = self._mailbox.take_entries(most) or None
                self._worker_has_batch = self._batch is not None
                return [entry.event for entry in self._batch or ()]
            while self._ready and (not self._taken or most >= self._ready[0].weight):
                most -= self._ready[0].weight
                self._taken.append(self._ready.popleft())
            self._work.notify()
            return [one.event for one in self._taken]

    def ack(self, dropped: str | None = None, count: int | None = None) -> None:
        with self._lock:
            taken = len(self._batch or ()) if self._worker_has_batch else len(self._taken)
            lost = dropped_of(taken, dropped, count)
            self._delivered += taken - lost
            if dropped is not None:
                self._dropped[dropped] += lost
            if self._worker_has_batch:
                self._mailbox.ack()
                self._batch, self._worker_has_batch = None, False
            self._taken = []
            self._work.notify()
            self._progress.notify_all()

    def requeue(self) -> None:
        with self._lock:
            if self._worker_has_batch:
                self._mailbox.requeue()
                self._batch, self._worker_has_batch = None, False
            self._ready.extendleft(reversed(self._taken))
            self._taken = []

    def is_exhausted(self) -> bool:
        with self._lock:
            return self._closed or self._is_empty(0 if self.is_failing else self._unread())

    def _is_empty(self, unread: int) -> bool:
        return not (self._ready or self._mailbox.holds_any or unread)

    def _unread(self) -> int:
        return sum(file.unread for file in self.files)

    def _bypasses_disk(self) -> bool:
        """Whether the worker reads directly from the mailbox.

        The worker does so while the disk fails or hangs, if no older events are on disk.
        """
        return (self.is_failing or self._hangs) and not self._unread() and not self._closing

    @contextlib.contextmanager
    def disk_access(self) -> Iterator[None]:
        """Return a context manager for a disk access that may hang; on exit, it wakes the worker."""
        self._busy_since = time.monotonic()
        yield
        with self._lock:
            self._busy_since, hung, self._hangs = None, self._hangs, False
        if hung:
            _LOG.warning("reporter %s: the spool's disk answers again", self._reporter)
        self._wake()
        self._on_progress()

    def await_work(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for work; return False if closing the spool was requested."""
        with self._lock:
            self._work.wait_for(lambda: self._closing or self.has_to_write() or self.to_read(), timeout)
            return not self._closing

    def has_to_write(self) -> bool:
        """Return whether there are events to write or rows to delete; False while the disk fails."""
        with self._lock:
            is_done = any(self.settled_through(file) > file.deleted_through for file in self.files)
            return not self.is_failing and (is_done or self._mailbox.holds_any)

    def to_read(self) -> tuple[SpoolFile, int] | None:
        """Return the file to read next and the number of rows to read.

        The result is None if there are no unread rows, or no space for them.
        """
        with self._lock:
            file = self.files[0] if self.files else None
            if file is None or not file.unread or file.database is None:
                return None
            room = self._most_ahead - sum(one.weight for one in self._ready)
            return (file, room) if room > self._most_ahead // 2 else None

    def settled_through(self, file: SpoolFile) -> int:
        """Return the highest id up to which all rows of a file are settled."""
        with self._lock:
            in_memory = (one.id - 1 for one in chain(self._taken, self._ready) if one.file is file)
            return next(in_memory, file.read_through)

    def is_settled(self, file: SpoolFile) -> bool:
        """Return whether all rows of a file are settled."""
        return file.unread == 0 and self.settled_through(file) == file.read_through

    def opened(self, file: SpoolFile, index: int, database: SpoolDatabase) -> None:
        """Account for the rows of a file; insert a new file at ``index`` of the files."""
        with self._lock:
            if file not in self.files:
                self.files.insert(index, file)
                self._adopted += database.rows
            else:
                # Rows are missing if a write shed them and reported an error, but was committed nevertheless.
                self._dropped["spool-full"] += file.unread - database.rows
            file.database, file.unread = database, database.rows

    def discard(self, file: SpoolFile) -> str:
        """Drop the unread events of a corrupt file; return their number as a string."""
        with self._lock:
            is_known = file in self.files
            # If the number of lost events is unknown, count one event, so that the counters show a loss.
            lost = file.unread + sum(one.file is file for one in self._ready) if is_known else 1
            self._adopted += not is_known
            self._dropped["spool-corrupt"] += lost
            self._ready = deque(one for one in self._ready if one.file is not file)
            self.files = [one for one in self.files if one is not file]
            self._progress.notify_all()
            return str(lost) if is_known else "an unknown number of"

    def to_write(self, most: int) -> list[Entry]:
        """Return the mailbox's next events for a write.

        Events whose delivery bypasses the disk come first.
        """
        with self._lock:
            if self._batch is None:
                self._batch = self._mailbox.take_entries(most) or None
            return self._batch or []

    def not_written(self, batch: list[Entry]) -> None:
        """Keep the events of a failed write in the mailbox."""
        with self._lock:
            if batch is self._batch and not self._worker_has_batch:
                self._mailbox.requeue()
                self._batch = None

    def written(self, file: SpoolFile, batch: list[Entry], appended: Appended) -> None:
        """Account for a write to the own file."""
        now, numbered = time.time(), zip(appended.ids, batch, strict=True)
        stored = [StoredEvent(file, number, entry.event, now, entry.weight) for number, entry in numbered if number]
        shed = len(batch) - len(stored) - appended.duplicates
        with self._lock:
            if self._closed:
                return
            if appended.shed + shed and not self._dropped["spool-full"]:
                _LOG.error(
                    "reporter %s: spool.max-size reached; dropping the least severe events first", self._reporter
                )
            file.unread -= appended.shed
            self._dropped["spool-full"] += appended.shed
            if batch is self._batch:
                self._adopted -= appended.duplicates
                self._dropped["spool-full"] += shed
                ahead = sum(one.weight for one in self._ready)
                if self._worker_has_batch:
                    self._taken = stored
                elif self._unread() or self.files[0] is not file or ahead >= self._most_ahead:
                    file.unread += len(stored)
                    stored = []
                else:
                    self._ready.extend(stored)
                self._mailbox.ack()
                self._batch, self._worker_has_batch = None, False
            # The worker delivered these events while the write hung, so their rows count as settled.
            file.read_through = stored[-1].id if stored else file.read_through
            self._is_slow = self._is_slow and time.monotonic() - (self._busy_since or 0.0) > _PATIENCE_SECONDS
            self._progress.notify_all()

    def was_read(self, file: SpoolFile, found: list[StoredEvent], undecodable: int, through: int) -> None:
        """Account for rows that were read; count undecodable rows as dropped."""
        with self._lock:
            self._ready.extend(found)
            file.unread -= len(found) + undecodable
            file.read_through = through
            self._dropped["spool-corrupt"] += undecodable

    def counts(self) -> Counts:
        with self._lock:
            mailbox, now = self._mailbox.counts(), time.time()
            dropped = Counter(mailbox.dropped) + self._dropped
            oldest = next((one.accepted for one in chain(self._taken, self._ready)), now)
            return Counts(
                accepted=mailbox.accepted + self._adopted,
                delivered=self._delivered,
                dropped={reason: count for reason, count in dropped.items() if count},
                held=mailbox.held,
                # Ignore times in the future; the clock may have been set back.
                oldest_age=max(0.0, now - oldest, mailbox.oldest_age),
                spooled=self._unread() + len(self._taken) + len(self._ready),
            )

    def close(self, deadline: float) -> None:
        with self._lock:
            self.requeue()
            self._closing = True
            self._work.notify_all()
        left = max(0.0, deadline - time.monotonic())
        self._writer.join(min(left, _PATIENCE_SECONDS) if self.is_failing or self._hangs else left)
        with self._lock:
            self._closed = True
            self._mailbox.clear("shutdown")
            self._progress.notify_all()
