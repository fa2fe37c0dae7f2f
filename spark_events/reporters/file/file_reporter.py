"""Reporter ``file``: append one JSON object per line."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import ClassVar

from spark_events.clocks import SYSTEM, Clocks
from spark_events.config.value_kinds import placed
from spark_events.event import Event, encode_lines
from spark_events.reporters.file.file_config import FileConfig
from spark_events.reporters.file.rotation import Archive, StorageClock, is_full, sync_folder
from spark_events.reporters.reporter import Reporter, until

_LOG = logging.getLogger(__name__)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class FileReporter(Reporter):
    """Reporter that appends JSON lines to a file and rotates it when it is full.

    The file can be read while it grows, and it contains only complete lines. If a write fails in the middle of a line,
    for example on a full disk, the reporter truncates the file before the next attempt. Several drivers may write to
    one path: each batch is written under the file's lock, to the file that the path names at that moment. Therefore
    this driver, another driver or logrotate may rotate the file.
    """

    Config: ClassVar[type[FileConfig]] = FileConfig

    def __init__(self, config: FileConfig, clocks: Clocks = SYSTEM) -> None:
        self._config = config
        self._clock = StorageClock(clocks)
        self._rotates = config.rotates
        self._path = placed(config.path)
        self._fd = -1
        self._identity = (0, 0)
        self._end = -1
        self._has_locks = True
        # Whether locking has ever succeeded. If so, "no locks available" is an error; otherwise the file system does
        # not support locks.
        self._had_lock = False
        self._cannot_rotate = False
        # Resolve the path: if it is a link, the target is rotated, not the link.
        self._archive = Archive(Path(os.path.realpath(self._path)), config.keep)

    def open(self) -> None:
        self._reopen()
        self._try_lock()
        self._unlock()
        if self._rotates and not self._has_locks:
            raise OSError(
                errno.ENOLCK,
                "rotation needs file locks, which the file system of this path does not support",
                self._path,
            )

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        data = encode_lines(events)
        # Poll for the lock with a time limit, because a suspended driver may hold it for a long time.
        return None if self._append(data) else until(lambda: self._append(data))

    def _append(self, data: bytes) -> bool:
        """Append the data, unless another process holds the lock.

        Returns:
            False, without writing, if another process holds the lock.

        Raises:
            OSError: when the file cannot be written. In this case, the file is closed, and the next attempt reopens it.
        """
        try:
            return self._appended(data)
        except OSError:
            # Reopen the file: on a network file system, the descriptor may be stale although the path still works.
            with contextlib.suppress(OSError):
                self.close()
            raise

    def _appended(self, data: bytes) -> bool:
        while True:
            if self._fd < 0:
                self._reopen()
            is_locked = self._try_lock()
            try:
                status = self._status()
                if not is_locked and status is not None:
                    return False
                if is_locked and status is not None and not self._rotate(status, len(data)):
                    self._write(status.st_size, data)
                    return True
            finally:
                self._unlock()
            # This driver or another process has rotated the file.
            self._reopen()

    def _write(self, size: int, data: bytes) -> None:
        if size and size != self._end and os.pread(self._fd, 1, size - 1) != b"\n":
            # Start on a new line, because another process was killed while writing a line.
            data = b"\n" + data
        rest = memoryview(data)
        try:
            # After a short write, the next write raises the cause: a full disk or a limit on the file size.
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            if self._config.fsync == "batch":
                os.fsync(self._fd)
        except OSError as error:
            if len(rest) < len(data):
                os.ftruncate(self._fd, size)
            raise OSError(error.errno, error.strerror, self._path) from None
        self._end = size + len(data)
        if self._config.max_age is not None:
            self._clock.written(self._fd)

    def _rotate(self, status: os.stat_result, more: int) -> bool:
        """Rotate a full file if possible; return whether the path must be opened again.

        If the rotation fails, the file keeps growing, because an oversized file is better than lost events.
        """
        if not self._rotates:
            return False
        if self._config.max_age is not None:
            self._clock.touch(self._fd)
        now = self._clock.now()
        if not is_full(self._config, status, more, now):
            return False
        try:
            self._archive.put_aside(now)
        except FileNotFoundError:
            # A program that takes no lock, such as logrotate, has already rotated the file.
            return True
        except (OSError, OverflowError, ValueError) as error:
            # OverflowError and ValueError mean that the time in the new name is outside the range of datetime.
            if not self._cannot_rotate:
                _LOG.warning(
                    "%s: cannot rotate the file, which has reached its limit; appending to the same file: %s",
                    self._path,
                    error,
                )
            self._cannot_rotate = True
            return False
        self._cannot_rotate = False
        return True

    def _status(self) -> os.stat_result | None:
        """Return the status of the open file; None if the path names another file, or no file."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return None
        return status if (status.st_ino, status.st_dev) == self._identity else None

    def _reopen(self) -> None:
        self.close()
        self._fd = self._opened()
        opened = os.fstat(self._fd)
        # Compare inode numbers. While the file is open, no other file can have the same number.
        self._identity = (opened.st_ino, opened.st_dev)
        self._end = -1
        if self._config.fsync == "batch":
            sync_folder(os.path.realpath(self._path))

    def _opened(self) -> int:
        """Open the file and return its descriptor.

        A symbolic link is refused in a directory that every user can write to.

        Raises:
            OSError: when the file cannot be opened.
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
        """Try to lock the file; return False if another process holds the lock.

        Return True also if the file system does not support locks.
        """
        is_free = True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        except OSError as error:
            if error.errno not in _NO_LOCKS or self._had_lock:
                raise OSError(error.errno, error.strerror, self._path) from None
            # The file system currently provides no locks. Appends by a single driver are still atomic.
            self._has_locks = False
            return True
        self._has_locks = self._had_lock = True
        return is_free

    def _unlock(self) -> None:
        """Release the lock, if this descriptor holds it."""
        if not self._has_locks:
            return
        try:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        except OSError:
            # Ignore the error: the data is written and must not be written again. Closing the descriptor releases the
            # lock.
            self.close()

    def release(self) -> None:
        # Clear the attribute before closing the descriptor, because another thread may receive the same descriptor
        # number afterwards.
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            os.close(descriptor)
