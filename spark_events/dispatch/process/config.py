"""Setting that selects a thread or a process for a reporter."""

from __future__ import annotations

import dataclasses
import sys

from spark_events.config import Kind, option

__all__ = ["IsolationConfig"]


def _isolation(value: str) -> str:
    if value not in ("thread", "process"):
        raise ValueError
    if value == "process" and sys.platform != "linux":
        raise ValueError("a process of its own needs Linux")
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class IsolationConfig:
    """Isolation setting under ``events.reporter.<name>.``."""

    isolation: str = option(
        "isolation",
        Kind("one of thread, process", _isolation),
        "thread",
        doc="process: the reporter runs in its own process, so it may crash, exit or hold the interpreter's lock.",
    )
