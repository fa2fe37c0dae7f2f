"""A reporter's store on disk: an event that has been written survives this process and its application.

What is put waits in a mailbox until the clerk, the only thread that touches the disk, has written it; until
then its record is not acknowledged, so that the driver sends it again to a successor. What is written goes
on to a small window in memory, from which the reporter's worker takes; what does not fit stays on disk alone
and is read when there is room. So a disk that hangs stops this reporter alone. While the disk cannot be
written, events pass by it, into the window, and are written as soon as it can be, if they are still there.

Every event has a place, a number that goes up. All that is in memory comes before all that is on disk alone.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from spark_events.dispatch.entries import Entries, Entry
from spark_events.dispatch.mailbox import Mailbox
from spark_events.dispatch.spool.database import Appended, Extent
from spark_events.dispatch.spool.desk import DiskWorker
from spark_events.dispatch.spool.inflow import Came
from spark_events.dispatch.spool.window import Standing, Waiting, Window
from spark_events.dispatch.store import Counts, dropped_of
from spark_events.event import Event

__all__ = ["Spool"]

#: So many events are in memory ahead of the reporter, at most.
_WINDOW = 2_048
#: What is in memory makes no room on disk: of a small spool it must be a small part. Bytes of the spool for each event.
_WINDOW_SHARE, _LEAST_WINDOW = 8_192, 64
#: However small the queue: what is handed over at once finds room in front of a disk that works.
_FRONT = 1_024
#: A disk that makes no room in this time is not waited for any longer.
_STALL_SECONDS = 1.0
#: A disk that makes room, or writes, in this time keeps up with a burst.
_QUICK_SECONDS = 0.25
#: At the end, how long a disk that does not work is waited for, in seconds.
_LAST_CHANCE_SECONDS = 0.5


class Spool:
    """What the threads share: the mailbox in front, the window behind, and the account of everything.

    Args:
        capacity: how many events wait in memory for the disk.
        clerk: makes the one that writes and reads.
        wake: called when there is something to take.
        on_progress: called when events have become safe, or have come to their end.
        max_bytes: how large it may be on disk.
    """

    def __init__(
        self,
        capacity: int,
        clerk: Callable[[Spool], DiskWorker],
        wake: Callable[[], None],
        on_progress: Callable[[], None],
        max_bytes: int = _WINDOW * _WINDOW_SHARE,
    ) -> None:
        self._ahead = min(_WINDOW, max(_LEAST_WINDOW, max_bytes // _WINDOW_SHARE))
        self._lock = threading.RLock()
        self._progress = threading.Condition(self._lock)
        self._work = threading.Condition(self._lock)
        self._wake = wake
        self._on_progress = on_progress
        self._front = Mailbox(max(capacity, _FRONT), self._lock)
        # What the clerk is writing of the front.
        self._writing: list[Waiting] = []
        self._window = Window()
        self._done: list[int] = []
        # Events that are on disk alone; and those of a file that was set aside and cannot be read yet.
        self._unread = self._apart = 0
        self._adopted = 0
        self._duplicates = 0
        self._delivered = 0
        self._dropped: Counter[str] = Counter()
        # Whoever dispatches has waited for a disk that did not keep up, and it has written nothing quickly since.
        self._stalled = False
        self._writing_since = 0.0
        self._closing = False
        self._closed = False
        self._next_id = 1
        self._clerk = clerk(self)

    @property
    def read_through(self) -> int:
        """The place of the last event that is, or was, in memory."""
        return self._window.read_through

    @property
    def is_durable(self) -> bool:
        """What is on disk outlives the process."""
        return True

    def start(self) -> None:
        """Starts the clerk, who opens the file."""
        self._clerk.start()

    def check(self) -> None:
        """Lets events pass by a disk that hangs."""
        self._clerk.check()

    # --- for the thread that translates ---------------------------------------------------------

    def put(self, entries: Entries) -> bool:
        """Takes entries in; they are safe once :meth:`oldest_record` does not name theirs any more."""
        with self._lock:
            if self._front.put(entries):
                self._work.notify()
        # It is the clerk who has something to do; he wakes the worker.
        return False

    def oldest_record(self) -> int | None:
        """The oldest record of which an event is on no disk."""
        with self._lock:
            front = self._front.oldest_record()
            records = [] if front is None else [front]
            # What was on a disk that has lost it is not known to the driver any more.
            records += [one.record for one in self._window.unwritten() if one.record]
            return min(records, default=None)

    def unanswered_for(self) -> float:
        """The age of the oldest event that is on no disk; what is there may wait for days."""
        with self._lock:
            now = time.time()
            passing = [one.accepted for one in self._window.unwritten() if one.record]
            # The clock may have been set back.
            return max(self._front.unanswered_for(), now - min(passing, default=now))

    def wait_until_answered(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in is safe, or delivered."""
        with self._lock:
            return self._progress.wait_for(lambda: self.oldest_record() is None, timeout)

    def wait_until_empty(self, timeout: float) -> bool:
        """Waits, at most ``timeout`` seconds, until everything put in has been settled."""
        with self._lock:
            return self._progress.wait_for(lambda: self._holds_none() and not self._window.taken, timeout)

    def wait_for_room(self, places: int, timeout: float) -> bool:
        """Waits for the disk, so that nothing that it could keep is shed; not for one that hangs, fails or is slow.

        Whoever waits dispatches to the others, too: that a disk is slow is found out once, until it has been quick.
        """
        if self._clerk.is_failing or self._stalled:
            return False
        began = time.monotonic()
        fits = self._front.wait_for_room(min(places, _FRONT), max(timeout, _STALL_SECONDS))
        self._stalled = not fits or time.monotonic() - began >= _QUICK_SECONDS
        return fits

    # --- for the reporter's worker --------------------------------------------------------------

    def take(self, most: int) -> list[Event]:
        """The oldest events that are in memory."""
        with self._lock:
            events = self._window.take(most)
            if self._window.places < self._ahead // 2:
                self._work.notify()
            return events

    def settle(self, dropped: str | None = None, count: int | None = None) -> None:
        """What was taken has come to its end; the clerk removes it."""
        with self._lock:
            taken = len(self._window.taken)
            lost = dropped_of(taken, dropped, count)
            self._delivered += taken - lost
            if dropped is not None:
                self._dropped[dropped] += lost
            self._done.extend(self._window.settle())
            self._work.notify()
            self._progress.notify_all()

    def put_back(self) -> None:
        """What was taken is to be taken again."""
        with self._lock:
            self._window.put_back()

    def is_exhausted(self) -> bool:
        """Whether nothing is left that can be had, neither here nor on a disk that works."""
        with self._lock:
            return self._closed or self._holds_none(but_unread=self._clerk.is_failing)

    def _holds_none(self, but_unread: bool = False) -> bool:
        return not (self._window.places or self._front.holds_any or (self._unread and not but_unread))

    # --- for the clerk --------------------------------------------------------------------------

    def await_work(self, writes: bool, reads: bool, timeout: float | None) -> bool:
        """Waits until there is something to do for a disk that does so much; False when the spool is to be closed."""
        with self._lock:
            self._work.wait_for(lambda: self._closing or self._has_work(writes, reads), timeout)
            return not self._closing

    def _has_work(self, writes: bool, reads: bool) -> bool:
        if self._unread and reads and self._window.places < self._ahead // 2:
            return True
        if writes:
            return bool(self._done or self._front.holds_any)
        return not self._unread and self._window.places < _WINDOW and self._front.holds_any

    def standing(self) -> Standing:
        """What of the file is in memory."""
        with self._lock:
            writing = frozenset(one.id for one in self._writing)
            return Standing(self._window.settled_through, self.read_through, self._next_id, writing)

    def opened(self, unread: Extent, lost: int, shed: int, is_behind: bool) -> None:
        """So much is on disk alone: what was there before, and what has come of it again.

        Args:
            unread: what is behind :attr:`read_through`; all that there is, the first time.
            lost: events of which it becomes known now that they were there, and are lost.
            shed: events that came, or were there, and for which there is no room.
            is_behind: whether what is missing is still to come.
        """
        with self._lock:
            missing = self._unread + self._apart - unread.rows - lost - shed
            self._apart = max(0, missing) if is_behind else 0
            self._adopted += max(0, -missing)
            self._dropped.update({"spool-corrupt": max(0, missing) - self._apart + lost, "spool-full": shed})
            self._unread = unread.rows
            self._next_id = max(self._next_id, unread.last + 1)
            if unread.rows and self.read_through >= unread.first:
                # They had passed by before it could be known that others were there.
                self._window.move_before(unread.first)
            self._progress.notify_all()

    def inherited(self, came: Came) -> None:
        """A slice has come from elsewhere."""
        with self._lock:
            # Those of an earlier file were accepted by this process, as far as it knew of them.
            known = min(self._apart, came.rows) if came.is_own else 0
            self._apart -= known
            self._adopted += came.rows - known
            self._unread += came.unread
            self._dropped.update(came.dropped)

    def nothing_is_apart(self) -> None:
        """All that was set aside has been read: what has not come of it is lost."""
        with self._lock:
            self._dropped["spool-corrupt"] += self._apart
            self._apart = 0

    def reserve(self, count: int) -> int:
        """The first of so many places behind all others."""
        with self._lock:
            self._next_id += count
            return self._next_id - count

    def to_write(self, most: int) -> list[Waiting]:
        """Events that are on no disk yet: what has passed it by and is still here, then what is new."""
        with self._lock:
            # What could not be written keeps its place: a commit may have been made though it failed.
            self._writing = self._writing or self._numbered(self._front.take_entries(most))
            self._writing_since = time.monotonic()
            return [*self._window.unwritten(), *self._writing]

    def _numbered(self, entries: list[Entry]) -> list[Waiting]:
        now, first = time.time(), self.reserve(len(entries))
        return [
            Waiting(place, entry.event, now, entry.record, places=entry.places)
            for place, entry in enumerate(entries, first)
        ]

    def has_to_write(self) -> bool:
        """Whether something is on no disk yet, or still to be removed from it."""
        with self._lock:
            return bool(self._done or self._window.passing or self._front.holds_any)

    def to_remove(self) -> list[int]:
        """Rows that are settled; they stay on the list until they are removed."""
        with self._lock:
            return list(self._done)

    def written(self, given: list[Waiting], appended: Appended, removed: int) -> None:
        """What was to be written is on disk; so many rows of what was to be removed are not any more."""
        with self._lock:
            if self._closed:
                return
            del self._done[:removed]
            elsewhere, duplicates = self._window.written(appended)
            self._duplicates += duplicates
            others_shed = len(appended.shed.difference(one.id for one in given))
            self._unread -= others_shed
            self._dropped["spool-full"] += others_shed
            for one in self._writing:
                if one.id not in appended.added:
                    self._duplicates += one.id in appended.duplicates
                    self._dropped["spool-full"] += one.id in appended.shed
                elif self._unread or self._window.places >= self._ahead:
                    self._unread += 1
                else:
                    self._window.extend([one._replace(record=0, on_disk=True)])
            # Delivered while they were being written.
            self._done.extend(elsewhere.difference(one.id for one in self._writing))
            self._writing = []
            self._front.settle()
            self._stalled = self._stalled and time.monotonic() - self._writing_since >= _QUICK_SECONDS
            self._progress.notify_all()
        self._wake()
        self._on_progress()

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits for the disk that soon something would have to be shed."""
        return not self._front.wait_for_room(_FRONT // 2, 0.0)

    @property
    def has_backlog(self) -> bool:
        """Whether events are on disk alone: more than the reporter keeps up with."""
        return self._unread > 0

    def pass_by(self) -> None:
        """The disk does not work: what would be written goes to the reporter without, behind what is on disk."""
        with self._lock:
            # At the end nobody is there to take it: it is better off where the next to be written is.
            if not self._closing and not self._unread:
                passing = self._writing
                self._writing = []
                self._front.settle()
                passing += self._numbered(self._front.take_entries(max(0, _WINDOW - self._window.places)))
                self._front.settle()
                self._window.extend(passing)
        self._wake()

    def to_read(self) -> int:
        """How many rows may be read into the window now, or fewer if they are large."""
        with self._lock:
            return min(self._unread, max(0, self._ahead - self._window.places))

    def was_read(self, found: list[Waiting], unreadable: list[int]) -> None:
        """Rows have been read, the next ones in their order; some may be no events."""
        with self._lock:
            self._window.extend(found)
            self._unread -= len(found) + len(unreadable)
            self._dropped["spool-corrupt"] += len(unreadable)
            self._done.extend(unreadable)
            self._window.read_through = max([one.id for one in found[-1:]] + unreadable[-1:])
        self._wake()

    def was_damaged(self) -> None:
        """The file is given up; what is in memory has lost its row, not itself."""
        with self._lock:
            self._window.lose_rows()
            self._done = []

    # --- for whoever looks ----------------------------------------------------------------------

    def counts(self) -> Counts:
        """The account at this moment, all of it under one lock."""
        with self._lock:
            front = self._front.counts()
            dropped = Counter(front.dropped) + self._dropped
            now = time.time()
            return Counts(
                accepted=front.accepted + self._adopted - self._duplicates,
                delivered=self._delivered,
                dropped={reason: count for reason, count in dropped.items() if count},
                held=front.held + self._window.passing,
                # The clock may have been set back.
                oldest_age=max(0.0, now - self._window.oldest(now), front.oldest_age),
                spooled=self._unread + self._apart + self._window.stored,
            )

    def close(self, deadline: float) -> None:
        """Writes down what is still in memory; what cannot be written by ``deadline`` is dropped."""
        with self._lock:
            self.put_back()
            self._closing = True
            self._work.notify_all()
        left = max(0.0, deadline - time.monotonic())
        self._clerk.join(min(left, _LAST_CHANCE_SECONDS) if self._clerk.is_failing else left)
        with self._lock:
            self._closed = True
            self._front.clear("shutdown")
            self._dropped["shutdown"] += self._window.drop_unwritten()
            self._progress.notify_all()
