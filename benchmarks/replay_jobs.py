"""Measure `spark-events replay --jobs` with one and two processes, and the memory for few and for many logs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.translation import write_log
from spark_events.translate.replays import cores

_LOGS = 8
_LINES = 100_000
_RUNS = 3
# VmHWM, because ru_maxrss of this process includes the memory of the process that started it.
_PROGRAM = """
import re, resource, sys
from pathlib import Path
from spark_events.cli import main
code = main(["replay", *sys.argv[1:]])
own = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
children = resource.getrusage(resource.RUSAGE_CHILDREN)
used = resource.getrusage(resource.RUSAGE_SELF)
print(max(own, children.ru_maxrss) / 1024, used.ru_utime + used.ru_stime + children.ru_utime + children.ru_stime,
    file=sys.stderr)
sys.exit(code)
"""


class _Run(NamedTuple):
    """Seconds, peak memory of the largest process in megabytes, processor seconds, and output of one replay."""

    seconds: float
    memory: float
    processor: float
    output: str


def _measure(folder: Path, jobs: int) -> _Run:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(folder), "--jobs", str(jobs)], capture_output=True, check=True, text=True
    )
    memory, processor = map(float, done.stderr.splitlines()[-1].split())
    return _Run(time.monotonic() - start, memory, processor, done.stdout)


def run() -> None:
    """Print lines per second and memory for one and two processes, and the ratio."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "logs")
        folder.mkdir()
        write_log(folder / "local-0", _LINES)
        for number in range(1, _LOGS):
            shutil.copy(folder / "local-0", folder / f"local-{number}")
        runs: dict[int, list[_Run]] = {1: [], 2: []}
        # Alternate, because other programs on the machine slow down both.
        for _ in range(_RUNS):
            for jobs, some in runs.items():
                some.append(_measure(folder, jobs))
        assert len({one.output for some in runs.values() for one in some}) == 1
        best = {jobs: min(some) for jobs, some in runs.items()}
        for jobs, one in best.items():
            speed, each = _LOGS * _LINES / one.seconds, _LOGS * _LINES / one.processor
            print(
                f"{jobs} processes: {speed:,.0f} lines/s, {each:,.0f} lines per second of processor time, at most"
                f" {one.memory:,.0f} MB in each process"
            )
        print(f"two processes are {best[1].seconds / best[2].seconds:.2f} times as fast as one, on {cores()} cores")
        for number in range(_LOGS, 4 * _LOGS):
            shutil.copy(folder / "local-0", folder / f"local-{number}")
        print(f"{4 * _LOGS} logs: at most {_measure(folder, 2).memory:,.0f} MB in each process")
