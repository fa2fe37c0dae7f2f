"""``file``: one JSON object a line, appended; readable while it grows."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import time
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from spark_events.event import Event, encode_lines
from spark_events.reporters.file.config import FileConfig
from spark_events.reporters.file.rotation import Archive, is_full, sync_folder
from spark_events.reporters.patience import until
from spark_events.reporters.reporter import Reporter

__all__ = ["FileReporter"]

_LOG = logging.getLogger(__name__)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class FileReporter(Reporter):
    """Appends JSON lines to a file, and puts it aside when it is full.

    A line is there whole or not at all: what a full disk has cut off is taken back before the next
    attempt. Several drivers may write to one path: each batch is written under the file's lock, to the
    file that the path names at that moment. So it does not matter who has put the last one aside: this
    driver, another one, or logrotate.
    """

    Config: ClassVar[type[FileConfig]] = FileConfig

    def __init__(self, config: FileConfig) -> None:
        self._config = config
        self._path = config.path
        self._fd = -1
        self._identity = (0, 0)
        self._end = -1
        self._has_locks = True
        # Once there was a lock, that there is none is a failure, and not how the file system is.
        self._had_lock = False
        self._cannot_rotate = False
        # What a link names is put aside, not the link.
        self._archive = Archive(Path(os.path.realpath(config.path)), config.keep, config.compress)

    def open(self) -> None:
        self._reopen()
        with self._locking():
            self._try_lock()
        if self._config.rotates:
            if not self._has_locks:
                raise OSError(errno.ENOLCK, "rotation needs a file system that has locks", self._path)
            self._archive.pack()

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        data = encode_lines(events)
        # Another driver that was stopped may keep its lock for long.
        return None if self._append(data) else until(lambda: self._append(data))

    def _append(self, data: bytes) -> bool:
        """Writes, unless another has the lock: then nothing has happened."""
        try:
            return self._appended(data)
        except OSError:
            # On a network a descriptor may be good for nothing any more, though its path is.
            with contextlib.suppress(OSError):
                self.close()
            raise

    def _appended(self, data: bytes) -> bool:
        while True:
            if self._fd < 0:
                self._reopen()
            with self._locking():
                is_locked = self._try_lock()
                status = self._status()
                if not is_locked and status is not None:
                    return False
                if is_locked and status is not None and not self._rotate(status, len(data)):
                    self._write(status.st_size, data)
                    return True
            # It was put aside; who still has its lock compresses it.
            self._reopen()
            if is_locked:
                # Now that it is nobody's: one that is locked is not compressed.
                self._archive.pack()

    def _write(self, size: int, data: bytes) -> None:
        if size and size != self._end and os.pread(self._fd, 1, size - 1) != b"\n":
            # Another was killed in mid-line: ours begins on a line of its own.
            data = b"\n" + data
        rest = memoryview(data)
        try:
            # A short write is followed by one that tells why: a full disk, a limit on file sizes.
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            if self._config.fsync == "batch":
                os.fsync(self._fd)
        except OSError as error:
            if len(rest) < len(data):
                os.ftruncate(self._fd, size)
            raise OSError(error.errno, error.strerror, self._path) from None
        self._end = size + len(data)

    def _rotate(self, status: os.stat_result, more: int) -> bool:
        """Puts a full file aside, where that can be done; a file too large is better than events lost."""
        now = time.time()
        if not self._config.rotates or not is_full(self._config, status, more, now):
            return False
        try:
            self._archive.put_aside(now)
        except FileNotFoundError:
            # Somebody without locks, logrotate say, was faster.
            return True
        except (OSError, OverflowError, ValueError) as error:
            # Those that are no OSError: a clock beyond the years that have names.
            if not self._cannot_rotate:
                _LOG.warning("%s is full but cannot be put aside, it goes on growing: %s", self._path, error)
            self._cannot_rotate = True
            return False
        self._cannot_rotate = False
        return True

    def _status(self) -> os.stat_result | None:
        """Of the open file; None if it is not the one that the path names any more."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status if (status.st_ino, status.st_dev) == self._identity else None

    def _reopen(self) -> None:
        self.close()
        self._fd = self._opened()
        opened = os.fstat(self._fd)
        # As long as it is open, no other file can get that number.
        self._identity = (opened.st_ino, opened.st_dev)
        self._end = -1
        if self._config.fsync == "batch":
            sync_folder(os.path.realpath(self._path))

    def _opened(self) -> int:
        """Open the file; refuse a link in a directory where every user could have made it.

        Raises:
            OSError: the file cannot be opened.
        """
        try:
            is_shared = os.stat(os.path.dirname(self._path)).st_mode & stat.S_IWOTH
            return os.open(self._path, _FLAGS | os.O_NOFOLLOW if is_shared else _FLAGS, 0o600)
        except OSError as error:
            why = error.strerror
            if error.errno == errno.ELOOP and os.path.islink(self._path):
                why = "a symbolic link in a directory that every user can write to is refused; set the real path"
            raise OSError(error.errno, why, self._path) from None

    def _try_lock(self) -> bool:
        """Whether it is ours now; False while another has it."""
        is_free = True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        except OSError as error:
            if error.errno not in _NO_LOCKS or self._had_lock:
                raise OSError(error.errno, error.strerror, self._path) from None
            # A file system without locks, or for the moment: appending is still atomic for one driver.
            self._has_locks = False
            return True
        self._has_locks = self._had_lock = True
        return is_free

    def _unlock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError:
            # What has been written is there, and is not to be written again; with the descriptor goes the lock.
            self.close()

    @contextlib.contextmanager
    def _locking(self) -> Iterator[None]:
        """Release the lock on the way out, whether or not it was taken."""
        try:
            yield
        finally:
            if self._has_locks:
                self._unlock()

    def close(self) -> None:
        # In this order: once it is closed, the number may be somebody else's.
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)
