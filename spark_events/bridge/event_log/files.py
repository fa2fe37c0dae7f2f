"""Where event logs are: single files, rolling folders, folders with several of both."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

from spark_events.bridge.event_log.compression import CutOffError, DamagedError, pieces
from spark_events.errors import MissingExtraError

__all__ = ["EventLog", "find_logs", "looks_like_a_log"]

_ROLLING = "eventlog_v2_"
_PART = re.compile(r"events_(\d+)_(.+)")
_COMPACT = ".compact"
_IN_PROGRESS = ".inprogress"


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
    return list(_several(entries))


def _several(entries: list[Path]) -> Iterator[EventLog]:
    for entry in entries:
        if not entry.is_dir():
            yield _single(entry, asked_for=False)
        elif entry.name.startswith(_ROLLING):
            yield _rolling(entry, sorted(entry.iterdir()))


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
