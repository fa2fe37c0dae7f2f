"""How far each file of a folder has been read, whatever its name is now."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from typing import BinaryIO, NamedTuple, TypeAlias

#: Device and inode. A rename does not change them, but a new file may get the inode of a deleted one.
Inode: TypeAlias = tuple[int, int]
#: Maximum number of first bytes that identify a file. The first event has an id, so they differ from file to file.
_MOST_HEAD = 4096


def inode_of(status: os.stat_result) -> Inode:
    """Return device and inode of a file."""
    return status.st_dev, status.st_ino


class _Position(NamedTuple):
    """Number of bytes already read, and a hash of the first of them."""

    offset: int
    head: bytes


class Positions:
    """Positions in files, by inode and first bytes."""

    def __init__(self) -> None:
        self._known: dict[Inode, _Position] = {}

    def seek(self, file: BinaryIO) -> int:
        """Move to the first unread byte, and return its offset.

        The offset is 0 for a file that was not read before, also if it has the inode of a deleted file, or if a program
        has truncated the file and written other lines.
        """
        known = self._known.get(inode_of(os.fstat(file.fileno())), _Position(0, b""))
        begin = known.offset if _head(file, known.offset) == known.head else 0
        return file.seek(begin)

    def store(self, file: BinaryIO, offset: int) -> None:
        """Note that the file was read up to an offset."""
        self._known[inode_of(os.fstat(file.fileno()))] = _Position(offset, _head(file, offset))

    def forget_others(self, inodes: Collection[Inode]) -> None:
        """Forget the files that no longer exist."""
        self._known = {inode: position for inode, position in self._known.items() if inode in inodes}


def _head(file: BinaryIO, offset: int) -> bytes:
    """Return a hash of the first bytes of the file; empty for offset 0."""
    if not offset:
        return b""
    file.seek(0)
    return hashlib.blake2b(file.read(min(offset, _MOST_HEAD)), digest_size=16).digest()
