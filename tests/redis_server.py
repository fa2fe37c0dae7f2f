"""Real redis-server for the tests of the shared cache."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fakes import eventually
from missing import missing
from ports import free_port

__all__ = ["redis_server"]

_PROGRAM = shutil.which("redis-server")


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run redis-server without persistence, and yield its URL.

    Without the program, the fixture skips the test, or fails it on CI.
    """
    import redis

    if _PROGRAM is None:
        missing("no redis-server: run `make redis`")
    port = free_port()
    command = [_PROGRAM, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            client = redis.Redis(port=port)

            def answers() -> bool:
                with contextlib.suppress(redis.ConnectionError):
                    return bool(client.ping())
                return False

            eventually(answers)
            client.close()
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
