"""Which driver a spool was last used for: one that lives gives a sidecar that died a successor, and that one needs it.

A driver is told by a line of text that any process of the machine can check: the machine since it was started, the
process's number, and when that began, since numbers are used again.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["is_alive", "line_of"]

_PROC = Path("/proc")
#: In /proc/<number>/stat, behind the name, which may have anything in it.
_STATE, _STARTED = 0, 19
#: A zombie does nothing any more, however long nobody asks what became of it.
_ENDED = ("Z", "X")


def line_of(number: int) -> str:
    """The line that tells a process; empty where nobody could check it: it has ended, or there is no /proc.

    Args:
        number: its id; 0: unknown.
    """
    try:
        fields = (_PROC / str(number) / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        state, started = fields[_STATE], fields[_STARTED]
        machine = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        # A container has numbers of its own.
        numbers = os.stat(_PROC / "self/ns/pid").st_ino
    except (OSError, IndexError):
        return ""
    return "" if state in _ENDED else f"{machine} {numbers} {number} {started}"


def is_alive(line: str) -> bool:
    """Whether the process of a line runs, as far as can be seen from here."""
    parts = line.split()
    return len(parts) == 4 and parts[2].isdecimal() and line_of(int(parts[2])) == line
