"""Find event logs: single files, rolling folders of Spark or Databricks, and folders with several logs."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from spark_events.errors import MissingExtraError
from spark_events.records.event_log.compression import ArchiveError, CutOffError, DamagedLogError, pieces

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

    path: Path
    files: tuple[Path, ...]
    in_progress: bool = False
    missing: tuple[str, ...] = ()
    asked_for: bool = True

    def identity(self, first_line: bytes) -> Identity:
        """Return an application id for a log without the application's start.

        Usually, the file name of a log is the application id. For any other file name, the id is a hash of the log's
        first record, so the id does not depend on the log's location and compression.
        """
        match = _APPLICATION.search(self.path.name)
        if match is not None:
            return Identity(match[1], match[2], "its name")
        return Identity(f"log-{blake2b(first_line, digest_size=8).hexdigest()}", None, "its first event")


def find_logs(path: Path, on_error: Callable[[OSError], None] | None = None) -> list[EventLog]:
    """Return the logs at a path.

    For a folder, the result includes files that :func:`looks_like_a_log` must still check.

    Args:
        path: a log, or a folder with logs in it and in its subfolders. Names that begin with ``.`` or ``_`` are hidden.
        on_error: called for each folder that cannot be read; None: raise the error.

    Raises:
        OSError: when the path does not exist, or without ``on_error``, when a folder cannot be read.
    """
    if not path.is_dir():
        os.stat(path)
        return [_single(path, asked_for=True)]
    return list(_below(path, on_error or _raise, set()))


def _raise(error: OSError) -> None:
    raise error


def _below(folder: Path, on_error: Callable[[OSError], None], seen: set[Path]) -> Iterator[EventLog]:
    """Yield the logs in a folder and its subfolders; ``seen`` contains the folders that were searched already."""
    try:
        real = folder.resolve()
        entries = [(one, one.is_dir()) for one in sorted(folder.iterdir()) if not one.name.startswith((".", "_"))]
    except OSError as error:
        on_error(error)
        return
    if real in seen:
        return
    seen.add(real)
    files = [entry for entry, is_folder in entries if not is_folder]
    rolling = {entry: match for entry in files if (match := _PART.fullmatch(entry.name))}
    databricks = [entry for entry in files if _DATABRICKS_PART.fullmatch(entry.name)]
    if databricks:
        databricks += [entry for entry in files if entry.name == _DATABRICKS]
        yield EventLog(folder, tuple(databricks))
    status = [entry for entry in files if entry.name.startswith(_STATUS)]
    yield from _rolling(folder, rolling, status)
    for entry, is_folder in entries:
        if is_folder:
            yield from _below(entry, on_error, seen)
        elif entry not in rolling and entry not in status and entry not in databricks:
            yield _single(entry, asked_for=False)


def is_named_like_a_log(path: Path) -> bool:
    """Return whether a file has a name that Spark or Databricks gives to an event log."""
    name = path.name
    return bool(_APPLICATION.search(name) or _PART.fullmatch(name)) or name.startswith(_DATABRICKS)


def looks_like_a_log(path: Path) -> bool:
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


def _single(path: Path, asked_for: bool) -> EventLog:
    return EventLog(path, (path,), path.name.endswith(_IN_PROGRESS), asked_for=asked_for)


def _rolling(folder: Path, matches: Mapping[Path, re.Match[str]], status: Sequence[Path]) -> Iterator[EventLog]:
    """Yield the rolling logs of Spark in a folder, usually one; their parts may have been copied to one folder."""
    applications: dict[str, dict[Path, int]] = {}
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


def _in_order(path: Path, indexes: Mapping[Path, int], in_progress: bool) -> EventLog:
    parts: dict[int, Path] = {}
    # A compacted part replaces all earlier parts, which Spark may not have deleted yet.
    compacted = max((index for part, index in indexes.items() if part.name.endswith(COMPACT)), default=0)
    for part, index in indexes.items():
        if index >= compacted and (part.name.endswith(COMPACT) or index not in parts):
            parts[index] = part
    expected = range(compacted or 1, max(parts) + 1) if parts else range(0)
    missing = tuple(f"events_{index}_*" for index in expected if index not in parts)
    return EventLog(path, tuple(parts[index] for index in sorted(parts)), in_progress, missing)
