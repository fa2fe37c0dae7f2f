"""Default folder for files that remain after the process exits."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["state_folder"]


def state_folder() -> Path:
    """Return the folder for state, as the XDG specification defines it.

    Raises:
        RuntimeError: when the user has no home directory.
    """
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state and Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "spark-events"
