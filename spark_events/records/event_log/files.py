"""Find event logs: single files, rolling folders of Spark or Databricks, and folders with several logs."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from spark_events.errors import MissingExtraError
from spark_events.records.event_log.compression import CutOffError, DamagedLogError, pieces

_ROLLING = "eventlog_v2_"
_PART = re.compile(r"events_(\d+)_(.+)")
#: Suffix of a compacted part, in which Spark keeps only the events of unfinished work.
COMPACT = ".compact"
_IN_PROGRESS = ".inprogress"
#: Databricks writes to the file ``eventlog``, and renames it to a name of this format at each rotation.
_DATABRICKS = "eventlog"
_DATABRICKS_PART = re.compile(r"eventlog-\d{4}-\d\d-\d\d--\d\d-\d\d(?:\.\w+)?")
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
        path: a log, or a folder of logs.
        on_error: called for each subfolder that cannot be read; None: raise the error.

    Raises:
        OSError: when the path, or without ``on_error`` a subfolder, cannot be read.
    """
    if not path.is_dir():
        os.stat(path)
        return [_single(path, asked_for=True)]
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    if path.name.startswith(_ROLLING) or any(_PART.fullmatch(entry.name) for entry in entries):
        return [_rolling(path, entries)]
    databricks = _databricks(path, entries)
    others = [entry for entry in entries if databricks is None or entry not in databricks.files]
    return [*([] if databricks is None else [databricks]), *_several(others, on_error)]


def _several(entries: list[Path], on_error: Callable[[OSError], None] | None) -> Iterator[EventLog]:
    for entry in entries:
        try:
            log = _entry(entry)
        except OSError as error:
            if on_error is None:
                raise
            on_error(error)
        else:
            if log is not None:
                yield log


def _entry(entry: Path) -> EventLog | None:
    """Return the log at a path in a folder of logs; None for a folder of other files."""
    if not entry.is_dir():
        return _single(entry, asked_for=False)
    if entry.name.startswith(_ROLLING):
        return _rolling(entry, sorted(entry.iterdir()))
    return _databricks(entry, sorted(entry.iterdir()))


def looks_like_a_log(path: Path) -> bool:
    """Return whether a file begins with lines of an event log; True if the file cannot be read."""
    try:
        with path.open("rb") as file:
            first = next(pieces(file, lambda _: None), b"")
    except (OSError, CutOffError, DamagedLogError, MissingExtraError):
        return True
    return b'"Event"' in first or (not first and path.name.endswith(_IN_PROGRESS))


def _single(path: Path, asked_for: bool) -> EventLog:
    return EventLog(path, (path,), path.name.endswith(_IN_PROGRESS), asked_for=asked_for)


def _databricks(folder: Path, entries: list[Path]) -> EventLog | None:
    """Return the rolling log in a folder of Databricks; None if the folder has no rotated file."""
    parts = [entry for entry in entries if _DATABRICKS_PART.fullmatch(entry.name)]
    newest = [entry for entry in entries if entry.name == _DATABRICKS and not entry.is_dir()]
    return EventLog(folder, (*parts, *newest)) if parts else None


def _rolling(folder: Path, entries: list[Path]) -> EventLog:
    parts: dict[int, Path] = {}
    compacted = 0
    for entry in entries:
        match = _PART.fullmatch(entry.name)
        if match is None:
            continue
        index = int(match[1])
        if entry.name.endswith(COMPACT):
            # A compacted part replaces all earlier parts, which Spark may not have deleted yet.
            compacted = max(compacted, index)
            parts[index] = entry
        elif not parts.get(index, entry).name.endswith(COMPACT):
            parts[index] = entry
    indexes = sorted(index for index in parts if index >= compacted)
    expected = range(compacted or 1, indexes[-1] + 1) if indexes else range(0)
    missing = tuple(f"events_{index}_*" for index in expected if index not in parts)
    status = [entry.name for entry in entries if entry.name.startswith("appstatus_")]
    in_progress = any(name.endswith(_IN_PROGRESS) for name in status)
    return EventLog(folder, tuple(parts[index] for index in indexes), in_progress, missing)
