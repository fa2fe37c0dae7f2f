"""How late something was, less what the machine itself was late: on a busy one nobody is in time.

with Witness() as witness:
    deadline = time.monotonic() + 0.5
    dispatcher.stop(deadline)
    assert witness.late(deadline) <= 0.1

Or how long it took, where it was not to take long: ``assert witness.took(began) < 2``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

__all__ = ["Witness"]

# Wakes up every millisecond and notes when it could not. Of the threads that it watches, and of all threads of their
# child processes, it notes how long each was ready to run and had no processor, by the kernel's account. The times are
# time.monotonic's, which all processes of a machine share. It is a process of its own, because what keeps the test's
# interpreter busy is not the machine's fault.
_PROGRAM = """
import glob, json, select, sys, time

stalls, watched, known = [], None, {}

def threads():
    yield from glob.glob(watched)
    for path in glob.glob(watched.replace("schedstat", "children")):
        try:
            with open(path) as told:
                children = told.read().split()
        except OSError:
            continue
        for child in children:
            yield from glob.glob(f"/proc/{child}/task/*/schedstat")

def waited():
    most = 0.0
    for path in threads():
        try:
            with open(path) as told:
                nanos = int(told.read().split()[1])
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
    """A process that watches the machine, while it is entered."""

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
        """Count from now on what keeps a thread of that process, or that one, or a child, from a processor."""
        self._ask(f"/proc/{process}/task/{thread}/schedstat")

    def late(self, deadline: float) -> float:
        """Seconds since the deadline (of ``time.monotonic``) in which the machine let processes run; may be below 0."""
        return self.took(deadline, time.monotonic())

    def took(self, began: float, ended: float | None = None) -> float:
        """Seconds between two moments (of ``time.monotonic``; the second: now) in which it let processes run."""
        ended = time.monotonic() if ended is None else ended
        took, counted = ended - began, began
        for start, end in sorted(self._ask()):
            # What two have noted counts once.
            took -= max(0.0, min(end, ended) - max(start, counted))
            counted = max(counted, end)
        return took

    def _ask(self, watched: str = "") -> list[tuple[float, float]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{watched}\n")
        return [(start, end) for start, end in json.loads(self._process.stdout.readline())]
