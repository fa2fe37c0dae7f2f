"""``file``: one JSON object a line, appended; readable while it grows."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

import msgspec

from spark_events.config import option, text
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter

__all__ = ["FileConfig", "FileReporter"]


@dataclasses.dataclass(frozen=True, slots=True)
class FileConfig:
    """``events.reporter.<name>.…`` of type ``file``."""

    path: str = option(
        "path",
        text("the path of a file"),
        doc="The file that events are appended to; made if it is not there.",
    )


class FileReporter(Reporter):
    """Appends JSON lines to a file.

    A line is there whole or not at all: what a full disk has cut off is taken back before the next
    attempt. Several drivers may write to one path.
    """

    Config: ClassVar[type[FileConfig]] = FileConfig

    def __init__(self, config: FileConfig) -> None:
        self._path = config.path
        self._fd = -1
        self._encoder = msgspec.json.Encoder()

    def open(self) -> None:
        self.close()
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with self._locked():
            size = os.fstat(self._fd).st_size
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                # A predecessor was killed in mid-line: ours begins on a line of its own.
                os.write(self._fd, b"\n")

    def report(self, events: Sequence[Event]) -> None:
        data = self._encoder.encode_lines(events)
        with self._locked():
            rest = memoryview(data)
            try:
                # A short write is followed by one that tells why: a full disk, a limit on file sizes.
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError as error:
                if written := len(data) - len(rest):
                    os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
                raise OSError(error.errno, error.strerror, self._path) from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Other drivers on this path wait, so that nothing of theirs is behind what is taken back."""
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError:
            # A file system without locks: appending is still atomic for one driver.
            yield
            return
        try:
            yield
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
