"""Tests of the invariants of a spool under random faults of the disk and the processes.

Some rules run the writer in the test's thread. The files are real. Disk faults occur in database calls:
while it opens a file, before a write, or after a commit. A failure after a commit reports a successful commit as
failed. During a hanging write, the thread dequeues events from the mailbox. Rules also corrupt and delete files and
kill processes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
from fakes import event, numbers
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from spools import CORRUPT, FAILS, FULL, Disk

from spark_events.dispatch.entries import Entry
from spark_events.dispatch.spool.spool import Spool
from spark_events.dispatch.spool.writer import SpoolConfig, SpoolWriter
from spark_events.event import Event

_MEMORY = "/dev/shm"
#: The spool is small: it holds at most 64 events for the reporter.
_MAX_BYTES = 1 << 20


class WriterOnDemand(SpoolWriter):
    """Spool writer without a thread. ``join`` runs the writer in the thread of the caller until the writer ends."""

    def start(self) -> None:
        return

    def join(self, timeout: float | None = None) -> None:
        self.run()


class SpoolMachine(RuleBasedStateMachine):
    """State machine that enqueues, dequeues, settles, kills and restarts in any order. Event lists are the model."""

    @initialize()
    def begin(self) -> None:
        # If possible, use files in memory, so that only this state machine causes hangs and failures.
        self.folder = Path(tempfile.mkdtemp(dir=_MEMORY if os.path.isdir(_MEMORY) else None))
        self.disk = Disk()
        self.disk.hang = self._in_a_write
        self.hangs: int | None = None
        self.number = 0
        self.delivered: list[int] = []
        self.taken: list[int] = []
        self.dropped: set[int] = set()
        # Numbers of the acknowledged events in a file that was corrupted or deleted.
        self.at_risk: set[int] = set()
        self.is_ordered = True
        self.others: list[Spool] = []
        self._live()

    def _live(self) -> None:
        self.spool = self._spool()

    def _spool(self) -> Spool:
        config = SpoolConfig(directory=str(self.folder), max_size=_MAX_BYTES)
        make = partial(WriterOnDemand, "shop", "audit", config, retry=(0.0, 0.0), look=0.0, batch=7)
        database = self.disk.database()
        return Spool(
            1, lambda spool: make(spool, database=database), lambda: None, lambda: None, _MAX_BYTES, hang_seconds=0.0
        )

    @property
    def writer(self) -> SpoolWriter:
        writer = self.spool._writer
        assert isinstance(writer, SpoolWriter)
        return writer

    def _in_a_write(self) -> None:
        """Hang in a write while the thread delivers events."""
        count, self.hangs = self.hangs, None
        if count is None or self.spool.memory.closing:
            return
        for _ in range(2):
            self.spool.check()
        self.counts_balance()
        if not self.taken:
            self.take(count)
            self.counts_balance()
            if self.taken and count % 2:
                self.deliver()

    # --- events -----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 40))
    def put(self, count: int) -> None:
        self._put(range(self.number + 1, self.number + count + 1))
        self.number += count

    def _put(self, which: range) -> None:
        self.spool.put([Entry(n, event_of(n)) for n in which])

    @rule(turns=st.integers(1, 6))
    def work(self, turns: int) -> None:
        for _ in range(turns):
            self.writer.turn()
            self.counts_balance()

    @precondition(lambda self: not self.taken)
    @rule(most=st.integers(1, 20))
    def take(self, most: int) -> None:
        # If the spool cannot be opened, its files may contain events of an earlier run. These events are delivered
        # later.
        if not self.spool.memory.stored.files:
            self.is_ordered = False
        self.taken = numbers(self.spool.take(most))

    @precondition(lambda self: self.taken)
    @rule()
    def deliver(self) -> None:
        self.delivered += self.taken
        self.spool.ack()
        self.taken = []

    @precondition(lambda self: self.taken)
    @rule()
    def refuse(self) -> None:
        self.dropped.update(self.taken)
        self.spool.ack("rejected")
        self.taken = []

    @precondition(lambda self: self.taken)
    @rule()
    def requeue(self) -> None:
        self.spool.requeue()
        self.taken = []

    # --- the disk ---------------------------------------------------------------------------------

    @rule(opening=st.booleans(), writing=st.sampled_from([None, FULL, FAILS]))
    def disk_fails(self, opening: bool, writing: Exception | None) -> None:
        self.disk.opening, self.disk.writing = FAILS if opening else None, writing

    @rule()
    def disk_works(self) -> None:
        self.disk.opening = self.disk.writing = self.disk.reading = None

    @rule()
    def disk_lies_once(self) -> None:
        self.disk.lies = True

    @rule(delivered=st.integers(1, 20))
    def disk_hangs_once(self, delivered: int) -> None:
        self.hangs = delivered

    @precondition(lambda self: self.spool.memory.stored.files)
    @rule(how=st.sampled_from([CORRUPT, FAILS]))
    def fail_to_read_a_file(self, how: Exception) -> None:
        self._put_at_risk()
        self.disk.reading = how
        self.writer.turn()
        self.disk.reading = None

    @precondition(lambda self: self.spool.memory.stored.files)
    @rule()
    def delete_files(self) -> None:
        self._put_at_risk()
        for found in self.folder.glob("*/audit.*/*"):
            found.unlink()

    def _put_at_risk(self) -> None:
        # Files of other drivers contain newer events that this spool may not have read yet.
        oldest = self.number + 1 if self.others else self.spool.oldest_seq() or self.number + 1
        self.at_risk.update(range(1, oldest))
        # After a loss, the driver sends events again that may already have been delivered.
        self.is_ordered = False

    # --- the processes ----------------------------------------------------------------------------

    @rule()
    def kill(self) -> None:
        """Kill the sidecar. The driver sends unacknowledged records again."""
        oldest = self.spool.oldest_seq()
        for file in {*self.spool.memory.stored.files, self.writer._own} - {None}:
            assert file is not None
            if file.database is not None:
                file.database.close()
            file.folder.release()
        self._start_again(oldest)

    @rule()
    def end(self) -> None:
        """Shut the sidecar down with a long deadline. Events that were never written are lost and counted."""
        held = self.spool.oldest_seq()
        self.spool.close(time.monotonic() + 20)
        self.counts_balance()
        counts = self.spool.counts()
        assert counts.held == 0
        self._start_again(held if counts.dropped.get("shutdown") else None)

    def _start_again(self, oldest: int | None) -> None:
        self.taken = []
        self._live()
        if oldest is not None:
            self._put(range(oldest, self.number + 1))

    @precondition(lambda self: self.disk.opening is None and self.disk.writing is None and len(self.others) < 3)
    @rule(count=st.integers(0, 10))
    def end_another_driver_of_the_same_name(self, count: int) -> None:
        """Another driver of the same name exits. The tested driver delivers the other driver's events in any order."""
        lies, self.disk.lies = self.disk.lies, False
        hangs, self.hangs = self.hangs, None
        other = self._spool()
        self.others.append(other)
        other.put([Entry(n, event_of(n)) for n in range(self.number + 1, self.number + count + 1)])
        self.number += count
        self.is_ordered = False
        # Another driver may use a file that this application has released, like the next run of this application.
        other.close(time.monotonic() + 20)
        self.disk.lies, self.hangs = lies, hangs

    # --- invariants -------------------------------------------------------------------------------

    @invariant()
    def counts_balance(self) -> None:
        counts = self.spool.counts()
        assert counts.accepted == counts.delivered + sum(counts.dropped.values()) + counts.spooled + counts.held, counts
        assert min(counts.accepted, counts.spooled, counts.held, *counts.dropped.values(), 0) == 0, counts
        assert all(file.unread >= 0 for file in self.spool.memory.stored.files)
        allowed = {"rejected", "shutdown", *(("spool-corrupt", "spool-full") if self.at_risk else ())}
        assert set(counts.dropped) <= allowed, counts

    @invariant()
    def first_deliveries_are_in_order(self) -> None:
        if self.is_ordered:
            first = list(dict.fromkeys(self.delivered))
            assert first == sorted(first)

    def missing(self) -> set[int]:
        """Return the events that were neither delivered nor rejected."""
        return set(range(1, self.number + 1)) - set(self.delivered) - self.dropped

    def teardown(self) -> None:
        """Check that with a working disk and reporter, all events are delivered and no file remains."""
        if not hasattr(self, "folder"):
            return
        try:
            self.disk_works()
            if self.taken:
                self.deliver()
            for _ in range(2 * self.number + 30):
                self.writer.turn()
                if not self.taken:
                    self.take(20)
                self.deliver()
            counts = self.spool.counts()
            assert (counts.spooled, counts.held) == (0, 0)
            assert self.missing() <= self.at_risk
            self.counts_balance()
            self.spool.close(time.monotonic() + 20)
            assert not [found for found in self.folder.glob("*/audit.*") if ".corrupt-" not in found.name]
        finally:
            shutil.rmtree(self.folder)


def event_of(number: int) -> Event:
    """Build the event with this number. Repeated calls build equal events."""
    return msgspec.structs.replace(event(number), event_id=f"{number:032x}")


TestSpoolMachine = SpoolMachine.TestCase
TestSpoolMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
