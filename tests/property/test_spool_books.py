"""The conservation law of a spool, its order, and that nothing is lost, whatever the disk and the process do.

The clerk works here when the machine says so, in the machine's own thread. The disk is a real file; it fails
at the seam where the database is called: before a write, after a commit that nobody hears of, while reading,
while opening; it hangs, so that events pass by in the middle of a write; it is removed, and it is damaged.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from fakes import event, numbers
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_events.dispatch.entries import Entries, Entry
from spark_events.dispatch.spool import clerk as clerk_module
from spark_events.dispatch.spool import opening as opening_module
from spark_events.dispatch.spool import spool as spool_module
from spark_events.dispatch.spool.clerk import Clerk
from spark_events.dispatch.spool.config import SpoolConfig
from spark_events.dispatch.spool.database import Appended, DamagedError, Database, NewRow, Row
from spark_events.dispatch.spool.spool import Spool
from spark_events.event import Event

WINDOW = 4
_MEMORY = "/dev/shm"


@dataclasses.dataclass
class Disk:
    """What is wrong with it."""

    opens: bool = True
    writes: bool = True
    reads: bool = True
    #: The next commit is made, and reported as a failure.
    lies: bool = False
    #: The next write hangs, so long that events pass by; so many of them are delivered meanwhile.
    hangs: int | None = None


class FaultyDatabase(Database):
    """The real one, on a disk of which a test decides what is wrong."""

    disk: Disk
    while_it_hangs: Callable[[int], None]

    def __init__(self, *how: Any) -> None:
        if not self.disk.opens:
            raise sqlite3.OperationalError("unable to open database file")
        super().__init__(*how)

    def append(self, rows: Sequence[NewRow], done: Sequence[int], protected: int) -> Appended:
        if not self.disk.writes:
            raise sqlite3.OperationalError("database or disk is full")
        if self.disk.hangs is not None:
            delivered, self.disk.hangs = self.disk.hangs, None
            self.while_it_hangs(delivered)
        appended = super().append(rows, done, protected)
        if self.disk.lies:
            self.disk.lies = False
            raise sqlite3.OperationalError("disk I/O error")
        return appended

    def read(self, after: int, most: int) -> list[Row]:
        if not self.disk.reads:
            raise sqlite3.OperationalError("disk I/O error")
        return super().read(after, most)


class ClerkOnDemand(Clerk):
    """Works in the thread of whoever asks; at the end, when he is waited for."""

    def start(self) -> None:
        return

    def join(self, timeout: float) -> None:
        self._run()


class SpoolBooks(RuleBasedStateMachine):
    """Puts, takes, settles, kills and restarts in any order, beside lists of what was promised and delivered."""

    @initialize(max_bytes=st.just(1 << 20))
    def begin(self, max_bytes: int) -> None:
        # Where there is one, a disk that does not wait for a disk.
        self.folder = tempfile.mkdtemp(dir=_MEMORY if os.path.isdir(_MEMORY) else None)
        self.patches: list[mock._patch[Any]] = [
            mock.patch.object(clerk_module, "_RETRY_SECONDS", 0.0),
            mock.patch.object(opening_module, "Database", FaultyDatabase),
            mock.patch.object(spool_module, "_WINDOW", WINDOW),
            mock.patch.object(clerk_module, "_BATCH", 3),
        ]
        for patch in self.patches:
            patch.start()
        self.config = SpoolConfig(directory=self.folder, max_size=max_bytes)
        self.disk = FaultyDatabase.disk = Disk()
        self.number = 0
        self.delivered: list[int] = []
        self.taken: list[int] = []
        self.refused: set[int] = set()
        self.given_up: set[int] = set()
        self.blind = False
        self.lied = False
        self._live()

    def _live(self) -> None:
        FaultyDatabase.while_it_hangs = self._hang
        self.spool = Spool(1, self._clerk, lambda: None, lambda: None)
        self.removed = False

    def _clerk(self, spool: Spool) -> Clerk:
        self.clerk = ClerkOnDemand("shop", "audit", self.config, spool)
        return self.clerk

    def _hang(self, delivered: int) -> None:
        if not self.clerk._may_be_passed:
            return
        self.blind = self.blind or not self.clerk._opening.was_open
        self.spool.pass_by()
        self._law()
        if not self.taken and delivered:
            self._take(delivered)
            self._deliver()
        self._law()

    # --- what happens -----------------------------------------------------------------------------

    @rule(count=st.integers(1, 5))
    def put(self, count: int) -> None:
        self.spool.put(Entries([Entry(n, event_of(n)) for n in range(self.number + 1, self.number + count + 1)]))
        self.number += count

    @rule()
    def clerk_works(self) -> None:
        self._work()

    def _work(self) -> None:
        was_open = self.clerk._opening.was_open
        self.clerk.turn()
        if not was_open and self.spool._window.passing:
            self.blind = True

    @precondition(lambda self: not self.taken)
    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        self._take(most)

    def _take(self, most: int) -> None:
        self.taken = numbers(self.spool.take(most))

    @precondition(lambda self: self.taken)
    @rule()
    def deliver(self) -> None:
        self._deliver()

    def _deliver(self) -> None:
        self.delivered += self.taken
        self.spool.settle()
        self.taken = []

    @precondition(lambda self: self.taken)
    @rule()
    def refuse(self) -> None:
        self.refused.update(self.taken)
        self.spool.settle("rejected")
        self.taken = []

    @precondition(lambda self: self.taken)
    @rule()
    def put_back(self) -> None:
        self.spool.put_back()
        self.taken = []

    # --- the disk ---------------------------------------------------------------------------------

    @rule(opens=st.booleans(), writes=st.booleans(), reads=st.booleans())
    def disk_fails(self, opens: bool, writes: bool, reads: bool) -> None:
        self.disk.opens, self.disk.writes, self.disk.reads = opens, writes, reads

    @rule()
    def disk_works(self) -> None:
        self.disk.opens = self.disk.writes = self.disk.reads = True

    @rule()
    def disk_lies_once(self) -> None:
        self.disk.lies = self.lied = True

    @rule(delivered=st.integers(0, 3))
    def disk_hangs_once(self, delivered: int) -> None:
        self.disk.hangs = delivered

    @precondition(lambda self: self.clerk._database is not None)
    @rule()
    def somebody_removes_the_files(self) -> None:
        for found in Path(self.folder).glob("*/audit.0/*"):
            found.unlink()
        self.removed = True

    @precondition(lambda self: self.clerk._database is not None)
    @rule()
    def the_file_is_damaged(self) -> None:
        """Every row can still be read."""
        self.clerk._give_up_the_file(DamagedError("database disk image is malformed"))

    # --- the process ------------------------------------------------------------------------------

    @precondition(lambda self: not self.lost_with_the_process())
    @rule()
    def kill(self) -> None:
        """The driver sends again what was not acknowledged, in order."""
        oldest = self.spool.oldest_record()
        # What the driver has forgotten is not sent again.
        self.given_up |= {number for number in self._on_no_disk() if oldest is None or number < oldest}
        if self.clerk._database is not None:
            self.clerk._database.close()
        self._end(oldest)

    def _on_no_disk(self) -> set[int]:
        """Somebody has removed the file that these were safe in, and so far there was no other to write them to."""
        return {int(one.event.body) for one in self.spool._window.unwritten() if self.removed}

    def lost_with_the_process(self) -> bool:
        """A file that was removed while it was open is gone with its process; what is only there cannot be had."""
        database = self.clerk._database
        return (database is not None and not database.is_in_place) or self.clerk._opening._removed is not None

    @precondition(lambda self: not self.lost_with_the_process())
    @rule()
    def end(self) -> None:
        """With time enough, as at the end of an application; what no disk has taken is sent again here, too."""
        oldest = self.spool.oldest_record()
        on_no_disk = self._on_no_disk()
        self.spool.close(time.monotonic() + 20)
        counts = self.spool.counts()
        assert counts.held == 0
        assert counts.accepted == counts.delivered + sum(counts.dropped.values()) + counts.spooled
        if counts.dropped.get("shutdown"):
            self.given_up |= on_no_disk
        else:
            oldest = None
        self.taken = []
        self._end(oldest, released=True)

    def _end(self, oldest: int | None, released: bool = False) -> None:
        if not released and self.clerk._opening._claim is not None:
            self.clerk._opening._claim.release()
        self.taken = []
        self._live()
        if oldest is not None:
            self.spool.put(Entries([Entry(n, event_of(n)) for n in range(oldest, self.number + 1)]))

    # --- what holds -------------------------------------------------------------------------------

    @invariant()
    def nothing_is_unaccounted_for(self) -> None:
        self._law()

    def _law(self) -> None:
        counts = self.spool.counts()
        assert counts.accepted == counts.delivered + sum(counts.dropped.values()) + counts.spooled + counts.held, counts
        assert min(counts.accepted, counts.spooled, counts.held, *counts.dropped.values(), 0) == 0, counts
        assert not set(counts.dropped) - {"rejected", "shutdown"}, counts

    @invariant()
    def what_comes_first_is_told_first(self) -> None:
        if not self.blind:
            first = list(dict.fromkeys(self.delivered))
            assert first == sorted(first)

    def missing(self) -> set[int]:
        """Neither delivered nor refused, nor to be given up."""
        return set(range(1, self.number + 1)) - set(self.delivered) - self.refused - self.given_up

    def teardown(self) -> None:
        """With a disk that works and a reporter that takes everything, everything is delivered in the end."""
        if not hasattr(self, "folder"):
            return
        try:
            self.disk_works()
            if self.taken:
                self._deliver()
            for _ in range(2 * self.number + 20):
                self._work()
                self._take(3)
                self._deliver()
            assert not self.spool.counts().spooled
            assert not self.spool.counts().held
            assert not self.missing()
            self.what_comes_first_is_told_first()
            self.spool.close(time.monotonic() + 20)
            # What was written though it seemed not to be, and was delivered from memory, comes once more.
            assert self.lied or not list(Path(self.folder).glob("*/audit.[0-9]"))
        finally:
            for patch in self.patches:
                patch.stop()
            shutil.rmtree(self.folder)


def event_of(number: int) -> Event:
    """The same, however often it is sent."""
    return msgspec.structs.replace(event(number), event_id=f"{number:032x}")


TestSpoolBooks = SpoolBooks.TestCase
TestSpoolBooks.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


FULL: dict[str, Any] = {"opens": True, "writes": False, "reads": False}
#: What is rare at random, and was wrong once.
STORIES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "what comes later waits for what only a disk has that cannot be read": [
        *[("put", {"count": 5}), ("clerk_works", {})] * 2,
        ("disk_fails", FULL),
        ("put", {"count": 3}),
        *[("take", {"most": 4}), ("deliver", {}), ("clerk_works", {})] * 3,
    ],
    "what seemed not to be written is not counted twice when the file is removed": [
        ("put", {"count": 3}),
        ("clerk_works", {}),
        ("put", {"count": 2}),
        ("clerk_works", {}),
        ("disk_lies_once", {}),
        ("put", {"count": 1}),
        *[("clerk_works", {}), ("somebody_removes_the_files", {})] * 2,
        ("clerk_works", {}),
    ],
    "what was in memory is still in the damaged file when no other could be written": [
        ("put", {"count": 1}),
        ("clerk_works", {}),
        ("the_file_is_damaged", {}),
        ("disk_fails", FULL),
        ("end", {}),
    ],
    "what was in a removed file dies with the process when no other could be written": [
        ("put", {"count": 1}),
        ("clerk_works", {}),
        ("somebody_removes_the_files", {}),
        ("disk_fails", FULL),
        ("clerk_works", {}),
        ("kill", {}),
    ],
    "a removed file that is found damaged can still be read": [
        ("put", {"count": 5}),
        *[("clerk_works", {})] * 2,
        ("somebody_removes_the_files", {}),
        ("the_file_is_damaged", {}),
        ("clerk_works", {}),
    ],
}


@pytest.mark.parametrize("story", STORIES)
def test_what_was_wrong_once(story: str) -> None:
    """The same machine, told what to do."""
    machine = SpoolBooks()
    machine.begin(max_bytes=1 << 20)
    try:
        for what, how in STORIES[story]:
            getattr(machine, what)(**how)
            machine.nothing_is_unaccounted_for()
            machine.what_comes_first_is_told_first()
    finally:
        machine.teardown()
    assert machine.missing() == set()
