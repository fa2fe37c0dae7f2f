"""How a spool is found, opened, and left: with what predecessors have left in it, or beside it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from spark_events.dispatch.spool.apart import Apart
from spark_events.dispatch.spool.config import SpoolConfig, directory_of
from spark_events.dispatch.spool.connection import UnreadableError
from spark_events.dispatch.spool.database import BEFORE_ALL, Database, Extent
from spark_events.dispatch.spool.files import Claim, claim
from spark_events.dispatch.spool.inflow import Heir, Inflow
from spark_events.dispatch.spool.orphans import Orphans
from spark_events.dispatch.spool.salvage import Salvage, say_kept
from spark_events.dispatch.spool.takeover import Takeover
from spark_events.dispatch.spool.window import Standing

__all__ = ["PATIENT_SECONDS", "Opened", "Opening"]

_LOG = logging.getLogger(__name__)
#: How long a file that cannot be read is waited for, in seconds, before that is taken for damage.
PATIENT_SECONDS = 60.0


class Opened(NamedTuple):
    """A database, and what came into it.

    Attributes:
        database: open.
        unread: the rows that are not with the reporter.
        lost: rows of which it is known only now that they are lost.
        shed: rows that had to make room.
        is_behind: whether rows of an earlier file of this spool are still to come.
        is_back: whether it is a file that had gone, which still has what is in memory.
    """

    database: Database
    unread: Extent
    lost: int
    shed: int
    is_behind: bool
    is_back: bool


class Opening:
    """Knows which files are this spool's, whatever became of them.

    Args:
        application: its name.
        reporter: its name in the configuration.
        config: where, and how large.
        on_progress: called now and then while something takes long, as long as the disk answers.
        driver: the line that tells it, see :mod:`spark_events.dispatch.spool.drivers`.

    Attributes:
        was_open: whether it has been opened by this process.
    """

    def __init__(
        self,
        application: str,
        reporter: str,
        config: SpoolConfig,
        on_progress: Callable[[], None],
        driver: str = "",
    ) -> None:
        self._application = application
        self._driver = driver
        self._reporter = reporter
        self._config = config
        self._on_progress = on_progress
        self._orphans = Orphans(reporter)
        self._apart = Apart(reporter)
        self._claim: Claim | None = None
        self._removed: Database | None = None
        # Of a file that had gone and is under its name again.
        self._is_back: os.stat_result | None = None
        # What is on its way into the file that is used.
        self._inflow: Inflow | None = None
        self._unreadable_since: float | None = None
        self.was_open = False

    def open(self, standing: Standing, adopts: bool) -> Opened:
        """Opens the spool, with everything that is left of others.

        Args:
            standing: what is in memory.
            adopts: whether there is time: for what others have left, and to wait for what cannot be read now. At the
                end there is not: what there is to write is written, and the rest is the next run's.

        Raises:
            sqlite3.Error: the file cannot be used.
            OSError: the directory cannot be used.
            RuntimeError: there is no directory.
        """
        if self._claim is not None and not self._claim.is_in_place:
            # Its folder, and with it perhaps the lock that others look at.
            self._claim.release()
            self._claim = None
        if self._claim is None:
            self._claim = claim(directory_of(self._config), self._application, self._reporter, self._driver)
        self._close_what_is_back(self._claim.path)
        # What was in the file before it was ever read is not with the reporter.
        after = standing.read_through if self.was_open else BEFORE_ALL
        database = self._database(self._claim.path, adopts)
        try:
            is_back = self._is_back is not None and os.path.samestat(database.status, self._is_back)
            if is_back:
                # What was delivered meanwhile could not be removed, and what is being written may be there already.
                database.forget(standing.settled_through, standing.writing)
            next_id = max(standing.next_id, database.extent().last + 1)
            takeover = Takeover(database, after, next_id, standing.writing, self._on_progress)
            self._take(takeover, adopts)
            # What was lost while this process knew of it is missed by it; of the rest only a salvage can tell.
            lost = 0 if self.was_open else takeover.lost
            opened = Opened(database, database.extent(after), lost, takeover.shed, self._apart.is_left, is_back)
            self._is_back = None
            self._apart.begun()
        except BaseException:
            database.close()
            self._apart.not_begun()
            raise
        if opened.unread.rows and not self.was_open:
            _LOG.warning(
                "reporter %s: %d events that an earlier run could not deliver are there, and go first",
                self._reporter,
                opened.unread.rows,
            )
        self.was_open = True
        return opened

    def _close_what_is_back(self, path: Path) -> None:
        """Who opened it a second time would be kept out by the first."""
        if self._removed is not None and self._removed.path == path and self._removed.is_in_place:
            self._is_back = self._removed.status
            self._removed.close()
            self._removed = None

    def _database(self, path: Path, has_time: bool) -> Database:
        """Open, or the disk has still time to give all of it."""
        since = self._unreadable_since
        waited = 0.0 if since is None else time.monotonic() - since
        is_patient = has_time and waited < PATIENT_SECONDS
        try:
            database = Database(path, self._config.fsync, self._config.max_size, self._on_progress, is_patient)
        except (OSError, UnreadableError):
            # By now: how long a disk took to say so is no part of what it is given.
            self._unreadable_since = time.monotonic() if since is None else since
            raise
        self._unreadable_since = None
        return database

    @property
    def is_inheriting(self) -> bool:
        """Whether there is more to come of what others have left."""
        return self._inflow is not None

    @property
    def is_behind(self) -> bool:
        """Whether rows of an earlier file of this spool are still to come."""
        return self._apart.is_left

    def look(self, database: Database, heir: Heir) -> bool:
        """Looks whether what was set aside can be had now, or rivals have died; whether a slice of that is to come.

        What rivals have left is ours then, until all of it has come.
        """
        assert self._claim is not None
        if self._inflow is None or not self._inflow.advance():
            # What was set aside takes the room that is left for others.
            self._inflow = self._apart.find(self._on_progress, heir) or self._orphans.find(
                self._claim, self._on_progress, heir
            )
        return self._inflow is not None and self._inflow.fits(database)

    def inherit(self, database: Database, heir: Heir) -> None:
        """The slice comes behind what is here; nobody else may get places meanwhile.

        Raises:
            sqlite3.Error: the file cannot be used; the slice comes later.
        """
        assert self._inflow is not None
        self._inflow.take(database, heir)

    def _take(self, takeover: Takeover, adopts: bool) -> None:
        assert self._claim is not None
        if self._removed is not None:
            # It has no name any more: what cannot be read of it now will hardly be had again.
            takeover.keep(self._removed.connection, Salvage(takeover.after), is_patient=False)
            self._removed.close()
            self._removed = None
        if self._inflow is not None:
            self._inflow.close()
            self._inflow = None
        # What has come of these may be lost with the file: they are looked for anew; what was set aside comes first.
        self._orphans.let_go()
        self._apart.take_all(self._claim.damaged(), takeover)
        if adopts and not self.was_open:
            self._orphans.adopt_all(self._claim, takeover)

    def put_away(self) -> None:
        """What was in memory is on disk again: what was set aside is not needed any more.

        Raises:
            OSError: it cannot be renamed.
        """
        salvaged = self._apart.salvaged
        while salvaged and self._claim is not None:
            path, salvage = salvaged[0]
            say_kept(self._reporter, salvage, self._claim.put_away(path))
            del salvaged[0]

    def set_aside(self) -> None:
        """The file is damaged.

        Raises:
            OSError: it cannot be renamed.
        """
        if self._claim is not None:
            self._claim.set_aside()

    def take_leave_of(self, database: Database) -> None:
        """The file is not under its name any more, but can still be read as long as it is open."""
        self._removed = database
        self._is_back = None
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def leave(self, database: Database | None, done: Sequence[int]) -> None:
        """Nothing is left behind but what is to be delivered.

        Args:
            database: the file, if it is open.
            done: rows that are settled and could not be removed: a disk that is full has no room for that.
        """
        try:
            self._leave(database, done)
        finally:
            # Where that has made room, there is room to remove from another's file what was settled of it.
            if self._inflow is not None:
                self._inflow.close()
            self._orphans.let_go()

    def _leave(self, database: Database | None, done: Sequence[int]) -> None:
        if database is None:
            if self._claim is not None:
                self._claim.release()
            return
        is_empty = database.has_only(done)
        database.close()
        assert self._claim is not None
        if is_empty:
            self._claim.delete()
        else:
            self._claim.release()
