"""Files of alerts: one small file per alert, from which other drivers and later runs continue the alert."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

__all__ = ["AlertFiles"]

#: Names of the files of alerts. The folder may contain other files.
_FILE = re.compile(r"[0-9a-f]{32}\.json")


class AlertFiles:
    """Files of one destination in a folder that several reporters and drivers may share.

    Every method may raise an ``OSError``.

    Args:
        destination: string that identifies the destination; confidential, so only a hash of it is stored.
        folder: the folder, which is created for the first file.
    """

    def __init__(self, destination: str, folder: Path) -> None:
        self._destination = destination
        self.folder = folder

    def path(self, key: str) -> Path:
        """Return the path of an alert's file."""
        name = blake2b(f"{self._destination}\0{key}".encode("utf-8", "replace"), digest_size=16).hexdigest()
        return self.folder / f"{name}.json"

    def read(self, key: str) -> bytes | None:
        """Return the content of an alert's file; None if there is none."""
        try:
            return self.path(key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, key: str, content: bytes) -> None:
        """Replace an alert's file atomically, so that a reader gets either the old or the new content."""
        path = self.path(key)
        written = path.with_suffix(f".{os.getpid()}")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            written.write_bytes(content)
            written.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                written.unlink()
            raise

    def delete(self, path: Path) -> None:
        """Delete a file; another driver may already have deleted it."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.unlink()

    def paths(self) -> Iterator[Path]:
        """Yield the paths of all alerts' files in the folder, also of other destinations."""
        return (path for path in sorted(self.folder.glob("*.json")) if _FILE.fullmatch(path.name))

    def load(self, path: Path) -> tuple[bytes, float] | None:
        """Return the content and the modification time of a file; None if another driver has deleted the file."""
        try:
            return path.read_bytes(), path.stat().st_mtime
        except FileNotFoundError:
            return None
