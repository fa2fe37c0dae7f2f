"""Measure delays, but exclude delays that a busy machine causes.

    with Witness() as witness:
        deadline = time.monotonic() + 0.5
        dispatcher.stop(deadline)
        assert witness.late(deadline) <= 0.1

For durations: ``assert witness.took(began) < 2``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

__all__ = ["Witness"]

# The process wakes up every millisecond and records each delay. From the kernel's accounting, the process also records
# how long each watched thread, and each thread of a child process, was runnable but had no processor. Times are
# time.monotonic, the same clock in all processes of a machine. The process is separate, so that load in the test's
# interpreter does not count as a stall.
_PROGRAM = """
import glob, json, select, sys, time

stalls, watched, known = [], None, {}

def threads():
    yield from glob.glob(watched)
    for path in glob.glob(watched.replace("schedstat", "children")):
        try:
            with open(path) as file:
                children = file.read().split()
        except OSError:
            continue
        for child in children:
            yield from glob.glob(f"/proc/{child}/task/*/schedstat")

def waited():
    most = 0.0
    for path in threads():
        try:
            with open(path) as file:
                nanos = int(file.read().split()[1])
        except (OSError, IndexError):
            continue
        most = max(most, nanos - known.get(path, nanos))
        known[path] = nanos
    return most / 1e9

print("awake", flush=True)
looked = time.monotonic()
while True:
    asleep = time.monotonic()
    asked = select.select([0], [], [], 0.001)[0]
    awake = time.monotonic()
    if awake - asleep > 0.003:
        stalls.append((asleep + 0.001, awake))
    if watched and (asked or awake - looked > 0.005):
        starved = min(waited(), awake - looked)
        if starved > 0.001:
            stalls.append((awake - starved, awake))
        looked = awake
    if asked:
        line = sys.stdin.readline()
        if not line:
            break
        watched = line.strip() or watched
        print(json.dumps(stalls), flush=True)
"""


class Witness:
    """Process that records stalls of the machine while the context is active."""

    def __enter__(self) -> Witness:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "awake\n"
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def watch(self, process: int, thread: int | str = "*") -> None:
        """Also include the time in which threads of a process (default: all) and its children wait for a processor."""
        self._ask(f"/proc/{process}/task/{thread}/schedstat")

    def late(self, deadline: float) -> float:
        """Return the seconds since the deadline (``time.monotonic``) minus stalls. The result may be negative."""
        return self.took(deadline, time.monotonic())

    def took(self, began: float, ended: float | None = None) -> float:
        """Return the seconds from ``began`` to ``ended`` (``time.monotonic``; default: now) minus stalls."""
        ended = time.monotonic() if ended is None else ended
        took, counted = ended - began, began
        for start, end in sorted(self._ask()):
            # Count the overlap of two stalls only once.
            took -= max(0.0, min(end, ended) - max(start, counted))
            counted = max(counted, end)
        return took

    def _ask(self, watched: str = "") -> list[tuple[float, float]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{watched}\n")
        return [(start, end) for start, end in json.loads(self._process.stdout.readline())]
