"""A reporter's store on disk: an event that has been written survives this process and its application.

What is put waits in a mailbox until the clerk, the only thread that touches the disk, has written it; until
then its record is not acknowledged, so that the driver sends it again to a successor. The clerk also reads what
comes next into a small window, from which the reporter's worker takes, and removes what is settled. So a disk
that hangs stops this reporter alone. While the disk cannot be written, events pass by it, in memory.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Protocol

from spark_events.dispatch.mailbox import Mailbox
from spark_events.dispatch.spool.database import Done
from spark_events.dispatch.spool.window import Waiting
from spark_events.dispatch.store import Counts, Entry, dropped_of
from spark_events.event import Event

__all__ = ["Spool"]

#: So many events are read ahead of the reporter.
_WINDOW = 2_048
#: A disk that makes no room in this time hangs: it is not waited for again until it has written something.
_STALL_SECONDS = 1.0


class _Clerk(Protocol):
    """Who works for the disk, as the others see him."""

    @property
    def is_failing(self) -> bool: ...
    def start(self) -> None: ...
    def join(self, timeout: float) -> None: ...


class Spool:
    """What the threads share: the mailbox in front, the window behind, and the account of everything.

    Args:
        capacity: how many events wait in memory for the disk.
        clerk: makes the one that writes and reads.
        wake: called when there is something to take.
        on_progress: called when events have become safe, or have come to their end.
    """

    def __init__(
        self,
        capacity: int,
        clerk: Callable[[Spool], _Clerk],
        wake: Callable[[], None],
        on_progress: Callable[[], None],
    ) -> None:
        self._lock = threading.RLock()
        self._progress = threading.Condition(self._lock)
        self._work = threading.Condition(self._lock)
        self._wake = wake
        self._on_progress = on_progress
        self._front = Mailbox(capacity, self._something_to_write, self._lock)
        self._window: deque[Waiting] = deque()
        self._recalled: list[Waiting] = []
        self._taken: list[Waiting] = []
        self._done: list[Done] = []
        # Rows on disk that are not in memory, and events in memory that are on no disk.
        self._unread = 0
        self._passing = 0
        self._adopted = 0
        self._duplicates = 0
        self._delivered = 0
        self._dropped: Counter[str] = Counter()
        self._stalled = False
        self._closing = False
        self._closed = False
        self._clerk = clerk(self)

    @property
    def is_durable(self) -> bool:
        """What is on disk outlives the process."""
        return True

    def start(self) -> None:
        """Starts the clerk, who opens the file."""
        self._clerk.start()

    # --- for the thread that translates ---------------------------------------------------------

    def put(self, entries: Iterable[Entry]) -> None:
        """Takes entries in; they are safe once :meth:`oldest_record` does not name theirs any more."""
        self._front.put(entries)

    def oldest_record(self) -> int | None:
        """The oldest record of which an event is on no disk."""
        with self._lock:
            front = self._front.oldest_record()
            records = [] if front is None else [front]
            if self._passing:
                waiting = (*self._taken, *self._window, *self._recalled)
                records += [one.record for one in waiting if one.done is None]
            return min(records, default=None)

    def wait_until_answered(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in is safe, or delivered."""
        with self._lock:
            return self._progress.wait_for(lambda: self.oldest_record() is None, timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in has been settled."""
        with self._lock:
            return self._progress.wait_for(lambda: self.is_exhausted() and not self._taken, timeout)

    def wait_for_room(self, events: int, timeout: float) -> bool:
        """Waits for the disk, so that nothing that it could keep is shed; not for one that hangs or fails."""
        if not self._clerk.is_failing and not self._stalled:
            self._stalled = not self._front.wait_for_room(events, max(timeout, _STALL_SECONDS))
        return not self._stalled

    # --- for the reporter's worker --------------------------------------------------------------

    def take(self, most: int) -> list[Event]:
        """The oldest events that have been read."""
        with self._lock:
            self._taken = [self._window.popleft() for _ in range(min(most, len(self._window)))]
            if len(self._window) < _WINDOW // 2:
                self._work.notify()
            return [one.event for one in self._taken]

    def settle(self, dropped: str | None = None, count: int | None = None) -> None:
        """What was taken has come to its end; the clerk removes it."""
        with self._lock:
            lost = dropped_of(len(self._taken), dropped, count)
            self._delivered += len(self._taken) - lost
            if dropped is not None:
                self._dropped[dropped] += lost
            on_disk = [one.done for one in self._taken if one.done is not None]
            self._passing -= len(self._taken) - len(on_disk)
            self._done.extend(on_disk)
            self._taken = []
            self._work.notify()
            self._progress.notify_all()

    def put_back(self) -> None:
        """What was taken is to be taken again."""
        with self._lock:
            self._window.extendleft(reversed(self._taken))
            self._taken = []

    def is_exhausted(self) -> bool:
        """Whether nothing is left, neither here nor on disk."""
        with self._lock:
            return self._closed or not (self._window or self._recalled or self._unread or self._front.holds_any)

    # --- for the clerk --------------------------------------------------------------------------

    def await_work(self, failing: bool, timeout: float | None) -> bool:
        """Waits until there is something to do; False when the spool is to be closed."""
        with self._lock:
            self._work.wait_for(self._can_pass if failing else self._has_work, timeout)
            return not self._closing

    def to_write(self, most: int) -> list[Waiting]:
        """Events that are on no disk yet: first those that had passed it by, if they still wait."""
        now = time.time()
        with self._lock:
            while self._passing and not self._unread and self._window and self._window[-1].done is None:
                self._recalled.append(self._window.pop())
            self._recalled.reverse()
            new = self._front.take_entries(most)
            return [*self._recalled, *(Waiting(entry.event, now, None, entry.record) for entry in new)]

    def has_to_write(self) -> bool:
        """Whether something is on no disk yet, or still to be removed from it."""
        with self._lock:
            return bool(self._done or self._front.holds_any)

    def to_remove(self) -> list[Done]:
        """Rows that are settled; they stay on the list until they are removed."""
        with self._lock:
            return list(self._done)

    def written(self, count: int, added: int, shed: int, removed: int) -> None:
        """What was to be written and removed, is; of ``count`` events, so many were new."""
        with self._lock:
            if self._closed:
                return
            self._passing -= len(self._recalled)
            self._recalled = []
            self._front.settle()
            self._stalled = False
            self._unread += added - shed
            self._duplicates += count - added
            self._dropped["spool-full"] += shed
            del self._done[:removed]
            self._progress.notify_all()
        self._on_progress()

    def not_written(self) -> None:
        """What was to be written is still in memory, in its place."""
        with self._lock:
            self._window.extend(self._recalled)
            self._recalled = []
            self._front.put_back()
        self._wake()

    def pass_by(self) -> None:
        """The disk does not work: what would be written goes to the reporter without, behind what is on disk."""
        now = time.time()
        with self._lock:
            entries = self._front.take_entries(_WINDOW - len(self._window)) if self._can_pass() else []
            self._front.settle()
            self._passing += len(entries)
            self._window.extend(Waiting(entry.event, now, None, entry.record) for entry in entries)
        self._wake()

    def adopted(self, rows: int, shed: int) -> None:
        """Predecessors have left so many, for some of which there is no room."""
        with self._lock:
            self._adopted += rows
            self._unread += rows - shed
            self._dropped["spool-full"] += shed

    def to_read(self) -> int:
        """How many rows may be read into the window now."""
        with self._lock:
            return min(self._unread, max(0, _WINDOW - len(self._window)))

    def was_read(self, found: list[Waiting], unreadable: list[Done]) -> None:
        """Rows have been read, the next ones in their order; some may be no events."""
        with self._lock:
            self._window.extend(found)
            self._unread -= len(found) + len(unreadable)
            self._dropped["spool-corrupt"] += len(unreadable)
            self._done.extend(unreadable)
        self._wake()

    def was_damaged(self, saved: int) -> None:
        """The file is lost, but for so many rows, none of them read before, which have been written anew."""
        with self._lock:
            # What is in memory has lost its row, not itself.
            self._window = deque(one._replace(done=None) for one in self._window)
            self._taken = [one._replace(done=None) for one in self._taken]
            self._passing = len(self._window) + len(self._taken) + len(self._recalled)
            self._done = []
            self._dropped["spool-corrupt"] += max(0, self._unread - saved)
            self._adopted += max(0, saved - self._unread)
            self._unread = saved
            self._progress.notify_all()

    # --- for whoever looks ----------------------------------------------------------------------

    def counts(self) -> Counts:
        """The account at this moment, all of it under one lock."""
        with self._lock:
            front = self._front.counts()
            waiting = len(self._taken) + len(self._window) + len(self._recalled)
            dropped = Counter(front.dropped) + self._dropped
            now = time.time()
            first = next((one.accepted for one in (*self._taken[:1], *self._recalled[:1], *self._window)), now)
            return Counts(
                accepted=front.accepted + self._adopted - self._duplicates,
                delivered=self._delivered,
                dropped={reason: count for reason, count in dropped.items() if count},
                held=front.held + self._passing,
                # The clock may have been set back.
                oldest_age=max(0.0, now - first, front.oldest_age),
                spooled=self._unread + waiting - self._passing,
            )

    def close(self, deadline: float) -> None:
        """Writes down what is still in memory; what cannot be written by ``deadline`` is dropped."""
        with self._lock:
            self.put_back()
            self._closing = True
            self._work.notify_all()
        self._clerk.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            self._closed = True
            self._front.clear("shutdown")
            self._window.extend(self._recalled)
            self._recalled = []
            kept = [one for one in self._window if one.done is not None]
            self._dropped["shutdown"] += len(self._window) - len(kept)
            self._passing = 0
            self._window = deque(kept)
            self._progress.notify_all()

    def _something_to_write(self) -> None:
        with self._lock:
            self._work.notify()

    def _has_work(self) -> bool:
        unread = self._unread and len(self._window) < _WINDOW // 2
        return bool(self._closing or self._done or unread) or not self._front.is_exhausted()

    def _can_pass(self) -> bool:
        room = not self._unread and len(self._window) < _WINDOW
        return self._closing or (room and not self._front.is_exhausted())
