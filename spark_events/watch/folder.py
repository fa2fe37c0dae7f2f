"""Source of a watcher: a folder to which ``file`` reporters write JSON lines, with its rotated files."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import msgspec

from spark_events.errors import SparkEventsError
from spark_events.event import Event, decode_event
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.reporters.file import FileConfig, FileReporter
from spark_events.reporters.file.rotation import Archive
from spark_events.watch.sightings import Sightings

#: Name of the file that contains the events that watchers have reported; other watchers and later runs read this file.
RECORD = "spark-events-watch.jsonl"
_MARKS = (f'"{HEARTBEAT}"'.encode(), b'"spark.application"', b'"DispatcherReportEvent"')
#: Maximum number of times that the files are listed in one check; the last list must contain no unread file.
_ATTEMPTS = 5
_LOG = logging.getLogger(__name__)


class JsonFolder:
    """Events in a folder and its subfolders, or in one file and its rotated files.

    Args:
        path: the folder or file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = (path if path.is_dir() else path.parent) / RECORD
        # Number of bytes already read, by device and inode; a rename does not change these numbers.
        self._read: dict[tuple[int, int], int] = {}

    def read(self, sightings: Sightings, since: int) -> None:
        """Read the events written since the last call; skip files and events that are older than ``since``.

        ``since`` is in milliseconds since the epoch.

        Raises:
            SparkEventsError: when a file cannot be read, because the event that an application has ended could be
                missed.
        """
        done: set[tuple[int, int]] = set()
        for _ in range(_ATTEMPTS):
            try:
                if not self._read_others(sightings, since, done):
                    return
            except FileNotFoundError as error:
                if not self._path.exists():
                    raise SparkEventsError(f"cannot read {self._path}: {error.strerror}") from None
                # The file was rotated between listing and reading.
                continue
            except OSError as error:
                raise SparkEventsError(f"cannot read {error.filename or self._path}: {error.strerror}") from None
        raise SparkEventsError(f"cannot read {self._path}: files are rotated faster than they are read")

    def record(self, event: Event) -> None:
        """Store a LOST event, so that later checks do not report the application again.

        Raises:
            SparkEventsError: when the file cannot be written.
        """
        reporter = FileReporter(FileConfig(str(self._record)))
        try:
            reporter.open()
            asyncio.run(_reported(reporter, event))
        except OSError as error:
            raise SparkEventsError(
                f"cannot write {self._record}: {error.strerror}; the application will be reported again"
            ) from None
        finally:
            reporter.close()

    def _files(self) -> list[Path]:
        if self._path.is_dir():
            return sorted(file for file in self._path.rglob("*") if file.is_file())
        own = [*Archive(self._path, keep=0).files(), self._path]
        return [*own, self._record] if self._record.exists() else own

    def _read_others(self, sightings: Sightings, since: int, done: set[tuple[int, int]]) -> bool:
        """Read the files that are not in ``done``, and add them; return whether there was such a file.

        Files are identified by device and inode. If a file is rotated before the watcher opens it, its path names a new
        file, so the file itself is found only in the next list.
        """
        has_others = False
        for file in self._files():
            status = file.stat()
            identity = status.st_dev, status.st_ino
            if identity not in done:
                is_old = status.st_mtime * 1000 < since
                done.add(identity if is_old else self._read_one(file, sightings, since))
                has_others = True
        return has_others

    def _read_one(self, file: Path, sightings: Sightings, since: int) -> tuple[int, int]:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            identity = status.st_dev, status.st_ino
            begin = self._read.get(identity, 0)
            if begin > status.st_size:
                # The file was truncated.
                begin = 0
            opened.seek(begin)
            for line in opened:
                if not line.endswith(b"\n"):
                    break
                if any(mark in line for mark in _MARKS):
                    _see(sightings, line, since)
                begin += len(line)
            self._read[identity] = begin
            return identity


def _see(sightings: Sightings, line: bytes, since: int) -> None:
    try:
        event = decode_event(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _LOG.debug("skipping a line of another program, or an incomplete line: %s", error)
        return
    if event.observed_ts_millis >= since:
        sightings.see(event)


async def _reported(reporter: FileReporter, event: Event) -> None:
    rest = reporter.report([event])
    if rest is not None:
        await rest
