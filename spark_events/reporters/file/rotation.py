"""Rotation: rename the full file and delete the oldest rotated files.

The names end with the time, ``events.jsonl.20260131T100000.000000Z``. No file is therefore renamed twice, and the order
of the names is the order of the events. Logrotate's ``.1``, ``.2`` would rename every file at each rotation, and
another driver or a crash could interrupt any of these renames.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import logging
import os
import re
import shutil
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import BinaryIO

from spark_events.reporters.file.config import FileConfig

_LOG = logging.getLogger(__name__)
_STAMP = re.compile(r"\.\d{8}T\d{6}\.\d{6}Z(?P<packed>\.gz)?")
_FORMAT = ".%Y%m%dT%H%M%S.%fZ"
_LEAST = timedelta(microseconds=1)
#: Last year that datetime can represent.
_LAST_YEAR = 9999
#: Gives most of the compression; the highest level needs three times as long and saves one per cent more.
_GZIP_LEVEL = 6
_CHUNK_BYTES = 1 << 20


def is_full(config: FileConfig, status: os.stat_result, more: int, now: float) -> bool:
    """Return whether the next lines belong in a new file.

    Args:
        config: the limits.
        status: the current status of the file.
        more: how many bytes to append.
        now: seconds since the epoch.
    """
    if status.st_size == 0:
        return False
    if config.max_size is not None and status.st_size + more > config.max_size:
        return True
    # Compare whole periods by modification time: all drivers and later runs see the same value.
    return config.max_age is not None and status.st_mtime // config.max_age < now // config.max_age


class Archive:
    """Rotated files, in the folder of the current file.

    Args:
        path: the current file.
        keep: how many rotated files to keep.
        compress: whether to compress rotated files, in a separate thread.
    """

    def __init__(self, path: Path, keep: int, compress: bool) -> None:
        self._path = path
        self._keep = keep
        self._compress = compress
        self._thread: threading.Thread | None = None

    def put_aside(self, now: float) -> None:
        """Rename the current file and delete the oldest rotated ones.

        The caller must hold the file's lock.

        Args:
            now: seconds since the epoch.

        Raises:
            OSError: when the file cannot be renamed.
            OverflowError, ValueError: when ``now`` is outside the range of datetime.
        """
        aside, last = self._named(datetime.fromtimestamp(now, timezone.utc)), self._last()
        if last is not None and aside.name <= self._named(last).name:
            # Two rotations in one microsecond, or a clock that was set back: keep the names in order, so that deletion
            # starts with the oldest file.
            aside = self._named(last + _LEAST)
        self._path.rename(aside)
        with contextlib.suppress(OSError):
            self._prune()

    def pack(self) -> None:
        """Compress rotated files in a thread, including those of a killed process."""
        if self._compress and (self._thread is None or not self._thread.is_alive()):
            # If the process exits first, the next process compresses the rest.
            self._thread = threading.Thread(target=self._pack_all, name="spark-events-gzip", daemon=True)
            self._thread.start()

    def files(self) -> list[Path]:
        """Return the rotated files, oldest first."""
        start = self._path.name
        siblings = (one for one in self._path.parent.iterdir() if one.name.startswith(start))
        return sorted(one for one in siblings if _STAMP.fullmatch(one.name[len(start) :]))

    def _last(self) -> datetime | None:
        """Return the newest time among the file names, or None.

        Ignores names of the last representable year, because no later name could follow them.
        """
        # If the folder cannot be listed, the order does not matter.
        with contextlib.suppress(OSError):
            for file in reversed(self.files()):
                stamp = file.name[len(self._path.name) :].removesuffix(".gz")
                with contextlib.suppress(ValueError):
                    moment = datetime.strptime(stamp, _FORMAT).replace(tzinfo=timezone.utc)
                    if moment.year < _LAST_YEAR:
                        return moment
        return None

    def _named(self, moment: datetime) -> Path:
        return self._path.with_name(self._path.name + moment.strftime(_FORMAT))

    @staticmethod
    def _packed(path: Path) -> Path:
        return path.with_name(f"{path.name}.gz")

    def _prune(self) -> None:
        for old in self.files()[: -self._keep]:
            # Another driver may delete the same file.
            old.unlink(missing_ok=True)

    def _pack_all(self) -> None:
        errors: list[OSError] = []
        try:
            for path in self.files():
                if path.suffix != ".gz":
                    try:
                        self._pack_one(path)
                    except OSError as error:
                        # Continue with the other files.
                        errors.append(error)
        except OSError as error:
            errors.append(error)
        if errors:
            _LOG.warning("a file of events could not be compressed, it stays as it is: %s", errors[0])

    def _pack_one(self, path: Path) -> None:
        part = path.with_name(f"{path.name}.part")
        with contextlib.suppress(FileNotFoundError, BlockingIOError), _open(path) as source:
            # The lock ensures that no other process compresses or writes the file; then check that the path still names
            # it.
            fcntl.flock(source, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(source.fileno())
            if not os.path.samestat(path.stat(), status):
                return
            if status.st_size == 0:
                # Another driver had already moved the full file, so this new one was rotated before its first line. The
                # writer notices and reopens the path.
                path.unlink()
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            target = os.open(part, flags, 0o600)
            with open(target, "wb") as raw, gzip.GzipFile(path.name, "wb", _GZIP_LEVEL, raw) as packed:
                shutil.copyfileobj(source, packed, _CHUNK_BYTES)
            # The original may be durable: make the compressed file durable before deleting the original.
            with part.open("rb") as written:
                os.fsync(written)
            part.rename(self._packed(path))
            sync_folder(str(path))
            path.unlink(missing_ok=True)


def _open(path: Path) -> BinaryIO:
    """Open for reading, and also for writing if permitted.

    Network file systems grant exclusive locks only on files that are open for writing.
    """
    try:
        return open(path, "r+b", opener=_no_link)
    except PermissionError:
        return open(path, "rb", opener=_no_link)


def _no_link(path: str, flags: int) -> int:
    """Open a rotated file; refuse symbolic links, which rotation never creates."""
    return os.open(path, flags | os.O_NOFOLLOW)


def sync_folder(path: str) -> None:
    """Flush the folder of a file to disk, so that a new file name is durable."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
