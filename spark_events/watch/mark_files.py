"""Files of the mark of a run; :mod:`marks` describes the folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from spark_events.dispatch.spool.ownership import SpoolFolder
from spark_events.event import AttributeValue
from spark_events.records.types import ApplicationStart

_START, _END = "start.json", "end.json"
_LOG = logging.getLogger(__name__)


class Stored(NamedTuple):
    """Run, its attributes with the key of its incident, and the time of the file in nanoseconds."""

    start: ApplicationStart
    scope: Mapping[str, AttributeValue]
    touched: int


class _Attributes(msgspec.Struct):
    attributes: dict[str, AttributeValue] = {}


def identity_of(start: ApplicationStart) -> tuple[str, str]:
    """Return id and attempt of an application."""
    return start.app_id or "", start.attempt_id or ""


def write(folder: Path, start: ApplicationStart, scope: Mapping[str, AttributeValue]) -> None:
    """Write a mark as a whole.

    Raises:
        OSError: when the mark cannot be written.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    scratch = folder / f"{_START}.new"
    scratch.write_bytes(msgspec.json.encode({**msgspec.to_builtins(start), "attributes": dict(scope)}))
    scratch.replace(folder / _START)


def touch(folder: Path) -> bool:
    """Give a mark the current time of the file system; return False if there is no mark.

    Raises:
        OSError: when the time cannot be changed.
    """
    try:
        os.utime(folder / _START)
    except FileNotFoundError:
        return False
    return True


def read(folder: Path) -> Stored:
    """Read a mark.

    Raises:
        OSError: when the mark cannot be read.
        msgspec.MsgspecError: when the mark is damaged.
    """
    # Open the file before reading its time: on a network file system, an open asks the server for the time.
    with (folder / _START).open("rb") as opened:
        data, touched = opened.read(), os.fstat(opened.fileno()).st_mtime_ns
    start = msgspec.json.decode(data, type=ApplicationStart)
    return Stored(start, msgspec.json.decode(data, type=_Attributes).attributes, touched)


def end_of(folder: Path) -> bytes | None:
    """Return the record of the end that a driver without a sidecar has stored; None if there is none.

    Raises:
        OSError: when the record cannot be read.
    """
    try:
        return (folder / _END).read_bytes()
    except FileNotFoundError:
        return None


def delete(folder: SpoolFolder, otherwise: str) -> None:
    """Delete a mark; the file that marks the run as running is first.

    Args:
        folder: the folder, which this process owns.
        otherwise: what happens if the mark cannot be deleted, for the log.
    """
    try:
        for name in (_START, _END, f"{_START}.new", f"{_END}.new"):
            (folder.folder / name).unlink(missing_ok=True)
        folder.delete()
    except OSError as error:
        _LOG.warning("cannot delete %s, so %s: %s", folder.folder, otherwise, error)
