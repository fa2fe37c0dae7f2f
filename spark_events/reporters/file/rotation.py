"""What becomes of a file that is full: it is put aside under a name of its own, and the oldest of these go.

The names end with the time, ``events.jsonl.20260131T100000.000000Z``, so that nothing has to be renamed twice and
the order of the names is that of the events. Logrotate's ``.1``, ``.2`` would mean as many renames as there are files,
each a chance for another driver, or a death, to come in between.
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

__all__ = ["Archive", "is_full", "sync_folder"]

_LOG = logging.getLogger(__name__)
_STAMP = re.compile(r"\.\d{8}T\d{6}\.\d{6}Z(?P<packed>\.gz)?")
_FORMAT = ".%Y%m%dT%H%M%S.%fZ"
_LEAST = timedelta(microseconds=1)
#: Behind it there are no names.
_LAST_YEAR = 9999
#: Most of the gain; the highest level takes three times as long for a hundredth more.
_GZIP_LEVEL = 6
_CHUNK_BYTES = 1 << 20


def is_full(config: FileConfig, status: os.stat_result, more: int, now: float) -> bool:
    """Whether the next lines belong into a new file.

    Args:
        config: the limits.
        status: of the file as it is.
        more: bytes that come.
        now: seconds since the epoch.
    """
    if status.st_size == 0:
        return False
    if config.max_size is not None and status.st_size + more > config.max_size:
        return True
    # Whole periods: when it was last written to is all that several drivers and their successors know alike.
    return config.max_age is not None and status.st_mtime // config.max_age < now // config.max_age


class Archive:
    """The files that were put aside, next to the one that is written.

    Args:
        path: the file that is written.
        keep: how many of the others are kept.
        compress: whether these are compressed, in a thread of its own.
    """

    def __init__(self, path: Path, keep: int, compress: bool) -> None:
        self._path = path
        self._keep = keep
        self._compress = compress
        self._thread: threading.Thread | None = None

    def put_aside(self, now: float) -> None:
        """Gives the file its new name. To be called by who holds its lock.

        Raises:
            OSError: the folder does not allow it.
        """
        aside, last = self._named(datetime.fromtimestamp(now, timezone.utc)), self._last()
        if last is not None and aside.name <= self._named(last).name:
            # Two in one microsecond, or a clock that was set back: it is not the first to go for that.
            aside = self._named(last + _LEAST)
        self._path.rename(aside)
        with contextlib.suppress(OSError):
            self._prune()

    def pack(self) -> None:
        """Compresses what is not compressed yet, what a process that was killed has left included."""
        if self._compress and (self._thread is None or not self._thread.is_alive()):
            # What it does not come to, before the process ends, the next one does.
            self._thread = threading.Thread(target=self._pack_all, name="spark-events-gzip", daemon=True)
            self._thread.start()

    def files(self) -> list[Path]:
        """Those there are, the oldest first."""
        start = self._path.name
        siblings = (one for one in self._path.parent.iterdir() if one.name.startswith(start))
        return sorted(one for one in siblings if _STAMP.fullmatch(one.name[len(start) :]))

    def _last(self) -> datetime | None:
        """The time in the name of the newest that has one, and could have a later one behind it."""
        # A folder that may be written but not listed has no order to keep.
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
            # Another driver does the same.
            old.unlink(missing_ok=True)

    def _pack_all(self) -> None:
        errors: list[OSError] = []
        try:
            for path in self.files():
                if path.suffix != ".gz":
                    try:
                        self._pack_one(path)
                    except OSError as error:
                        # The others may do.
                        errors.append(error)
        except OSError as error:
            errors.append(error)
        if errors:
            _LOG.warning("a file of events could not be compressed, it stays as it is: %s", errors[0])

    def _pack_one(self, path: Path) -> None:
        part = path.with_name(f"{path.name}.part")
        with contextlib.suppress(FileNotFoundError, BlockingIOError), _open(path) as source:
            # Only one packs it, nobody is still writing to it, and it is still the file of that name.
            fcntl.flock(source, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(source.fileno())
            if not os.path.samestat(path.stat(), status):
                return
            if status.st_size == 0:
                # Put aside before its owner's first line, for another had moved the full one. That line goes elsewhere.
                path.unlink()
                return
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            target = os.open(part, flags, 0o600)
            with open(target, "wb") as raw, gzip.GzipFile(path.name, "wb", _GZIP_LEVEL, raw) as packed:
                shutil.copyfileobj(source, packed, _CHUNK_BYTES)
            # What was on the disk must be there again before it goes.
            with part.open("rb") as written:
                os.fsync(written)
            part.rename(self._packed(path))
            sync_folder(str(path))
            path.unlink(missing_ok=True)


def _open(path: Path) -> BinaryIO:
    """To be read; for writing where that is allowed, since network file systems lock nothing else for one alone."""
    try:
        return open(path, "r+b", opener=_no_link)
    except PermissionError:
        return open(path, "rb", opener=_no_link)


def _no_link(path: str, flags: int) -> int:
    """Open a file that was put aside, which is never a link."""
    return os.open(path, flags | os.O_NOFOLLOW)


def sync_folder(path: str) -> None:
    """A new file is on the disk once its name is."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
