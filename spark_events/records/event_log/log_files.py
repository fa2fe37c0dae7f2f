"""Find event logs: single files, rolling folders of Spark or Databricks, and folders with several logs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from spark_events.errors import MissingExtraError
from spark_events.records.event_log.compression import ArchiveError, CutOffError, DamagedLogError, pieces
from spark_events.records.event_log.log_paths import LogPath, entries_of, key_of

_ROLLING = "eventlog_v2_"
_STATUS = "appstatus_"
_PART = re.compile(r"events_(\d+)_(.+)")
#: Suffix of a compacted part, in which Spark keeps only the events of unfinished work.
COMPACT = ".compact"
_IN_PROGRESS = ".inprogress"
#: Databricks writes to the file ``eventlog``, and renames it to a name of this format at each rotation.
_DATABRICKS = "eventlog"
_DATABRICKS_PART = re.compile(r"eventlog-\d{4}-\d\d-\d\d--\d\d-\d\d(?:\W.*)?")
#: Application ids on YARN, a standalone cluster, local mode and Kubernetes, followed by the attempt id.
_APPLICATION = re.compile(r"(?:^|_)(application_\d+_\d+|app-\d+-\d+|local-\d+|spark-[0-9a-f]{32})(?:_(\d+))?(?=\.|$)")


class Identity(NamedTuple):
    """Application id for a log without the application's start, and the origin of this id."""

    app_id: str
    attempt_id: str | None
    source: str


class Position(NamedTuple):
    """How far a growing log has been read; positions of one log can be compared.

    Attributes:
        number: number of the part of a rolling log; 0 for a single file.
        name: name of the part of a Databricks log; empty for other logs.
        offset: bytes of the part's decompressed content, up to the end of the last whole line.
    """

    number: int = 0
    name: str = ""
    offset: int = 0


def part_of(file: LogPath) -> tuple[int, str]:
    """Return number and name of a part, as in :class:`Position`; they stay the same when Spark renames the file.

    >>> from pathlib import Path
    >>> part_of(Path("events_3_app-1.zstd")), part_of(Path("app-1.inprogress"))
    ((3, ''), (0, ''))
    """
    match = _PART.fullmatch(file.name)
    if match is not None:
        return int(match[1]), ""
    return 0, file.name if _DATABRICKS_PART.fullmatch(file.name) else ""


@dataclasses.dataclass(frozen=True, slots=True)
class EventLog:
    """Event log of one application.

    Attributes:
        path: the path that the user specified, or a path found in the specified folder.
        files: the files to read, in this order.
        in_progress: whether the application may still run, according to file names.
        missing: numbers of parts that are missing between other parts.
        asked_for: whether the user specified the path of this log; False if the user specified a folder of logs.
    """

    path: LogPath
    files: tuple[LogPath, ...]
    in_progress: bool = False
    missing: tuple[str, ...] = ()
    asked_for: bool = True

    @property
    def key(self) -> str:
        """Complete path or URL of the log, without the mark of an unfinished log."""
        return key_of(self.path).removesuffix(_IN_PROGRESS)

    def modified(self) -> float:
        """Return the time of the last change of any file, in seconds since the epoch.

        Raises:
            OSError: when a file no longer exists.
        """
        return max((file.stat().st_mtime for file in self.files), default=0.0)

    def is_older(self, since: int | None) -> bool:
        """Return whether the log was last changed before a time in milliseconds; False if that is not known."""
        if since is None:
            return False
        try:
            return self.modified() * 1000 < since
        except OSError:
            return False

    def identity(self, first_line: bytes) -> Identity:
        """Return an application id for a log without the application's start.

        Usually, the file name of a log is the application id. For any other file name, the id is a hash of the log's
        first record, so the id does not depend on the log's location and compression.
        """
        match = _APPLICATION.search(self.path.name)
        if match is not None:
            return Identity(match[1], match[2], "its name")
        return Identity(f"log-{blake2b(first_line, digest_size=8).hexdigest()}", None, "its first event")


def find_logs(path: LogPath, on_error: Callable[[OSError], None] | None = None) -> Iterator[EventLog]:
    """Yield the logs at a path.

    For a folder, the result includes files that :func:`looks_like_a_log` must still check. Each folder is searched once
    and in one pass, so that a folder with any number of logs needs little memory.

    Args:
        path: a log, or a folder with logs in it and in its subfolders. Names that begin with ``.`` or ``_`` are hidden.
        on_error: called for each folder that cannot be read; None: raise the error.

    Raises:
        OSError: when the path does not exist, or without ``on_error``, when a folder cannot be read.
    """
    if not path.is_dir():
        path.stat()
        return iter([_single(path, asked_for=True)])
    return _below(path, on_error or _raise, set())


def _raise(error: OSError) -> None:
    raise error


def _below(folder: LogPath, on_error: Callable[[OSError], None], seen: set[int]) -> Iterator[EventLog]:
    """Yield the logs in a folder and its subfolders; ``seen`` contains hashes of the folders that were searched."""
    rolling: dict[LogPath, re.Match[str]] = {}
    databricks: list[LogPath] = []
    current: list[LogPath] = []
    status: list[LogPath] = []
    try:
        real = hash(folder.resolve())
        if real in seen:
            return
        seen.add(real)
        for entry in entries_of(folder):
            name = entry.name
            if name.startswith((".", "_")):
                continue
            if entry.is_dir():
                yield from _below(entry, on_error, seen)
            elif match := _PART.fullmatch(name):
                rolling[entry] = match
            elif name.startswith(_STATUS):
                status.append(entry)
            elif _DATABRICKS_PART.fullmatch(name):
                databricks.append(entry)
            elif name == _DATABRICKS:
                current.append(entry)
            else:
                yield _single(entry, asked_for=False)
    except OSError as error:
        on_error(error)
        return
    # The parts of a log are complete only after the whole folder was listed.
    if databricks:
        yield EventLog(folder, (*databricks, *current))
    else:
        yield from (_single(entry, asked_for=False) for entry in current)
    yield from _rolling(folder, rolling, status)


def is_named_like_a_log(path: LogPath) -> bool:
    """Return whether a file has a name that Spark or Databricks gives to an event log."""
    name = path.name
    return bool(_APPLICATION.search(name) or _PART.fullmatch(name)) or name.startswith(_DATABRICKS)


def looks_like_a_log(path: LogPath) -> bool:
    """Return whether a file begins with lines of an event log; True if a log with this name cannot be read."""
    try:
        with path.open("rb") as file:
            first = next(pieces(file, lambda _: None), b"")
    except ArchiveError:
        # Many other files are archives: jars, wheels.
        return is_named_like_a_log(path)
    except (OSError, CutOffError, DamagedLogError, MissingExtraError):
        return True
    return b'"Event"' in first or (not first and path.name.endswith(_IN_PROGRESS))


def _single(path: LogPath, asked_for: bool) -> EventLog:
    return EventLog(path, (path,), path.name.endswith(_IN_PROGRESS), asked_for=asked_for)


def _rolling(
    folder: LogPath, matches: Mapping[LogPath, re.Match[str]], status: Sequence[LogPath]
) -> Iterator[EventLog]:
    """Yield the rolling logs of Spark in a folder, usually one; their parts may have been copied to one folder."""
    applications: dict[str, dict[LogPath, int]] = {}
    for path, match in matches.items():
        applications.setdefault(match[2].partition(".")[0], {})[path] = int(match[1])
    if not applications and folder.name.startswith(_ROLLING):
        applications[""] = {}
    for application, paths in applications.items():
        name = folder if len(applications) == 1 else folder / f"{_ROLLING}{application}"
        in_progress = any(
            one.name.endswith(_IN_PROGRESS) and one.name.startswith(f"{_STATUS}{application}") for one in status
        )
        yield _in_order(name, paths, in_progress)


def _in_order(path: LogPath, indexes: Mapping[LogPath, int], in_progress: bool) -> EventLog:
    parts: dict[int, LogPath] = {}
    # A compacted part replaces all earlier parts, which Spark may not have deleted yet.
    compacted = max((index for part, index in indexes.items() if part.name.endswith(COMPACT)), default=0)
    for part, index in indexes.items():
        if index >= compacted and (part.name.endswith(COMPACT) or index not in parts):
            parts[index] = part
    expected = range(compacted or 1, max(parts) + 1) if parts else range(0)
    missing = tuple(f"events_{index}_*" for index in expected if index not in parts)
    return EventLog(path, tuple(parts[index] for index in sorted(parts)), in_progress, missing)
