"""Rotation: rename the full file, and delete the oldest rotated files.

The name of a rotated file ends with the time, for example ``events.jsonl.20260131T100000.000000Z``. Each file is
renamed only once, and the names sort in the order of the events. With numbered names, such as logrotate's ``.1`` and
``.2``, each rotation would rename every file. Another driver or a crash could interrupt these renames.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from spark_events.clocks import Clocks
from spark_events.reporters.file.file_config import FileConfig

_LOG = logging.getLogger(__name__)
_STAMP = re.compile(r"\.\d{8}T\d{6}\.\d{6}Z(?:\.gz)?")
_FORMAT = ".%Y%m%dT%H%M%S.%fZ"
_LEAST = timedelta(microseconds=1)


def is_full(config: FileConfig, status: os.stat_result, more: int, now: float) -> bool:
    """Return whether the file must be rotated before the next lines.

    Args:
        config: the limits.
        status: the current status of the file.
        more: number of bytes to append.
        now: seconds since the epoch, by the clock of the file system.
    """
    if status.st_size == 0:
        return False
    if config.max_size is not None and status.st_size + more > config.max_size:
        return True
    # Use the modification time to compare periods, because this time is the same for all drivers and for later runs.
    return config.max_age is not None and status.st_mtime // config.max_age < now // config.max_age


class StorageClock:
    """Clock of the file system, with which the times of files are compared.

    It may belong to another machine. With the clock of this machine, a driver whose clock is ahead would rotate the
    file at each batch, and so delete the files of all drivers.

    Args:
        clocks: the clocks of this process.
    """

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        # Time of the file system when the monotonic clock was 0; None before the first write.
        self._origin: float | None = None

    def now(self) -> float:
        """Return seconds since the epoch; before the first write, by the clock of this machine."""
        return self._clocks.wall() if self._origin is None else self._origin + self._clocks.monotonic()

    def written(self, file: int) -> None:
        """Read the time that the file system has given to a file that was just written or touched."""
        self._origin = os.fstat(file).st_mtime - self._clocks.monotonic()

    def touch(self, file: int) -> None:
        """Learn the time of the file system before the first write; the file must be about to be written."""
        # Ignore an error: the next write shows the time.
        if self._origin is None:
            with contextlib.suppress(OSError):
                os.utime(file)
                self.written(file)


class Archive:
    """Rotated files, in the folder of the current file.

    Args:
        path: the current file.
        keep: maximum number of rotated files.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self._path = path
        self._keep = keep
        self._cannot_prune = False

    def put_aside(self, now: float) -> None:
        """Rename the current file and delete the oldest rotated files.

        The caller must hold the file's lock.

        Args:
            now: seconds since the epoch.

        Raises:
            OSError: when the file cannot be renamed.
            OverflowError, ValueError: when the time in the new name is outside the range of datetime.
        """
        aside, last = self._named(datetime.fromtimestamp(now, timezone.utc)), self._last()
        if last is not None and aside.name <= self._named(last).name:
            # Deletion begins with the lowest name, so choose a later name if a rotation in the same microsecond has
            # used this name, or if the clock was set back.
            aside = self._named(last + _LEAST)
        self._path.rename(aside)
        self._prune()

    def files(self) -> list[Path]:
        """Return the rotated files, oldest first; include files that another program has compressed."""
        start = self._path.name
        siblings = (one for one in self._path.parent.iterdir() if one.name.startswith(start))
        return sorted(one for one in siblings if _STAMP.fullmatch(one.name[len(start) :]))

    def _last(self) -> datetime | None:
        """Return the latest time among the file names, or None."""
        # Ignore the error: if the folder cannot be listed, no file can be deleted, so the order of names does not
        # matter.
        with contextlib.suppress(OSError):
            for file in reversed(self.files()):
                stamp = file.name[len(self._path.name) :].removesuffix(".gz")
                with contextlib.suppress(ValueError):
                    return datetime.strptime(stamp, _FORMAT).replace(tzinfo=timezone.utc)
        return None

    def _named(self, moment: datetime) -> Path:
        return self._path.with_name(self._path.name + moment.strftime(_FORMAT))

    def _prune(self) -> None:
        try:
            for old in self.files()[: -self._keep]:
                # Another driver may have already deleted the file.
                old.unlink(missing_ok=True)
        except OSError as error:
            if not self._cannot_prune:
                _LOG.warning(
                    "%s: cannot delete old rotated files, which use disk space; retrying at each rotation: %s",
                    self._path,
                    error,
                )
            self._cannot_prune = True
        else:
            self._cannot_prune = False


def sync_folder(path: str) -> None:
    """Flush the folder of a file to disk, so that a new file name is durable."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
