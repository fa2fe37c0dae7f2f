"""Thread that performs all disk accesses of a spool: writes, reads, deletions and retries."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from pathlib import Path

import msgspec

from spark_events.config import boolean, option, path, size, state_folder
from spark_events.dispatch.entries import priority_of, weight_for
from spark_events.dispatch.spool.disk import DiskRetry
from spark_events.dispatch.spool.ownership import SpoolFolders
from spark_events.dispatch.spool.spool_database import CorruptFileError, SpoolDatabase, is_corruption
from spark_events.dispatch.spool.spool_memory import SpoolMemory
from spark_events.dispatch.spool.stored import SpoolFile, StoredEvent
from spark_events.event import decode_event, encode_event

_LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class SpoolConfig:
    """Settings under ``events.reporter.<name>.spool.``."""

    directory: str | None = option(
        "spool.directory", path("the path of a directory"), None, doc="Directory of the spool, for at-least-once."
    )
    max_size: int = option(
        "spool.max-size",
        size,
        256 << 20,
        doc="Maximum size of the spool; beyond it, events of the lowest priority are dropped. With mixed severities, "
        "events of the highest priority can use about half of this size.",
    )
    fsync: bool = option(
        "spool.fsync", boolean, False, doc="Call fsync after every write, so that the spool survives a power cut."
    )

    @property
    def folder(self) -> Path:
        """Return the directory of the spool; the default is in the state directory of the XDG specification.

        Raises:
            RuntimeError: when the user has no home directory.
        """
        if self.directory is not None:
            return Path(self.directory)
        return state_folder() / "spool"


class SpoolWriter(threading.Thread):
    """Thread that performs the disk accesses of one spool until the spool is closed."""

    def __init__(
        self,
        application: str,
        reporter: str,
        config: SpoolConfig,
        memory: SpoolMemory,
        driver: str = "",  # the driver's identity; empty if unknown
        retry: tuple[float, float] = (0.1, 5.0),  # first and longest pause after a failure of the disk, in seconds
        look: float = 5.0,  # seconds between two searches for files of dead owners
        batch: int = 512,  # maximum number of events in one transaction
        database: type[SpoolDatabase] = SpoolDatabase,
    ) -> None:
        super().__init__(name=f"spark-events-spool-{reporter}", daemon=True)
        self._names = application, reporter, driver
        self._reporter = reporter
        self._config = config
        self._memory = memory
        self._retry = DiskRetry(*retry)
        self._look = look
        self._batch = batch
        self._database = database
        self._folders: SpoolFolders | None = None
        self._own: SpoolFile | None = None
        # File of the current disk access, to which an error during the access is attributed.
        self._used: SpoolFile | None = None
        self._look_at = 0.0
        self._logged: set[str] = set()
        self._ends = False

    def run(self) -> None:
        """Make disk accesses until the spool is closed; then write the remaining events and delete settled files."""
        self.turn()
        while self._memory.await_work(self._patience()):
            self.turn()
        self._ends, self._retry.at = True, 0.0
        self.turn()
        while self._memory.has_to_write():
            self.turn()
        for file in filter(None, {*self._memory.stored.files, self._own}):
            self._leave(file)

    def _patience(self) -> float:
        """Return the seconds until there may be work, if nothing is to be written or read before."""
        return (self._retry.at if self._memory.disk.is_failing else self._look_at) - time.monotonic()

    def turn(self) -> None:
        """Write, delete and read once; after a failure, a later call retries."""
        with self._memory.disk_access():
            try:
                self._used = None
                if self._retry.is_due:
                    self._write()
                    self._retry.worked()
                    if self._memory.disk.is_failing:
                        self._memory.disk.is_failing = False
                        self._logged.clear()
                        _LOG.warning("reporter %s: the spool works again", self._reporter)
                if not self._ends and (next_ := self._memory.to_read()):
                    self._read(*next_)
            # Catch every exception: without this thread, no event reaches the disk.
            except Exception as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Set a corrupt file aside; for any other error, schedule a retry."""
        if self._used is not None and is_corruption(error):
            try:
                self._set_aside(self._used, error)
                return
            except OSError as failure:
                error = failure
        if self._own is not None and "full" not in str(error):
            # A commit that reported an error may have succeeded; opening the file again shows the result. A full disk
            # can still be read.
            self._close(self._own)
        self._log_once(
            f"spool unavailable; buffering events in memory, retrying within {self._retry.longest:g} s", error
        )
        self._memory.disk.is_failing = True
        self._retry.failed()

    def _log_once(self, what: str, error: Exception) -> None:
        if str(error) not in self._logged:
            self._logged.add(str(error))
            _LOG.error("reporter %s: %s: %s", self._reporter, what, error)

    def _set_aside(self, file: SpoolFile, error: Exception) -> None:
        """Rename a corrupt file, and continue without this file."""
        self._close(file)
        kept = f"kept as {file.folder.quarantine()}" if file.folder.path.exists() else "the file no longer exists"
        file.folder.delete()
        self._own = None if file is self._own else self._own
        self._look_at = 0.0
        lost = self._memory.discard(file)
        what = f"spool file {file.folder.path} is corrupt ({error}); {kept}; {lost} undelivered events lost"
        _LOG.error("reporter %s: %s; continuing without it", self._reporter, what)

    def _open(self, file: SpoolFile, index: int) -> None:
        if file.database is not None:
            return
        self._used = file
        limits = self._config.fsync, self._config.max_size
        database = self._database(file.folder.path, *limits, file.read_through, file.last_id)
        if database.rows and file.last_id < 0:
            what = f"delivering {database.rows} events of an earlier run first ({file.folder.path})"
            _LOG.warning("reporter %s: %s", self._reporter, what)
        self._memory.opened(file, index, database)

    def _close(self, file: SpoolFile) -> None:
        if file.database is not None:
            file.last_id = file.database.last_id
            file.database.close()
            file.database = None

    def _leave(self, file: SpoolFile) -> None:
        """Close a file; delete the file if all its events are settled, otherwise release it."""
        try:
            self._close(file)
            if self._memory.is_settled(file):
                file.folder.delete()
            else:
                file.folder.release()
        except Exception as error:
            # This process keeps the lock, so no process acquires the file during this run.
            what = f"cannot close {file.folder.path}; the next run may deliver some of its events again"
            self._log_once(what, error)

    def _find_dead(self) -> None:
        """Delete a dead owner's file when all its events are settled; then open the next such file."""
        assert self._folders is not None
        first = self._memory.stored.files[0]
        if first is not self._own and self._memory.is_settled(first):
            self._leave(first)
            self._memory.stored.files = self._memory.stored.files[1:]
            self._look_at = 0.0
        if self._memory.stored.files[0] is not self._own or time.monotonic() < self._look_at or self._ends:
            return
        self._look_at = time.monotonic() + self._look
        for folder in self._folders.claim_dead():
            try:
                self._open(SpoolFile(folder), 0)
            except Exception as error:
                if is_corruption(error):
                    raise
                folder.release()
                self._log_once(f"cannot open a file of an earlier run; retrying every {self._look:g} s", error)
            else:
                # Process the file that was opened: if it is empty, this call deletes it and opens the next file.
                self._find_dead()
                return

    def _write(self) -> None:
        if self._own is None:
            self._folders = self._folders or SpoolFolders(self._config.folder, *self._names)
            self._own = SpoolFile(self._folders.claim_own())
        own = self._own
        self._open(own, len(self._memory.stored.files))
        self._find_dead()
        self._used = own
        assert own.database is not None
        batch, through, now = self._memory.to_write(self._batch), self._memory.settled_through(own), time.time()
        if batch or through > own.deleted_through:
            try:
                rows = [(e.event.event_id, priority_of(e.event), now, encode_event(e.event)) for e in batch]
                appended = own.database.append(rows, through, own.read_through)
            except BaseException:
                self._memory.not_written(batch)
                raise
            own.deleted_through = through
            self._memory.written(own, batch, appended)
        first = self._used = self._memory.stored.files[0]
        # After a failed attempt to set the file aside, the file is closed.
        self._open(first, 0)
        assert first.database is not None
        through = self._memory.settled_through(first)
        if through > first.deleted_through and not self._memory.is_settled(first):
            first.database.append((), through, first.database.last_id)
            first.deleted_through = through

    def _read(self, file: SpoolFile, most: int) -> None:
        self._used = file
        assert file.database is not None
        rows = file.database.read(file.read_through, most)
        if not rows:
            raise CorruptFileError("rows are missing from the file")
        found = []
        for number, accepted, data in rows:
            with contextlib.suppress(msgspec.MsgspecError, TypeError, ValueError):
                found.append(StoredEvent(file, number, decode_event(data), accepted, weight_for(len(data))))
        self._memory.was_read(file, found, len(rows) - len(found), rows[-1][0])
