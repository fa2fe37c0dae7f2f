"""Pipe with the shim's records, one record per line."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable

#: Number of bytes per read, equal to the capacity of a pipe. A larger buffer would cost 30 µs per read for mapping and
#: unmapping its memory.
_CHUNK_BYTES = 64 * 1024


class RecordPipe:
    """Reader of lines from a file descriptor; each read returns all available lines.

    Args:
        fd: the file descriptor.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Pieces of an unfinished line. A line of several megabytes arrives in many pieces, so join them only once.
        self._rest: list[bytes] = []
        self._wakes, self._waker = os.pipe()
        self._both = (fd, self._wakes)
        os.set_blocking(self._waker, False)
        self.closed = False

    def wake(self) -> None:
        """Make :meth:`read` return immediately; thread-safe."""
        # Ignore a full pipe: its content also wakes the reader.
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"!")

    def read(self, timeout: float | None = None) -> list[bytes]:
        """Return the available lines; wait up to ``timeout`` seconds for a line.

        The result is empty after a timeout, after `wake`, and at the end of the pipe. If the pipe ends in the middle of
        a line, that line is dropped, because the driver died while writing it.
        """
        while not self.closed:
            ready, _, _ = select.select(self._both, (), (), timeout)
            if self._wakes in ready:
                os.read(self._wakes, _CHUNK_BYTES)
            if self._fd not in ready:
                return []
            chunk = os.read(self._fd, _CHUNK_BYTES)
            if not chunk:
                self.closed = True
                break
            *lines, rest = chunk.split(b"\n")
            if lines:
                lines[0] = b"".join([*self._rest, lines[0]])
                self._rest = [rest]
                return lines
            self._rest.append(rest)
        return []


def line_writer(fd: int) -> Callable[[bytes], None]:
    """Return a thread-safe function that writes whole lines to a file descriptor; a closed reader is ignored."""
    lock = threading.Lock()

    def write(line: bytes) -> None:
        with lock, contextlib.suppress(OSError):
            while (written := os.write(fd, line)) < len(line):
                line = line[written:]

    return write
