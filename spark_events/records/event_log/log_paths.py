"""Where event logs lie: the part of a path that reading logs needs, on disks and in object stores.

A local place is a :class:`pathlib.Path`. Any other place is a :class:`~.remote.RemotePath`, which reads through fsspec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Literal, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from spark_events.errors import SparkEventsError
from spark_events.records.event_log.schemes import EXTRAS

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE = "file"
FORMS = "a URL with file://, s3://, s3a://, gs://, abfs://, abfss://, hdfs:// or webhdfs://"


class FileStatus(Protocol):
    """Size in bytes, and the time of the last change in seconds since the epoch."""

    @property
    def st_size(self) -> int: ...
    @property
    def st_mtime(self) -> float: ...


_Self = TypeVar("_Self", bound="LogPath")


class LogPath(Protocol):
    """Path of a log or of a folder with logs; every error is an ``OSError`` or a ``MissingExtraError``."""

    @property
    def name(self) -> str:
        """Last component of the path."""

    def is_dir(self) -> bool:
        """Return whether the path is a folder."""

    def iterdir(self: _Self) -> Iterator[_Self]:
        """Yield the paths in this folder."""

    def stat(self) -> FileStatus:
        """Return size and time."""

    def resolve(self: _Self) -> _Self:
        """Return the same path without symbolic links."""

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open a file for reading."""

    def __truediv__(self: _Self, name: str) -> _Self: ...


def is_log_url(given: str) -> bool:
    """Return whether a text is the URL of a place.

    >>> is_log_url("s3://bucket/spark-logs"), is_log_url("postgresql://db/events"), is_log_url("/logs")
    (True, False, False)
    """
    scheme = _SCHEME.match(given)
    return scheme is not None and (scheme[1].lower() in EXTRAS or scheme[1].lower() == _FILE)


def place_of(given: str) -> LogPath:
    """Return the place of a path or URL.

    Raises:
        OSError: a remote place does not exist or cannot be reached.
        MissingExtraError: the library for this scheme is not installed.
        SparkEventsError: the scheme is unknown, or the URL contains a secret.
    """
    scheme = _SCHEME.match(given)
    if scheme is None:
        return Path(given)
    if scheme[1].lower() == _FILE:
        return Path(unquote(urlsplit(given).path))
    if scheme[1].lower() not in EXTRAS:
        raise SparkEventsError(f"{scheme[0]}…: unknown scheme; expected a path or {FORMS}")
    from spark_events.records.event_log.remote import RemotePath

    return RemotePath.of(given)


def entries_of(folder: LogPath) -> Iterator[LogPath]:
    """Yield the entries of a folder in the order of their names, without keeping an object for each of them."""
    if isinstance(folder, Path):
        names = sorted(entry.name for entry in folder.iterdir())
        return (folder / name for name in names)
    return folder.iterdir()


def key_of(place: LogPath) -> str:
    """Return the complete path or URL of a place, which is unique; messages use ``str``."""
    return str(getattr(place, "url", place))
