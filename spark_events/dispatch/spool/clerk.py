"""The thread that does a spool's work on the disk: writes, reads, removes, and copes when the disk does not."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator

import msgspec

from spark_events.dispatch.entries import places_for, worth_of
from spark_events.dispatch.spool.config import SpoolConfig
from spark_events.dispatch.spool.connection import is_of_the_disk
from spark_events.dispatch.spool.database import DamagedError, Database, NewRow, Row
from spark_events.dispatch.spool.desk import Desk
from spark_events.dispatch.spool.opening import PATIENT_SECONDS, Opening
from spark_events.dispatch.spool.window import Waiting
from spark_events.event import decode_event, encode_event

__all__ = ["Clerk"]

_LOG = logging.getLogger(__name__)
#: So many events are written in one transaction.
_BATCH = 512
#: When a disk that does not work is tried again, in seconds, doubling.
_RETRY_SECONDS, _RETRY_MOST_SECONDS = 0.1, 5.0
#: A disk that does not answer in this time hangs.
_HANG_SECONDS = 3.0
#: How often it is looked whether another process of the application has left something behind.
_RIVALS_SECONDS = 5.0
#: At the end everything that is left is tried so often.
_LAST_TURNS = 3


class Clerk:
    """Works on a desk until it is closed.

    Args:
        application: its name; a spool is found again by it.
        reporter: its name in the configuration.
        config: where, and how large.
        desk: what to work on.
        driver: the line that tells it.
    """

    def __init__(self, application: str, reporter: str, config: SpoolConfig, desk: Desk, driver: str = "") -> None:
        self._reporter = reporter
        self._config = config
        self._desk = desk
        self._opening = Opening(application, reporter, config, self._gets_on, driver)
        self._database: Database | None = None
        self._pause = _RETRY_SECONDS
        self._retry_at: float | None = None
        self._said: set[str] = set()
        self._reads = True
        # Since when the file that is used is said to be damaged.
        self._doubted_since: float | None = None
        # Guards the next two: nobody passes by once events have begun to get the places behind all others.
        self._looked_at = threading.Lock()
        self._busy_since: float | None = None
        self._may_be_passed = True
        self._takes_long = False
        self._goes_first = False
        self._seen_busy: float | None = None
        self._hangs = False
        self._full = False
        # Of a file that had gone and is used again: whether it may still have what was settled meanwhile.
        self._is_back = False
        self._look_again_at = 0.0
        self._ends = False
        self._thread = threading.Thread(target=self._run, name=f"spark-events-spool-{reporter}", daemon=True)

    @property
    def is_failing(self) -> bool:
        """Whether the disk did not work when it was tried last, or does not answer."""
        return self._retry_at is not None or self._hangs

    def start(self) -> None:
        """Starts the thread; the file is opened there."""
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Waits for the thread, at most ``timeout`` seconds."""
        self._thread.join(timeout)

    def check(self) -> None:
        """Lets events pass by a disk that hangs; called now and then, from another thread."""
        if self._takes_long and self._desk.is_crowded and self._pass_by() and not self._goes_first:
            self._goes_first = True
            _LOG.warning(
                "reporter %s: what earlier runs have left takes long to be taken in, some events of this one go first",
                self._reporter,
            )
        since, seen = self._busy_since, self._seen_busy
        self._seen_busy = None
        if since is None or time.monotonic() - since < _HANG_SECONDS:
            return
        self._seen_busy = since
        if seen != since:
            # Seen once, it may be this process that was stopped, and not the disk.
            return
        if not self._hangs:
            self._hangs = True
            _LOG.error(
                "reporter %s: its spool has not answered for %g s, until it does its events are in memory alone",
                self._reporter,
                _HANG_SECONDS,
            )
        self._pass_by()

    def _pass_by(self) -> bool:
        with self._looked_at:
            if self._busy_since is None or not self._may_be_passed:
                return False
            self._desk.pass_by()
            return True

    def _run(self) -> None:
        self.turn()
        while self._desk.await_work(self._retry_at is None, self._reads, self._patience()):
            self.turn()
        self._ends = True
        for _ in range(_LAST_TURNS):
            # Whatever has failed before: this is the last chance.
            self._retry_at = None
            self.turn()
            while not self.is_failing and self._desk.has_to_write():
                self.turn()
            if not self.is_failing:
                break
        # What cannot be left as it should be is found as it is.
        with contextlib.suppress(sqlite3.Error, OSError):
            self._opening.leave(self._database, self._desk.to_remove())

    def _patience(self) -> float:
        if self._retry_at is not None:
            return max(0.0, self._retry_at - time.monotonic())
        return max(0.0, self._look_again_at - time.monotonic())

    def turn(self) -> None:
        """One round of work, whether or not the disk works; for the thread."""
        if self._retry_at is None or time.monotonic() >= self._retry_at:
            self._try()
        elif self._database is not None and self._reads:
            # A disk that is full can be read.
            self._try_to_read(self._database)
        if self._retry_at is not None:
            self._desk.pass_by()

    def _try(self) -> None:
        for may_repeat in (True, False):
            try:
                self._work()
                self._works()
                return
            # Whatever it is, this thread must live: without it the events are in memory for ever.
            except Exception as error:
                if not may_repeat or not _is_damage(error) or not self._give_up_the_file(error):
                    self._fails(error)
                    return

    def _work(self) -> None:
        database = self._ready()
        try:
            with self._is_busy():
                if database.tend_log():
                    _LOG.error("reporter %s: the log of its spool was removed, another is begun", self._reporter)
                self._write(database)
                self._opening.put_away()
        finally:
            self._reads = False
            self._read(database)
            self._reads = True

    def _try_to_read(self, database: Database) -> None:
        self._reads = False
        # Why it does not work, whatever it is, will be said by the next attempt at everything.
        with contextlib.suppress(Exception):
            self._read(database)
            self._reads = True

    @contextlib.contextmanager
    def _is_busy(self, may_be_passed: bool = True, takes_long: bool = False) -> Iterator[None]:
        """For all that the disk is asked: it may hang in anything, and where much is asked, it may take long."""
        with self._looked_at:
            self._busy_since, self._may_be_passed, self._takes_long = time.monotonic(), may_be_passed, takes_long
        try:
            yield
        finally:
            with self._looked_at:
                self._busy_since = None

    def _gets_on(self) -> None:
        if self._takes_long and self._busy_since is not None:
            self._busy_since = time.monotonic()

    def _ready(self) -> Database:
        with self._is_busy():
            was_removed = self._database is not None and not self._database.is_in_place
        if self._database is not None and was_removed:
            _LOG.error("reporter %s: the file of its spool was removed, another is begun", self._reporter)
            self._opening.take_leave_of(self._database)
            self._database = None
            self._desk.was_damaged()
        if self._database is None:
            # Once events have places behind others, they wait for those, however long a disk takes to open.
            with self._is_busy(may_be_passed=not self._opening.was_open, takes_long=True):
                opened = self._opening.open(self._desk.standing(), adopts=not self._ends)
            self._database, self._is_back = opened.database, opened.is_back
            self._say_full(opened.shed)
            self._desk.opened(opened.unread, opened.lost, opened.shed, opened.is_behind)
            self._look_again_at = time.monotonic() + _RIVALS_SECONDS
        elif time.monotonic() >= self._look_again_at and not self._ends:
            self._look_again_at = time.monotonic() + _RIVALS_SECONDS
            if self._inherit(self._database):
                self._look_again_at = 0.0
        return self._database

    def _inherit(self, database: Database) -> bool:
        """Takes in a slice of what others have left; whether there is another."""
        if self._desk.is_crowded or self._desk.standing().writing:
            # One's own come first.
            return True
        if self._desk.has_backlog:
            # Where it is, it is safe. Should this process die, what has come and is not delivered is in two files.
            return False
        if is_found := self._look(database):
            with self._is_busy(may_be_passed=False, takes_long=True):
                self._opening.inherit(database, self._desk)
            is_found = self._look(database)
        return is_found

    def _look(self, database: Database) -> bool:
        with self._is_busy(takes_long=True):
            is_found = self._opening.look(database, self._desk)
        if not self._opening.is_behind:
            self._desk.nothing_is_apart()
        return is_found

    def _write(self, database: Database) -> None:
        waiting = self._desk.to_write(_BATCH)
        done = self._desk.to_remove()
        if self._is_back:
            # What is settled from now on is in what waits to be written, and known to be there once it is.
            database.forget(self._desk.standing().settled_through, ())
        if waiting or done:
            self._append(database, waiting, done)
        self._is_back = False

    def _append(self, database: Database, waiting: list[Waiting], done: list[int]) -> None:
        rows = [_row(one) for one in waiting]
        appended = database.append(rows, done, self._desk.read_through)
        self._say_full(len(appended.shed))
        self._desk.written(waiting, appended, len(done))
        if done and database.is_empty:
            self._full = False
            database.shrink()

    def _say_full(self, shed: int) -> None:
        if shed and not self._full:
            self._full = True
            _LOG.error(
                "reporter %s: its spool has reached spool.max-size (%d bytes), what is worth least is dropped",
                self._reporter,
                self._config.max_size,
            )

    def _read(self, database: Database) -> None:
        if room := self._desk.to_read():
            # What comes behind these rows waits for them.
            with self._is_busy(may_be_passed=False):
                rows = database.read(self._desk.read_through, room)
            if not rows:
                raise DamagedError("rows that were written are not there")
            self._desk.was_read(*_decoded(rows))
            if self._opening.is_inheriting and not self._desk.has_backlog:
                self._look_again_at = 0.0

    def _works(self) -> None:
        if self.is_failing:
            self._retry_at = None
            self._hangs = False
            self._said.clear()
            _LOG.warning("reporter %s: its spool works again", self._reporter)
        self._pause = _RETRY_SECONDS
        self._doubted_since = None

    def _fails(self, error: Exception) -> None:
        if str(error) not in self._said:
            self._said.add(str(error))
            _LOG.error(
                "reporter %s: its spool cannot be used, until it can its events are in memory alone: %s",
                self._reporter,
                error,
            )
        self._retry_at = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _RETRY_MOST_SECONDS)

    def _give_up_the_file(self, damage: Exception) -> bool:
        """It is set aside; when the next is opened, what can be read of it goes there. Whether that worked."""
        try:
            was_removed = self._database is not None and not self._database.is_in_place
        except OSError:
            # A disk that cannot even tell whether the file is there is waited for.
            return False
        if was_removed:
            # It can be read as long as it is open; the next attempt does.
            return True
        if self._is_waited_for(damage):
            return False
        _LOG.error("reporter %s: its spool is damaged, another is begun: %s", self._reporter, damage)
        if self._database is not None:
            self._database.close()
            self._database = self._doubted_since = None
            self._desk.was_damaged()
        try:
            self._opening.set_aside()
        except OSError as error:
            _LOG.error("reporter %s: its damaged spool cannot be set aside: %s", self._reporter, error)
            return False
        return True

    def _is_waited_for(self, damage: Exception) -> bool:
        """Whether it is the disk that fails, as far as can be seen, and has not done so for long."""
        if self._ends or self._database is None:
            return False
        if self._doubted_since is None:
            self._doubted_since = time.monotonic()
        if time.monotonic() - self._doubted_since >= PATIENT_SECONDS:
            return False
        with self._is_busy(takes_long=True):
            return is_of_the_disk(damage, self._database.connection)


def _is_damage(error: Exception) -> bool:
    """Other errors of SQLite are of a subclass, and may pass."""
    return type(error) is sqlite3.DatabaseError or isinstance(error, DamagedError)


def _row(one: Waiting) -> NewRow:
    return NewRow(one.id, one.event.event_id, worth_of(one.event), one.accepted, encode_event(one.event))


def _decoded(rows: list[Row]) -> tuple[list[Waiting], list[int]]:
    found, unreadable = [], []
    for row in rows:
        try:
            found.append(Waiting(row.id, decode_event(row.event), row.accepted, 0, True, places_for(row.size)))
        except (msgspec.MsgspecError, TypeError, ValueError):
            # Nothing checks what is in a row: also bytes that are no text, or no bytes at all, hold up nobody.
            unreadable.append(row.id)
    return found, unreadable
