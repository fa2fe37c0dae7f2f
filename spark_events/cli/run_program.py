"""Start a program for ``spark-events run``, and wait until all of it has ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from spark_events.cli.output import note
from spark_events.dispatch.pipeline_plan import VERDICT_VARIABLE
from spark_events.event.text import on_one_line
from spark_events.sidecar import python_exceptions

__all__ = ["Ending", "end_of"]

#: Signals that end a program in order; they are passed on to it.
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Folder of the sitecustomize.py that records the program's exception.
_SITE = Path(python_exceptions.__file__).parent / "site"
#: Longest time after the program's exit in which its driver and sidecar may still write the verdict, in seconds. They
#: need about a second, and `spark.events.shutdown.timeout` (10 s) at most if a reporter hangs.
_REST_SECONDS = 20.0
_POLL_SECONDS = 0.05
_PROC = Path("/proc")


class Ending(NamedTuple):
    """How a program ended.

    Attributes:
        code: its exit code; 128 + N for signal N.
        was_asked: whether this command was asked to end it.
        could_start: whether the program could be started.
    """

    code: int
    was_asked: bool = False
    could_start: bool = True


def end_of(command: list[str], verdict: Path, exception: Path) -> Ending:
    """Run a program, and wait for its verdict.

    Args:
        command: the program and its arguments.
        verdict: file for the verdict of its sidecar.
        exception: file for the exception that ends its Python.
    """
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []
    asked = False

    def pass_on(number: int, _: object) -> None:
        nonlocal asked
        asked = True
        # The terminal sends its Ctrl-C to the program, too.
        if number == signal.SIGINT and _is_in_foreground():
            return
        if process is None:
            early.append(number)
        else:
            process.send_signal(number)

    # The handlers come first: the program may be at work before this process continues.
    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        try:
            process = subprocess.Popen(command, env=_environment(verdict, exception))
        except OSError as error:
            note(f"cannot run {on_one_line(command[0])}: {error.strerror}")
            return Ending(127 if isinstance(error, FileNotFoundError) else 126, could_start=False)
        for number in early:
            process.send_signal(number)
        code = process.wait()
        _await(verdict)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return Ending(code if code >= 0 else 128 - code, asked)


def _environment(verdict: Path, exception: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(_SITE), os.environ.get("PYTHONPATH"))))
    return {
        **os.environ,
        VERDICT_VARIABLE: str(verdict),
        python_exceptions.VARIABLE: str(exception),
        "PYTHONPATH": path,
    }


def _is_in_foreground() -> bool:
    """Return whether this process belongs to the group to which the terminal sends its signals."""
    with contextlib.suppress(OSError, ValueError):
        return os.tcgetpgrp(sys.__stdin__.fileno() if sys.__stdin__ else -1) == os.getpgrp()
    return False


def _await(verdict: Path) -> None:
    """Wait until the verdict is there, or until no process is left that may write it."""
    until = time.monotonic() + _REST_SECONDS
    while not verdict.exists() and _is_at_work(verdict) and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)


def _is_at_work(verdict: Path) -> bool:
    """Return whether a process of the program, such as its driver or sidecar, still runs; True if it is unknown."""
    if not _PROC.is_dir():
        return True
    mark = f"{VERDICT_VARIABLE}={verdict}\0".encode()
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            # Processes of other users cannot be read; they are not of this program.
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    return True
    return False
