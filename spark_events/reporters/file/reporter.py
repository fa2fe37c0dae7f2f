"""Reporter ``file``: append one JSON object per line."""

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
from spark_events.reporters.reporter import Reporter, until

_LOG = logging.getLogger(__name__)
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class FileReporter(Reporter):
    """Reporter that appends JSON lines to a file and rotates it when it is full.

    The file can be read while it grows, and it contains only complete lines. If a write fails in the middle of a line,
    for example on a full disk, the reporter truncates the file before the next attempt. Several drivers may write to
    one path: each batch is written under the file's lock, to the file that the path names at that moment. Therefore
    this driver, another driver or logrotate may rotate the file. The file is open only during a batch.
    """

    Config: ClassVar[type[FileConfig]] = FileConfig

    def __init__(self, config: FileConfig) -> None:
        self._config = config
        self._path = config.path
        # Whether locking has ever succeeded. If so, "no locks available" is an error; otherwise the file system does
        # not support locks.
        self._has_locks = False
        # Device and inode numbers of the file whose name is durable.
        self._synced: tuple[int, int] | None = None
        self._cannot_rotate = False
        # Resolve the path: if it is a link, the target is rotated, not the link.
        self._archive = Archive(Path(os.path.realpath(config.path)), config.keep)

    def open(self) -> None:
        with self._opened() as descriptor:
            self._try_lock(descriptor)
        if self._config.rotates and not self._has_locks:
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
            OSError: when the file cannot be written.
        """
        while True:
            with self._opened() as descriptor:
                if not self._try_lock(descriptor):
                    return False
                status = os.fstat(descriptor)
                if self._is_current(status) and not self._rotate(status, len(data)):
                    self._write(descriptor, status, data)
                    return True
            # This driver or another process has rotated the file.

    def _write(self, descriptor: int, status: os.stat_result, data: bytes) -> None:
        identity, size = (status.st_dev, status.st_ino), status.st_size
        if self._config.fsync == "batch" and (not size or identity != self._synced):
            sync_folder(os.path.realpath(self._path))
            self._synced = identity
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            # Start on a new line, because another process was killed while writing a line.
            data = b"\n" + data
        rest = memoryview(data)
        try:
            # After a short write, the next write raises the cause: a full disk or a limit on the file size.
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self._config.fsync == "batch":
                os.fsync(descriptor)
        except OSError as error:
            if len(rest) < len(data):
                os.ftruncate(descriptor, size)
            raise OSError(error.errno, error.strerror, self._path) from None

    def _rotate(self, status: os.stat_result, more: int) -> bool:
        """Rotate a full file if possible; return whether the path must be opened again.

        If the rotation fails, the file keeps growing, because an oversized file is better than lost events.
        """
        now = time.time()
        if not self._config.rotates or not is_full(self._config, status, more, now):
            return False
        try:
            self._archive.put_aside(now)
        except FileNotFoundError:
            # A program that takes no lock, such as logrotate, has already rotated the file.
            return True
        except (OSError, OverflowError, ValueError) as error:
            # OverflowError and ValueError mean that the clock is outside the range of datetime.
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

    def _is_current(self, status: os.stat_result) -> bool:
        """Return whether the path still names the open file."""
        try:
            return os.path.samestat(status, os.stat(self._path))
        except FileNotFoundError:
            return False

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Context manager that opens the file, and closes it with its lock on exit.

        A symbolic link is refused in a directory that every user can write to.

        Raises:
            OSError: when the file cannot be opened.
        """
        try:
            is_shared = os.stat(os.path.dirname(self._path)).st_mode & stat.S_IWOTH
            descriptor = os.open(self._path, _FLAGS | os.O_NOFOLLOW if is_shared else _FLAGS, 0o600)
        except OSError as error:
            why = error.strerror
            if error.errno == errno.ELOOP and os.path.islink(self._path):
                why = "a symbolic link in a directory that every user can write to is refused; set the real path"
            raise OSError(error.errno, why, self._path) from None
        try:
            yield descriptor
        finally:
            # Unlock explicitly, because a child process may have inherited the descriptor.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _try_lock(self, descriptor: int) -> bool:
        """Try to lock the file; return False if another process holds the lock.

        Return True also if the file system does not support locks.
        """
        is_free = True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            is_free = False
        except OSError as error:
            if error.errno not in _NO_LOCKS or self._has_locks:
                raise OSError(error.errno, error.strerror, self._path) from None
            # The file system currently provides no locks. Appends by a single driver are still atomic.
            return True
        self._has_locks = True
        return is_free
