"""Where a spool is and how large it may become."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from spark_events.config import boolean, option, path, size

__all__ = ["SpoolConfig", "directory_of"]


@dataclasses.dataclass(frozen=True, slots=True)
class SpoolConfig:
    """``events.reporter.<name>.spool.…``"""

    directory: str | None = option(
        "spool.directory",
        path("the path of a directory"),
        None,
        doc="With at-least-once, where events wait; below $XDG_STATE_HOME or ~/.local/state, if it is not set.",
    )
    max_size: int = option(
        "spool.max-size", size, 256 << 20, doc="How large the spool may become; then what is worth least goes first."
    )
    fsync: bool = option(
        "spool.fsync",
        boolean,
        False,
        doc="Whether every write waits for the disk: then the spool outlives a power cut, too, not only its process.",
    )


def directory_of(config: SpoolConfig) -> Path:
    """Where it is; by default where programs keep what must outlive them, by the XDG base directory specification.

    Raises:
        RuntimeError: it is the default, and the user has no home.
    """
    if config.directory is not None:
        return Path(config.directory)
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "spark-events" / "spool"
