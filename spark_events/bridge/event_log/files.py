"""Where event logs are: single files, rolling folders of Spark or Databricks, folders with several of these."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from spark_events.bridge.event_log.compression import CutOffError, DamagedError, pieces
from spark_events.errors import MissingExtraError

__all__ = ["EventLog", "Identity", "find_logs", "looks_like_a_log"]

_ROLLING = "eventlog_v2_"
_PART = re.compile(r"events_(\d+)_(.+)")
_COMPACT = ".compact"
_IN_PROGRESS = ".inprogress"
#: Databricks writes to ``eventlog`` and puts it aside under such a name.
_DATABRICKS = "eventlog"
_DATABRICKS_PART = re.compile(r"eventlog-\d{4}-\d\d-\d\d--\d\d-\d\d(?:\.\w+)?")
#: The ids that Spark gives on YARN, in a standalone cluster, locally and on Kubernetes; then the attempt's.
_APPLICATION = re.compile(r"(?:^|_)(application_\d+_\d+|app-\d+-\d+|local-\d+|spark-[0-9a-f]{32})(?:_(\d+))?(?=\.|$)")


class Identity(NamedTuple):
    """An application whose start is not in its log, and where its id is taken from."""

    app_id: str
    attempt_id: str | None
    source: str


@dataclasses.dataclass(frozen=True, slots=True)
class EventLog:
    """The log of one application.

    Attributes:
        path: as a person names it.
        files: what to read, in this order.
        in_progress: the application may still be running, as far as names tell.
        missing: parts that should be between the others and are not there.
        asked_for: it was named itself, not found in a folder.
    """

    path: Path
    files: tuple[Path, ...]
    in_progress: bool = False
    missing: tuple[str, ...] = ()
    asked_for: bool = True

    @property
    def size(self) -> int:
        """How many bytes the files have."""
        return sum(file.stat().st_size for file in self.files if file.exists())

    def identity(self, first_line: bytes) -> Identity:
        """Identify the application of a log that does not have its start.

        Spark names a log by the application's id. Where the name is another one, the id is made of the first line
        that is of use, so that it does not depend on where the log is kept and how it is compressed.
        """
        match = _APPLICATION.search(self.path.name)
        if match is not None:
            return Identity(match[1], match[2], "its name")
        return Identity(f"log-{blake2b(first_line, digest_size=8).hexdigest()}", None, "its first event")


def find_logs(path: Path) -> list[EventLog]:
    """The logs that a path stands for; of a folder's files also those that :func:`looks_like_a_log` would tell apart.

    Raises:
        OSError: the path, or a folder, cannot be read.
    """
    if not path.is_dir():
        os.stat(path)
        return [_single(path, asked_for=True)]
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith((".", "_")))
    if path.name.startswith(_ROLLING) or any(_PART.fullmatch(entry.name) for entry in entries):
        return [_rolling(path, entries)]
    databricks = _databricks(path, entries)
    others = [entry for entry in entries if databricks is None or entry not in databricks.files]
    return [*([] if databricks is None else [databricks]), *_several(others)]


def _several(entries: list[Path]) -> Iterator[EventLog]:
    for entry in entries:
        if not entry.is_dir():
            yield _single(entry, asked_for=False)
        elif entry.name.startswith(_ROLLING):
            yield _rolling(entry, sorted(entry.iterdir()))
        elif (databricks := _databricks(entry, sorted(entry.iterdir()))) is not None:
            yield databricks


def looks_like_a_log(path: Path) -> bool:
    """Whether a file of a folder is an event log, by its first lines; one that cannot be read may be one."""
    try:
        with path.open("rb") as file:
            first = next(pieces(file, lambda _: None), b"")
    except (OSError, CutOffError, DamagedError, MissingExtraError):
        return True
    return b'"Event"' in first or (not first and path.name.endswith(_IN_PROGRESS))


def _single(path: Path, asked_for: bool) -> EventLog:
    return EventLog(path, (path,), path.name.endswith(_IN_PROGRESS), asked_for=asked_for)


def _databricks(folder: Path, entries: list[Path]) -> EventLog | None:
    """The rolling log in a folder of Databricks; None where nothing was put aside."""
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
        if entry.name.endswith(_COMPACT):
            # It stands for itself and for all before it, which may not have been deleted yet.
            compacted = max(compacted, index)
            parts[index] = entry
        elif not parts.get(index, entry).name.endswith(_COMPACT):
            parts[index] = entry
    indexes = sorted(index for index in parts if index >= compacted)
    expected = range(compacted or 1, indexes[-1] + 1) if indexes else range(0)
    missing = tuple(f"events_{index}_*" for index in expected if index not in parts)
    status = [entry.name for entry in entries if entry.name.startswith("appstatus_")]
    in_progress = any(name.endswith(_IN_PROGRESS) for name in status)
    return EventLog(folder, tuple(parts[index] for index in indexes), in_progress, missing)
