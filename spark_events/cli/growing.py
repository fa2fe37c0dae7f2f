"""The lines of a file that grows, also when it is put aside or emptied: what ``tail -F`` does."""

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

__all__ = ["GZIP", "growing"]

#: How a file that is compressed by gzip begins.
GZIP = b"\x1f\x8b"

_POLL_SECONDS = 0.2
_PIECE = 1 << 18
#: So much of its beginning tells a file from others: every event has an identifier of its own.
_HEAD = 4096


def growing(path: Path) -> Iterator[bytes | None]:
    """Whole lines without their ends, for ever; None whenever all that is there has been read.

    A line that is still being written is waited for, and so is a file that is away for a moment.

    Raises:
        OSError: it cannot be opened, at the beginning or later, or not be read.
        SparkEventsError: it is compressed.
    """
    part = _Part(path)
    try:
        if part.begins_with(GZIP):
            raise SparkEventsError(
                f"-f: given {path}, allowed is a file that is not compressed: one that is does not grow"
            )
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
                # What came between the last look and the new name.
                yield from before.lines()
                if before.rest:
                    yield before.rest
            finally:
                before.close()
    finally:
        part.close()


class _Part:
    """One of the files that follow each other under a path, as far as it has been read.

    Args:
        path: what to open; one that is compressed, by its suffix.
        name: the name under which it was put aside, without the suffix of a compressed one; None for the one that
            is being written, whose name is not known yet.
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
        """Whether a file, not a pipe, does so."""
        return stat.S_ISREG(self._status.st_mode) and os.pread(self._file.fileno(), len(magic), 0) == magic

    def lines(self) -> Iterator[bytes]:
        """What has come since the last call; ``rest`` is the beginning of a line that is not whole yet."""
        while data := self._file.read(_PIECE):
            self._head += data[: _HEAD - len(self._head)]
            self._read += len(data)
            *whole, self.rest = (self.rest + data).split(b"\n")
            yield from whole

    def look_back(self) -> None:
        """Begins anew where the file has been emptied, and was perhaps written again."""
        if self._is_packed or not stat.S_ISREG(self._status.st_mode):
            return
        size = os.fstat(self._file.fileno()).st_size
        start = os.pread(self._file.fileno(), len(self._head), 0)
        if start == self._head and size >= self._read:
            return
        # A reporter takes back what did not fit on a full disk; the lines before that have been read.
        is_same = start == self._head or (start.endswith(b"\n") and self._head.startswith(start))
        self._read = min(size, self._read - len(self.rest)) if is_same else 0
        self._head = self._head[: self._read]
        self.rest = b""
        self._file.seek(self._read)

    def following(self, path: Path) -> _Part | None:
        """The file after this one; None as long as this one has the path, or nobody has it."""
        with contextlib.suppress(FileNotFoundError):
            if self._name is None and os.path.samestat(path.stat(), self._status):
                return None
            # First: what is put aside after this moment comes later than this one.
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
        """Who was away for long, behind a pager say, finds that several files were put aside meanwhile."""
        archive = Archive(Path(os.path.realpath(path)), keep=0, compress=False)
        names = sorted({str(file).removesuffix(".gz") for file in archive.files()})
        if self._name is None:
            self._name = next((name for name in reversed(names) if self._is_at(name)), None)
        if self._name is None:
            # Somebody else has moved it, or it is deleted already.
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
        # It may have been compressed since.
        with contextlib.suppress(OSError, EOFError, zlib.error), gzip.open(f"{name}.gz") as packed:
            return bool(self._head) and packed.read(len(self._head)) == self._head
        return False
