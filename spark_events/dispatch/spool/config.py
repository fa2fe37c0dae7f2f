"""Where a spool is and how large it may become."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

from spark_events.config import Kind, boolean, option, text

__all__ = ["SpoolConfig", "default_directory"]

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _parse_size(value: str) -> int:
    match = re.fullmatch(r"(\d{1,9})\s*([kmg])b?", value.lower())
    if match is None or int(match[1]) == 0:
        raise ValueError
    return int(match[1]) * _UNITS[match[2]]


def _format_size(size: int) -> str:
    unit = next((unit for unit in ("g", "m") if size % _UNITS[unit] == 0), "k")
    return f"{size // _UNITS[unit]}{unit}"


_SIZE: Kind[int] = Kind("a whole number above 0 with a unit (k, m, g), say 256m", _parse_size, _format_size)


@dataclasses.dataclass(frozen=True, slots=True)
class SpoolConfig:
    """``events.reporter.<name>.spool.…``"""

    directory: str | None = option(
        "spool.directory",
        text("the path of a directory"),
        None,
        doc="With at-least-once, where events wait; below $XDG_STATE_HOME or ~/.local/state, if it is not set.",
    )
    max_size: int = option(
        "spool.max-size", _SIZE, 256 << 20, doc="How large the spool may become; then what is worth least goes first."
    )
    fsync: bool = option(
        "spool.fsync",
        boolean,
        False,
        doc="Whether every write waits for the disk: then the spool outlives a power cut, too, not only its process.",
    )


def default_directory() -> Path:
    """Where programs keep what must outlive them, by the XDG base directory specification.

    Raises:
        RuntimeError: the user has no home.
    """
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "spark-events" / "spool"
