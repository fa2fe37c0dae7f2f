"""Source of a watcher: a folder to which ``file`` reporters write JSON lines, with its rotated files."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from spark_events.errors import SparkEventsError
from spark_events.event import Event, decode_event
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.reporters.file import FileConfig, FileReporter
from spark_events.reporters.file.rotation import Archive
from spark_events.watch.read_positions import Inode, Positions, inode_of
from spark_events.watch.sightings import COMMIT, Sighting, Sightings

#: Name of the file that contains the events that watchers have reported; other watchers and later runs read this file.
RECORD = "spark-events-watch.jsonl"
_MARKS = (f'"{HEARTBEAT}"'.encode(), b'"spark.application"', b'"DispatcherReportEvent"')
_COMMITS = (f'"{COMMIT}"'.encode(),)
#: Maximum number of times that the files are listed in one check; the last list must contain no unread file.
_ATTEMPTS = 5
#: Tolerance for the clock of the storage when old files are skipped, in milliseconds.
_DAY = 86_400_000
#: End of the name of a rotated file, by this package or by logrotate.
_ROTATED = re.compile(r"(\.\d{1,4}|[.-]\d{8}(-\d+)?|\.\d{8}T\d{6}\.\d{6}Z)?(\.gz)?$")
_LOG = logging.getLogger(__name__)


class JsonFolder:
    """Events in a folder and its subfolders, or in one file and its rotated files.

    Args:
        path: the folder or file.

    Attributes:
        unread: reason for each file or folder that the last check could not read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = (path if path.is_dir() else path.parent) / RECORD
        self._positions = Positions()
        self.unread: dict[Path, str] = {}
        self._logged: dict[Path, str] = {}

    def read(self, sightings: Sightings, since: int) -> None:
        """Read the events written since the last call; skip files and events that are older than ``since``.

        ``since`` is in milliseconds since the epoch. A file that cannot be read is skipped, logged and noted in
        ``unread``.

        Raises:
            SparkEventsError: when the source itself, or the record of reported losses, cannot be read.
        """
        self.unread = {}

        def see(line: bytes, place: Path) -> None:
            event = _event(line, since)
            if event is not None:
                sightings.see(event, place=str(place))

        done = self._visit(since, lambda file: self._read_on(file, see))
        self._positions.forget_others(done)

    def read_commits(self, sightings: Sightings, since: int) -> None:
        """Read all commits since a time, from all files that were written since.

        Raises:
            SparkEventsError: when the source cannot be read.
        """

        def see(line: bytes) -> None:
            event = _event(line, since)
            if event is not None and event.name == COMMIT:
                about, at = event.attributes, event.observed_ts_millis
                identity = str(about.get("spark.app.id")), str(about.get("spark.app.attempt_id") or "")
                sightings.succeed(identity, at, at)

        self._visit(since, lambda file: _read_all(file, see))

    def hides(self, one: Sighting) -> bool:
        """Return whether the file in which a run was last seen, or a newer one of its name, cannot be read."""
        base = _base(Path(one.place))
        return any(_base(path) == base or path in Path(one.place).parents for path in self.unread)

    def record(self, event: Event) -> None:
        """Store a LOST event, so that later checks do not report the run again.

        Raises:
            SparkEventsError: when the file cannot be written.
        """
        reporter = FileReporter(FileConfig(str(self._record)))
        try:
            reporter.open()
            asyncio.run(_reported(reporter, event))
        except OSError as error:
            raise SparkEventsError(f"cannot write {self._record}: {error.strerror}") from None
        finally:
            reporter.close()

    def _visit(self, since: int, read: Callable[[Path], Inode]) -> set[Inode]:
        """Call a function with each file, once, although files are rotated meanwhile.

        Files are identified by device and inode. If a file is rotated before the watcher opens it, its path names a new
        file, so the file itself is found only in the next list.
        """
        done: set[Inode] = set()
        for _ in range(_ATTEMPTS):
            try:
                if not self._visit_others(since, read, done):
                    return done
            except FileNotFoundError as error:
                if not self._path.exists():
                    raise SparkEventsError(f"cannot read {self._path}: {error.strerror}") from None
                # The file was rotated between listing and reading.
                continue
        raise SparkEventsError(f"cannot read {self._path}: files are rotated faster than they are read")

    def _visit_others(self, since: int, read: Callable[[Path], Inode], done: set[Inode]) -> bool:
        """Read the files that are not in ``done``, and add them; return whether there was such a file."""
        has_others = False
        for file in self._files():
            try:
                status = file.stat()
                if inode_of(status) in done or not stat.S_ISREG(status.st_mode):
                    continue
                is_old = status.st_mtime * 1000 < since - _DAY
                done.add(inode_of(status) if is_old else read(file))
                has_others = True
            except FileNotFoundError:
                if not file.is_symlink():
                    raise
            except OSError as error:
                self._skip(file, error)
        return has_others

    def _files(self) -> Iterator[Path]:
        if self._path.is_dir():
            for folder, folders, names in os.walk(self._path, onerror=self._skip_folder):
                folders.sort()
                yield from (Path(folder, name) for name in sorted(names))
            return
        try:
            yield from Archive(self._path, keep=0).files()
        except OSError as error:
            self._skip(self._path.parent, error)
        yield self._path
        if self._record.exists():
            yield self._record

    def _skip_folder(self, error: OSError) -> None:
        self._skip(Path(error.filename), error)

    def _skip(self, path: Path, error: OSError) -> None:
        """Note and log a path that cannot be read.

        Raises:
            SparkEventsError: nothing can be watched without this path.
        """
        why = error.strerror or str(error)
        if path == self._path or path == self._record:
            raise SparkEventsError(f"cannot read {path}: {why}") from None
        self.unread[path] = why
        if self._logged.get(path) != why:
            _LOG.warning(
                "cannot read %s, so it is skipped; applications that write to it are not watched: %s", path, why
            )
        self._logged[path] = why

    def _read_on(self, path: Path, see: Callable[[bytes, Path], None]) -> Inode:
        """Read the new lines of a file; return its inode."""
        with path.open("rb") as opened:
            end = self._positions.seek(opened)
            for line in opened:
                if not line.endswith(b"\n"):
                    break
                if any(mark in line for mark in _MARKS):
                    see(line, path)
                end += len(line)
            self._positions.store(opened, end)
            return inode_of(os.fstat(opened.fileno()))


def _read_all(path: Path, see: Callable[[bytes], None]) -> Inode:
    with path.open("rb") as opened:
        for line in opened:
            if any(mark in line for mark in _COMMITS):
                see(line)
        return inode_of(os.fstat(opened.fileno()))


def _event(line: bytes, since: int) -> Event | None:
    """Return the event in a line; None if there is none, or if it is older than ``since``."""
    try:
        event = decode_event(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _LOG.debug("skipping a line of another program, or an incomplete line: %s", error)
        return None
    return event if event.observed_ts_millis >= since else None


def _base(path: Path) -> Path:
    """Return the path of the current file of which a path may be a rotated file."""
    return path.with_name(_ROTATED.sub("", path.name)) if path.name else path


async def _reported(reporter: FileReporter, event: Event) -> None:
    rest = reporter.report([event])
    if rest is not None:
        await rest
