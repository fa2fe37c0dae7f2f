"""The pipe that records come through, line by line."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable

__all__ = ["RecordPipe", "line_writer"]

#: As much as a pipe holds. More would be room that is mapped and unmapped with each read, for nothing: 30 µs.
_CHUNK_BYTES = 64 * 1024


class RecordPipe:
    """Lines from a file descriptor, as many at a time as there are.

    Args:
        fd: where to read.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        # Of a line that has not come to its end: one of megabytes comes in many pieces, and is put together once.
        self._rest: list[bytes] = []
        self._wakes, self._waker = os.pipe()
        self._both = (fd, self._wakes)
        os.set_blocking(self._waker, False)
        self.closed = False

    def wake(self) -> None:
        """Lets :meth:`read` return at once, from whatever thread."""
        # A pipe that is full wakes, too.
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"!")

    def read(self, timeout: float | None = None) -> list[bytes]:
        """Waits for lines, at most ``timeout`` seconds; none when it passed, was woken, or all is read.

        A line that the end of the pipe has cut off is not a line: the driver died while writing it.
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
    """What writes whole lines to a file descriptor; a reader that is gone is no error."""

    def write(line: bytes) -> None:
        with contextlib.suppress(OSError):
            while (written := os.write(fd, line)) < len(line):
                line = line[written:]

    return write
