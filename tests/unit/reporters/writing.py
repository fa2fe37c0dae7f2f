"""Two processes that write to one path, as two drivers do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from fakes import sidecar_environment


def two_writers(program: str, path: Path) -> list[subprocess.Popen[bytes]]:
    """Start the writers ``a`` and ``b`` (second argument). Each waits for a line on its standard input."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=sidecar_environment(),
        )
        for name in ("a", "b")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
    return writers
