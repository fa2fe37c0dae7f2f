"""Event logs in object stores and HDFS, read through fsspec with the credentials that its libraries find.

A folder of S3 and of WebHDFS is listed in pages, of 1,000 entries by default, so that its size does not matter. The
others list a folder as a whole, which needs about 1 KB for each entry. No listing is cached, because logs grow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import importlib
import io
import os
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import IO, Any, Literal
from urllib.parse import urlsplit

from spark_events.config.quoting import scheme_and_host, with_short_urls
from spark_events.errors import MissingExtraError, SparkEventsError
from spark_events.records.event_log.schemes import EXTRAS

#: Bytes that one request reads ahead; also the size of the buffer of an open file.
_READ_AHEAD = 1 << 22
_LIBRARIES = {"s3": "s3fs", "gcs": "gcsfs", "azure": "adlfs", "hdfs": "fsspec"}
#: Keys in which the libraries return the time of the last change.
_TIMES = ("LastModified", "mtime", "updated", "last_modified", "modificationTime", "created")
#: Settings that error messages of storage libraries may quote.
_SECRET = re.compile(r"(?i)\b(sig|signature|\w*(?:key|token|secret|password|credential)\w*)(\s*[=:]\s*)\S+")
_MOST_REASON = 300


class RemoteError(OSError):
    """Failed call of a storage library; ``strerror`` contains no secret."""


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteStatus:
    """Size and time of a remote file, as in ``os.stat_result``."""

    st_size: int
    st_mtime: float


@dataclasses.dataclass(frozen=True, slots=True)
class RemotePath:
    """Path in a storage; pickles as its URL, so that other processes open their own connections.

    Attributes:
        root: scheme and host of the URL that the user specified, for messages.
        url: the complete URL, for fsspec.
        is_folder: whether the path is a folder.
        status: size and time at the last listing; None: not known.
    """

    root: str
    url: str
    is_folder: bool
    status: RemoteStatus | None = dataclasses.field(default=None, compare=False)

    @classmethod
    def of(cls, url: str) -> RemotePath:
        """Return the path of a URL that a user specified.

        Raises:
            OSError: nothing exists there, or the storage cannot be reached.
            MissingExtraError: the library for this scheme is not installed.
            SparkEventsError: the URL contains a secret.
        """
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        if parts.query or parts.password is not None or (parts.username and scheme not in ("abfs", "abfss")):
            raise SparkEventsError(
                f"{scheme}://…: the URL contains a user, a password or a query; pass only the place, and"
                " credentials as for the storage's own tools (environment, profile, role)"
            )
        root = scheme_and_host(f"{scheme}://{parts.netloc}") or f"{scheme}://…"
        path = cls(root, f"{scheme}://{parts.netloc}{parts.path}".rstrip("/"), is_folder=True)
        with _errors(path):
            filesystem, inside = _opened(path.url)
            info = filesystem.info(inside)
        return dataclasses.replace(path, is_folder=info["type"] == "directory", status=_status(info))

    @property
    def name(self) -> str:
        """Last component of the path."""
        return self.url.rpartition("/")[2]

    def filesystem(self) -> Any:
        """Return the file system of fsspec, for libraries that read through it."""
        with _errors(self):
            return _opened(self.url)[0]

    def is_dir(self) -> bool:
        """Return whether the path is a folder."""
        return self.is_folder

    def iterdir(self) -> Iterator[RemotePath]:
        """Yield the paths in this folder, as the storage lists them."""
        with _errors(self):
            filesystem, inside = _opened(self.url)
            scheme = self.url.partition("://")[0]
            for info in _LISTERS.get(scheme, _listed)(filesystem, inside):
                name = str(info["name"]).rstrip("/").rpartition("/")[2]
                if name:
                    is_folder = info["type"] == "directory"
                    yield RemotePath(self.root, f"{self.url}/{name}", is_folder, None if is_folder else _status(info))

    def stat(self) -> RemoteStatus:
        """Return size and time at the last listing."""
        if self.status is not None:
            return self.status
        with _errors(self):
            filesystem, inside = _opened(self.url)
            return _status(filesystem.info(inside))

    def resolve(self) -> RemotePath:
        """Return the same path; storages have no symbolic links."""
        return self

    def open(self, mode: Literal["rb"]) -> IO[bytes]:
        """Open the file as a stream of ranged requests."""
        with _errors(self):
            filesystem, inside = _opened(self.url)
            file = filesystem.open(inside, mode, block_size=_READ_AHEAD, cache_type="readahead")
        return io.BufferedReader(_RemoteFile(self, file), 1 << 18)

    def __truediv__(self, name: str) -> RemotePath:
        return RemotePath(self.root, f"{self.url}/{name}", is_folder=False)

    def __str__(self) -> str:
        """Return scheme, host and the last component, for messages."""
        _, slash, path = self.url.partition("://")[2].partition("/")
        if not slash:
            return self.root
        return f"{self.root}/{'…/' if '/' in path else ''}{self.name}"


class _RemoteFile(io.RawIOBase):
    """Open file of a storage, whose errors are ``OSError``."""

    def __init__(self, path: RemotePath, file: Any) -> None:
        self._path = path
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _errors(self._path):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with _errors(self._path):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(Exception):
                self._file.close()
        super().close()


def _opened(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path inside it."""
    scheme = url.partition("://")[0]
    extra = EXTRAS[scheme]
    try:
        importlib.import_module(_LIBRARIES[extra])
        if scheme == "hdfs":
            importlib.import_module("pyarrow")
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingExtraError(
            f"{scheme}:// needs a library that is not installed; run: pip install 'spark-events[{extra}]'"
        ) from None
    filesystem, inside = url_to_fs(url, **_options(scheme))
    return filesystem, str(inside)


@functools.lru_cache
def _options(scheme: str) -> Mapping[str, Any]:
    options: dict[str, Any] = {"use_listings_cache": False}
    if EXTRAS[scheme] == "azure" and "AZURE_STORAGE_ANON" not in os.environ:
        # adlfs reads anonymously unless told otherwise; this selects Azure's default credentials.
        options["anon"] = False
    if scheme == "webhdfs" and (user := os.environ.get("HADOOP_USER_NAME")):
        options["user"] = user
    return options


def _listed(filesystem: Any, folder: str) -> Iterator[Mapping[str, Any]]:
    yield from sorted(filesystem.ls(folder, detail=True), key=lambda info: str(info["name"]))


def pages_of(filesystem: Any, folder: str) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a folder of S3 page by page; s3fs itself would collect all of them."""
    bucket, _, key = folder.partition("/")
    prefix = f"{key}/" if key else ""
    more: dict[str, str] = {}
    while True:
        page = filesystem.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/", **more)
        for one in page.get("CommonPrefixes", ()):
            yield {"name": one["Prefix"], "type": "directory"}
        for one in page.get("Contents", ()):
            # An object with the folder's own name marks an empty folder.
            if one["Key"] != prefix:
                yield {"name": one["Key"], "type": "file", "size": one["Size"], "LastModified": one["LastModified"]}
        if not page.get("IsTruncated"):
            return
        more = {"ContinuationToken": page["NextContinuationToken"]}


def batches_of(filesystem: Any, folder: str) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a folder of WebHDFS page by page; fsspec itself would collect all of them."""
    more: dict[str, str] = {}
    while True:
        # Private, but the only way to an operation that fsspec does not know.
        listing = filesystem._call("LISTSTATUS_BATCH", path=folder, **more).json()["DirectoryListing"]
        page = listing["partialListing"]["FileStatuses"]["FileStatus"]
        for info in page:
            name = f"{folder.rstrip('/')}/{info['pathSuffix']}"
            yield {**info, "name": name, "type": info["type"].lower(), "size": info["length"]}
        if not page or not listing["remainingEntries"]:
            return
        last = page[-1]["pathSuffix"]
        if last == more.get("startAfter"):
            raise OSError("the name node repeats a page of the listing")
        # Hadoop documents the first form, and 3.5 accepts only the second.
        more = {"startAfter": last, "startafter": last}


#: Functions that list a folder page by page, by scheme.
_LISTERS = {**dict.fromkeys(("s3", "s3a", "s3n"), pages_of), "webhdfs": batches_of}


def _status(info: Mapping[str, Any]) -> RemoteStatus:
    return RemoteStatus(int(info.get("size") or 0), _seconds(info))


def _seconds(info: Mapping[str, Any]) -> float:
    """Return the time of the last change; the current time if the storage does not tell."""
    found = next((info[key] for key in _TIMES if info.get(key)), None)
    if isinstance(found, str):
        with contextlib.suppress(ValueError):
            found = datetime.fromisoformat(re.sub("[zZ]$", "+00:00", found))
    if isinstance(found, datetime):
        return found.timestamp()
    if isinstance(found, int | float):
        # WebHDFS returns milliseconds.
        return found / 1000 if found > 1e11 else float(found)
    return time.time()


@contextlib.contextmanager
def _errors(path: RemotePath) -> Iterator[None]:
    """Raise each error of a storage library as an error without a secret."""
    try:
        yield
    except (RemoteError, SparkEventsError, GeneratorExit):
        raise
    except FileNotFoundError:
        raise RemoteError(errno.ENOENT, "no such file or folder", str(path)) from None
    except PermissionError as error:
        raise RemoteError(errno.EACCES, f"access denied ({_reason(error)})", str(path)) from None
    except Exception as error:
        # Catch every error, because each library has its own types.
        raise RemoteError(errno.EIO, f"{type(error).__name__}: {_reason(error)}", str(path)) from None


def _reason(error: Exception) -> str:
    first = (str(error).strip() or "no message").splitlines()[0]
    return _SECRET.sub(r"\1\2…", with_short_urls(first))[:_MOST_REASON]
