"""How a spool is found, opened, and left: with what predecessors have left in it, or beside it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from spark_events.dispatch.spool.apart import Apart
from spark_events.dispatch.spool.config import SpoolConfig, directory_of
from spark_events.dispatch.spool.database import BEFORE_ALL, Database, Extent
from spark_events.dispatch.spool.files import Claim, claim
from spark_events.dispatch.spool.inflow import Heir, Inflow
from spark_events.dispatch.spool.orphans import Orphans
from spark_events.dispatch.spool.salvage import say_kept
from spark_events.dispatch.spool.takeover import Takeover
from spark_events.dispatch.spool.window import Standing

__all__ = ["Opened", "Opening"]

_LOG = logging.getLogger(__name__)


class Opened(NamedTuple):
    """A database, and what came into it.

    Attributes:
        database: open.
        unread: the rows that are not with the reporter.
        lost: rows of which it is known only now that they are lost.
        shed: rows that had to make room.
        is_behind: whether rows of an earlier file of this spool are still to come.
    """

    database: Database
    unread: Extent
    lost: int
    shed: int
    is_behind: bool


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
        # What is on its way into the file that is used.
        self._inflow: Inflow | None = None
        self.was_open = False

    def open(self, standing: Standing, adopts: bool) -> Opened:
        """Opens the spool, with everything that is left of others.

        Args:
            standing: what is in memory.
            adopts: whether there is time for what others have left.

        Raises:
            sqlite3.Error: the file cannot be used.
            OSError: the directory cannot be used.
            RuntimeError: there is no directory.
        """
        if self._claim is None:
            self._claim = claim(directory_of(self._config), self._application, self._reporter, self._driver)
        # What was in the file before it was ever read is not with the reporter.
        after = standing.read_through if self.was_open else BEFORE_ALL
        database = Database(self._claim.path, self._config.fsync, self._config.max_size, self._on_progress)
        try:
            next_id = max(standing.next_id, database.extent().last + 1)
            takeover = Takeover(database, after, next_id, standing.writing, self._on_progress)
            self._take(takeover, adopts)
            # What was lost while this process knew of it is missed by it; of the rest only a salvage can tell.
            lost = 0 if self.was_open else takeover.lost
            opened = Opened(database, database.extent(after), lost, takeover.shed, self._apart.is_left)
        except BaseException:
            database.close()
            raise
        if opened.unread.rows and not self.was_open:
            _LOG.warning(
                "reporter %s: %d events that an earlier run could not deliver are delivered now",
                self._reporter,
                opened.unread.rows,
            )
        self.was_open = True
        return opened

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
            takeover.keep(self._removed.connection)
            self._removed.close()
            self._removed = None
        if self._inflow is not None:
            # What has come of it may be lost with the file: it is looked for anew, and what was set aside comes first.
            self._inflow.close()
            self._inflow = None
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
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    def leave(self, database: Database | None) -> None:
        """Nothing is left behind but what is to be delivered."""
        if self._inflow is not None:
            self._inflow.close()
        if database is None:
            if self._claim is not None:
                self._claim.release()
            return
        is_empty = database.is_empty
        database.close()
        assert self._claim is not None
        if is_empty:
            self._claim.delete()
        else:
            self._claim.release()
