"""Run a command in its own terminal, and send Ctrl-C when a file named ``press`` exists."""

from __future__ import annotations

import os
import pty
import select
import sys
from pathlib import Path


def main(command: list[str]) -> int:
    """Forward the command's output and return its exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    pressed = False
    while True:
        if not pressed and Path("press").exists():
            os.write(terminal, b"\x03")
            pressed = True
        ready, _, _ = select.select([terminal], [], [], 0.05)
        try:
            printed = os.read(terminal, 65536) if ready else None
        except OSError:
            # At the end of file, all processes that had opened the terminal have exited.
            break
        if printed is not None:
            os.write(2, printed)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
