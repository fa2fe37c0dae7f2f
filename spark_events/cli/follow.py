"""Follow a file through rotation and truncation, as ``tail -F`` does."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from spark_events.errors import SparkEventsError
from spark_events.reporters.file.reading import GZIP

_POLL_SECONDS = 0.2
_PIECE = 1 << 18
#: Number of bytes at the beginning of a file that identify it; they are unique because every event has its own id.
_HEAD = 4096


def follow(path: Path, pause: float = _POLL_SECONDS) -> Iterator[bytes | None]:
    """Yield complete lines without line ends, endlessly; yield None whenever no further line exists.

    An unfinished line is yielded only after its remainder is written. If the file is missing, poll until it exists
    again.

    Args:
        path: the file.
        pause: seconds between two reads.

    Raises:
        OSError: when the file cannot be opened or read.
        SparkEventsError: when the file is compressed.
    """
    part = _Part(path)
    try:
        if part.begins_with(GZIP):
            raise SparkEventsError(f"-f: {path} is compressed and does not grow; run tail without -f")
        while True:
            yield from part.lines()
            following = part.following(path)
            if following is None:
                yield None
                time.sleep(pause)
                part.look_back()
                continue
            before, part = part, following
            try:
                # Before the next file, read the lines that were written between the last read and the rename.
                yield from before.lines()
                if before.rest:
                    yield before.rest
            finally:
                before.close()
    finally:
        part.close()


class _Part:
    """One of the successive files at a path, and the position up to which it has been read.

    If the path is rotated several times between two reads, the intermediate files are not read.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._status = os.fstat(self._file.fileno())
        self._head = b""
        self._read = 0
        self.rest = b""

    def close(self) -> None:
        self._file.close()

    def begins_with(self, magic: bytes) -> bool:
        """Return whether the file begins with these bytes; False for a pipe."""
        return stat.S_ISREG(self._status.st_mode) and os.pread(self._file.fileno(), len(magic), 0) == magic

    def lines(self) -> Iterator[bytes]:
        """Yield the lines added since the last call; ``rest`` keeps the beginning of an unfinished line."""
        while data := self._file.read(_PIECE):
            self._head += data[: _HEAD - len(self._head)]
            self._read += len(data)
            *whole, self.rest = (self.rest + data).split(b"\n")
            yield from whole

    def look_back(self) -> None:
        """Start again if the file was truncated since the last read, even if it has grown afterwards."""
        if not stat.S_ISREG(self._status.st_mode):
            return
        size = os.fstat(self._file.fileno()).st_size
        start = os.pread(self._file.fileno(), len(self._head), 0)
        if start == self._head and size >= self._read:
            return
        # If the beginning is the same, the file was not truncated: a reporter removed a line that did not fit on a full
        # disk. All earlier lines have been read.
        is_same = start == self._head or (start.endswith(b"\n") and self._head.startswith(start))
        self._read = min(size, self._read - len(self.rest)) if is_same else 0
        self._head = self._head[: self._read]
        self.rest = b""
        self._file.seek(self._read)

    def following(self, path: Path) -> _Part | None:
        """Return the next file at the path.

        The result is None if the path still refers to this file, or to no file.
        """
        with contextlib.suppress(FileNotFoundError):
            return None if os.path.samestat(path.stat(), self._status) else _Part(path)
        return None
