"""Detect, at the start of an application's run, earlier runs that were lost.

The driver of a lost run died without reporting that the run ended. Two sources contain records of such runs::

    spool directory   shop-3f2a9c01/run~.0/start.json   written at the start of a run, deleted at its end; the lock
                      shop-3f2a9c01/run~.0.lock         beside it is held by the run's sidecar, as for a spool file
    database          a start event without an end event

In a spool directory, a free lock proves that a run is over. A database does not show whether a run has died or is still
running under the same name. Therefore a run in a database is LOST when its heartbeats are overdue, which may be up to
two intervals after the start of the next run.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from spark_events.bridge.records import ApplicationStart
from spark_events.dispatch.spool.ownership import SpoolFolder, SpoolFolders
from spark_events.errors import SparkEventsError
from spark_events.event import Event
from spark_events.watch.sightings import Sightings, lost_event

if TYPE_CHECKING:
    from spark_events.reporters.database.config import DatabaseConfig

_LOG = logging.getLogger(__name__)
#: Name of the folder of a run. The spool files of reporters have the same parent folder, so this name is not a valid
#: reporter name.
_RUN = "run~"
_START = "start.json"
#: Interval at which this run stores a sign of life, in seconds.
_TOUCH_SECONDS = 10.0
#: Number of missing heartbeats after which an earlier run is LOST, and maximum age of the events to read, in
#: milliseconds.
_INTERVALS, _SINCE = 2.0, 7 * 86_400_000
_END_SECONDS = 1.0
_HOW = "its driver died without reporting its end; detected at the start of the next run"


class Predecessors:
    """Thread that finds lost earlier runs, and records that this run is running.

    Args:
        spool: directory of the spool; None without a spool.
        databases: databases that receive this run's events.
        is_unique: whether at most one application of this name runs at any time.
        driver: identity of this run's driver.
        found: called in this thread with each LOST event.
    """

    def __init__(
        self,
        spool: Path | None,
        databases: Sequence[DatabaseConfig],
        is_unique: bool,
        driver: str,
        found: Callable[[Event], None],
    ) -> None:
        self._spool = spool
        self._databases = list(databases)
        self._is_unique = is_unique
        self._driver = driver
        self._found = found
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        #: Folder with the mark of this run, until the mark is deleted.
        self._own: SpoolFolder | None = None
        self._unmarking = threading.Lock()
        self._is_untouchable = False

    def begin(self, start: ApplicationStart) -> None:
        """Start looking for lost runs of this application. Further calls have no effect."""
        if self._thread is None and start.app_id is not None and (self._spool is not None or self._databases):
            self._thread = threading.Thread(
                target=self._run, args=(start,), name="spark-events-predecessors", daemon=True
            )
            self._thread.start()

    def end(self) -> None:
        """Record that this run has ended. Further calls have no effect."""
        self._over.set()

    def join(self) -> None:
        """Store that this run has ended; wait a short time for the thread."""
        self._over.set()
        if self._thread is not None:
            # The thread may wait for a database for longer than this.
            self._thread.join(_END_SECONDS)
            self._unmark()

    def _run(self, start: ApplicationStart) -> None:
        try:
            for lost, at in self._in_spool(start):
                self._found(lost_event(lost, at, 0, _HOW))
        except (OSError, RuntimeError) as error:
            _LOG.warning("cannot read the spool directory, so a lost earlier run is not reported: %s", error)
        pause = 0.0
        while not self._over.wait(pause):
            pause = _TOUCH_SECONDS
            own = self._own
            if own is not None:
                self._touch(own.folder / _START)
            elif not self._databases:
                return
            for database in [*self._databases]:
                pause = min(pause, self._in_database(database, start))
        self._unmark()

    def _touch(self, mark: Path) -> None:
        try:
            os.utime(mark)
        except OSError as error:
            level = logging.DEBUG if self._is_untouchable else logging.WARNING
            self._is_untouchable = True
            _LOG.log(level, "cannot update %s, so the next run may not report a loss of this run: %s", mark, error)

    def _unmark(self) -> None:
        """Delete the mark of this run, unless it is already deleted."""
        with self._unmarking:
            own, self._own = self._own, None
        if own is not None:
            try:
                (own.folder / _START).unlink(missing_ok=True)
                own.delete()
            except OSError as error:
                _LOG.warning("cannot delete %s, so the next run reports this run as LOST: %s", own.folder, error)

    def _in_spool(self, start: ApplicationStart) -> Iterator[tuple[ApplicationStart, int]]:
        """Yield the lost runs and the time at which each was last alive; mark this run as running."""
        if self._spool is None:
            return
        folders = SpoolFolders(self._spool, start.app_name, _RUN, self._driver)
        own = folders.claim_own()
        # The folder belongs to a dead run, or to a dead sidecar of this run.
        dead = _read(own.folder)
        with self._unmarking:
            self._own = own
            # A mark written after the end of this run may remain and cause a false LOST.
            if not self._over.is_set():
                (own.folder / _START).write_bytes(msgspec.json.encode(start))
        if dead is not None and _identity(dead[0]) != _identity(start):
            yield dead
        for folder in folders.claim_dead():
            if (dead := _read(folder.folder)) is not None:
                yield dead
            (folder.folder / _START).unlink(missing_ok=True)
            folder.delete()

    def _in_database(self, config: DatabaseConfig, start: ApplicationStart) -> float:
        """Report the lost runs; return the seconds until the next check.

        Databases without an open run are not checked again.
        """
        # Import this module here, because it imports SQLAlchemy, which is needed only for a database reporter.
        from spark_events.watch.database import EventDatabase

        now = time.time_ns() // 1_000_000
        sightings = Sightings()
        try:
            EventDatabase(config, start.app_name).read(sightings, now - _SINCE)
        except SparkEventsError as error:
            _LOG.warning("cannot look for a lost earlier run; retrying in %g s: %s", _TOUCH_SECONDS, error)
            return _TOUCH_SECONDS
        waits = []
        for seen in sightings:
            identity = str(seen.attributes.get("spark.app.id")), seen.attributes.get("spark.app.attempt_id")
            if not seen.is_expected or identity == _identity(start) or seen.started > start.time:
                continue
            # A later attempt of the same application proves that this attempt has ended.
            if self._is_unique or identity[0] == start.app_id or seen.is_overdue(now, _INTERVALS):
                self._found(seen.lost())
            elif seen.interval:
                waits.append((seen.last_seen + _INTERVALS * seen.interval - now) / 1000 + 0.001)
        if not waits:
            self._databases.remove(config)
        return min(waits, default=_TOUCH_SECONDS)


def _read(folder: Path) -> tuple[ApplicationStart, int] | None:
    """Return a run that has not ended, and the time at which it was last alive, in milliseconds since the epoch."""
    try:
        at = (folder / _START).stat().st_mtime_ns // 1_000_000
        return msgspec.json.decode((folder / _START).read_bytes(), type=ApplicationStart), at
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        # The disk may have been full when the file was written.
        _LOG.warning("cannot read %s, so a lost earlier run is not reported: %s", folder / _START, error)
        return None


def _identity(start: ApplicationStart) -> tuple[str | None, str | None]:
    return start.app_id, start.attempt_id
