"""Follow a follow file through rotation and truncation, as ``tail -F`` does."""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from spark_events.errors import SparkEventsError
from spark_events.reporters.file.rotation import Archive

#: First bytes of a gzip file.
GZIP = b"\x1f\x8b"

_POLL_SECONDS = 0.2
_PIECE = 1 << 18
#: Bytes at the beginning of a file that identify the file: every event has a unique id.
_HEAD = 4096


def follow(path: Path) -> Iterator[bytes | None]:
    """Yield complete lines without line ends, forever; None each time all present lines have been yielded.

    An unfinished line is held back until its end is written. A missing file is polled for until it exists again.

    Raises:
        OSError: when the file cannot be opened or read.
        SparkEventsError: when the file is compressed.
    """
    part = _Part(path)
    try:
        if part.begins_with(GZIP):
            raise SparkEventsError(f"-f: {path} is compressed, so it no longer grows; run tail without -f")
        while True:
            yield from part.lines()
            following = part.following(path)
            if following is None:
                yield None
                time.sleep(_POLL_SECONDS)
                part.look_back()
                continue
            before, part = part, following
            try:
                # Lines written between the last read and the rename.
                yield from before.lines()
                if before.rest:
                    yield before.rest
            finally:
                before.close()
    finally:
        part.close()


class _Part:
    """One of the files that exist at a path one after the other, and the read position in it.

    Args:
        path: the file to open; decompressed if its suffix says so.
        name: the file's name in the archive, without ``.gz``; None for the file that is still being written.
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        self._is_packed = name is not None and path.suffix == ".gz"
        self._file = cast(BinaryIO, gzip.GzipFile(path)) if self._is_packed else path.open("rb", buffering=0)
        self._status = os.fstat(self._file.fileno())
        self._name = name
        self._head = b""
        self._read = 0
        self.rest = b""

    def close(self) -> None:
        self._file.close()

    def begins_with(self, magic: bytes) -> bool:
        """Return whether the file begins with these bytes; False for a pipe."""
        return stat.S_ISREG(self._status.st_mode) and os.pread(self._file.fileno(), len(magic), 0) == magic

    def lines(self) -> Iterator[bytes]:
        """Yield the lines added since the last call; ``rest`` holds the beginning of an unfinished line."""
        while data := self._file.read(_PIECE):
            self._head += data[: _HEAD - len(self._head)]
            self._read += len(data)
            *whole, self.rest = (self.rest + data).split(b"\n")
            yield from whole

    def look_back(self) -> None:
        """Rewind if the file was truncated, and perhaps written again, since the last read."""
        if self._is_packed or not stat.S_ISREG(self._status.st_mode):
            return
        size = os.fstat(self._file.fileno()).st_size
        start = os.pread(self._file.fileno(), len(self._head), 0)
        if start == self._head and size >= self._read:
            return
        # A reporter truncates a write that did not fit on a full disk; the lines before it have been read.
        is_same = start == self._head or (start.endswith(b"\n") and self._head.startswith(start))
        self._read = min(size, self._read - len(self.rest)) if is_same else 0
        self._head = self._head[: self._read]
        self.rest = b""
        self._file.seek(self._read)

    def following(self, path: Path) -> _Part | None:
        """Return the file that follows this one; None while this one is still at the path, or no file is."""
        with contextlib.suppress(FileNotFoundError):
            if self._name is None and os.path.samestat(path.stat(), self._status):
                return None
            # Opened before the archive is listed: a file archived after this moment is newer than this one.
            newest = _Part(path)
            try:
                between = self._put_aside_next(path)
            except BaseException:
                newest.close()
                raise
            if between is None:
                return newest
            newest.close()
            return between
        return None

    def _put_aside_next(self, path: Path) -> _Part | None:
        """Return the next archived file, if the file was rotated more than once since the last read.

        That happens when the reader paused for long, for example behind a pager.
        """
        archive = Archive(Path(os.path.realpath(path)), keep=0, compress=False)
        names = sorted({str(file).removesuffix(".gz") for file in archive.files()})
        if self._name is None:
            self._name = next((name for name in reversed(names) if self._is_at(name)), None)
        if self._name is None:
            # Another program moved the file, or the file has already been deleted.
            return None
        name = next((name for name in names if name > self._name), None)
        if name is None:
            return None
        try:
            return _Part(Path(name), name)
        except FileNotFoundError:
            return _Part(Path(f"{name}.gz"), name)

    def _is_at(self, name: str) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.stat(name), self._status)
        # The archive may have compressed the file in the meantime.
        with contextlib.suppress(OSError, EOFError, zlib.error), gzip.open(f"{name}.gz") as packed:
            return bool(self._head) and packed.read(len(self._head)) == self._head
        return False
