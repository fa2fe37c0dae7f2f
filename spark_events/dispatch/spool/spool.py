"""The spool as a reporter's store: what the dispatcher and the reporter's thread call."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Counts, dropped_of
from spark_events.dispatch.spool.disk import PATIENCE_SECONDS
from spark_events.dispatch.spool.spool_memory import SpoolMemory
from spark_events.dispatch.spool.stored import LARGE_FILE
from spark_events.event import Event

_LOG = logging.getLogger(__name__)
#: Minimum capacity of the mailbox.
_LEAST_CAPACITY = 3_072


class Spool:
    """Store with the methods of a :class:`~spark_events.dispatch.mailbox.Mailbox`, whose events are on disk.

    Args:
        capacity: number of events that the mailbox buffers for the disk.
        writer: creates the thread that performs the disk accesses.
        wake: wakes the reporter's thread.
        on_progress: called after events were written.
        max_bytes: maximum size of a file.
        reporter: name of the reporter, for the log.
        hang_seconds: time in seconds after which a disk access counts as hanging.
    """

    is_durable = True

    def __init__(
        self,
        capacity: int,
        writer: Callable[[SpoolMemory], threading.Thread],
        wake: Callable[[], None],
        on_progress: Callable[[], None],
        max_bytes: int = LARGE_FILE,
        reporter: str = "",
        hang_seconds: float = 3.0,
    ) -> None:
        self._wake = wake
        self._on_progress = on_progress
        self._capacity = max(capacity, _LEAST_CAPACITY)
        self.memory = SpoolMemory(self._capacity, max_bytes, reporter, hang_seconds, self._disk_accessed)
        self._lock = self.memory.lock
        self._writer = writer(self.memory)

    def start(self) -> None:
        self._writer.start()

    def _disk_accessed(self) -> None:
        self._wake()
        self._on_progress()

    def put(self, entries: Sequence[Entry]) -> bool:
        with self._lock:
            self.memory.mailbox.put(entries)
            self.memory.work.notify()
            return self._bypasses_disk()

    @property
    def fullness(self) -> float:
        return self.memory.mailbox.fullness

    def oldest_seq(self) -> int | None:
        return self.memory.mailbox.oldest_seq()

    def unanswered_for(self) -> float:
        return self.memory.mailbox.unanswered_for()

    def wait_until_answered(self, timeout: float) -> bool:
        memory = self.memory
        with self._lock:
            return memory.progress.wait_for(lambda: not memory.mailbox.holds_any, timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        stored = self.memory.stored
        with self._lock:
            return self.memory.progress.wait_for(lambda: not stored.taken and self._is_empty(stored.unread), timeout)

    def wait_for_room(self, weight: int, timeout: float) -> bool:
        """Wait briefly for the disk, to avoid shedding in a burst; do not wait for a disk that hangs or fails."""
        disk = self.memory.disk
        if not disk.is_usable or disk.is_slow:
            return False
        fits = self.memory.mailbox.wait_for_room(min(weight, self._capacity), max(timeout, PATIENCE_SECONDS))
        disk.is_slow = not fits
        return fits

    def check(self) -> None:
        """Detect a disk access that hangs."""
        with self._lock:
            if not self.memory.disk.check():
                return
        _LOG.error("reporter %s: the spool's disk does not answer; buffering events in memory", self.memory.reporter)
        self._wake()

    def take(self, most: int) -> list[Event]:
        memory = self.memory
        with self._lock:
            if not memory.stored.ready and self._bypasses_disk():
                # A write of these events may hang; the thread then settles them before the write returns.
                memory.mailbox.requeue()
                memory.batch = memory.mailbox.take_entries(most) or None
                memory.thread_has_batch = memory.batch is not None
                return [entry.event for entry in memory.batch or ()]
            taken = memory.stored.take(most)
            memory.work.notify()
            return taken

    def ack(self, dropped: str | None = None, count: int | None = None) -> None:
        memory = self.memory
        with self._lock:
            taken = len(memory.batch or ()) if memory.thread_has_batch else len(memory.stored.taken)
            lost = dropped_of(taken, dropped, count)
            memory.counts.delivered += taken - lost
            if dropped is not None:
                memory.counts.dropped[dropped] += lost
            if memory.thread_has_batch:
                memory.mailbox.ack()
                memory.batch, memory.thread_has_batch = None, False
            memory.stored.taken = []
            memory.work.notify()
            memory.progress.notify_all()

    def requeue(self) -> None:
        memory = self.memory
        with self._lock:
            if memory.thread_has_batch:
                memory.mailbox.requeue()
                memory.batch, memory.thread_has_batch = None, False
            memory.stored.requeue()

    def is_exhausted(self) -> bool:
        memory = self.memory
        with self._lock:
            return memory.closed or self._is_empty(0 if memory.disk.is_failing else memory.stored.unread)

    def _is_empty(self, unread: int) -> bool:
        return not (self.memory.stored.ready or self.memory.mailbox.holds_any or unread)

    def _bypasses_disk(self) -> bool:
        """Whether the thread reads directly from the mailbox.

        The thread does so while the disk fails or hangs, if no older events are on disk.
        """
        memory = self.memory
        return not (memory.disk.is_usable or memory.stored.unread or memory.closing)

    def counts(self) -> Counts:
        memory = self.memory
        with self._lock:
            mailbox, now = memory.mailbox.counts(), time.time()
            dropped = Counter(mailbox.dropped) + memory.counts.dropped
            oldest = memory.stored.oldest
            return Counts(
                accepted=mailbox.accepted + memory.counts.adopted,
                delivered=memory.counts.delivered,
                dropped={reason: count for reason, count in dropped.items() if count},
                held=mailbox.held,
                # Ignore times in the future; the clock may have been set back.
                oldest_age=max(0.0, now - (now if oldest is None else oldest), mailbox.oldest_age),
                spooled=memory.stored.total,
            )

    def close(self, until: float) -> None:
        memory = self.memory
        with self._lock:
            self.requeue()
            memory.closing = True
            memory.work.notify_all()
        left = max(0.0, until - time.monotonic())
        self._writer.join(left if memory.disk.is_usable else min(left, PATIENCE_SECONDS))
        with self._lock:
            memory.closed = True
            memory.mailbox.clear("shutdown")
            memory.progress.notify_all()
