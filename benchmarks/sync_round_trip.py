"""Measure the time of a listener callback with the dispatcher type ``sync`` and a file reporter.

``benchmarks/java/SyncRoundTripBenchmark.java`` describes the method. Afterwards, the benchmark verifies that the file
contains one event per call.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from benchmarks._java import run_java

_CALLS = int(os.environ.get("SYNC_ROUND_TRIP_CALLS", "10000"))
_WARM_UP = 5_000


def run() -> None:
    """Print medians and tails. The target for the median is at most 500 µs."""
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "events.jsonl")
        print(f"load before: {os.getloadavg()[0]:.2f}, on {os.cpu_count()} processors")
        run_java("SyncRoundTripBenchmark", [sys.executable, events, str(_CALLS)])
        with events.open("rb") as lines:
            jobs = sum(b'"spark.job.id"' in line for line in lines)
        assert jobs == _WARM_UP + _CALLS + _CALLS // 4, jobs


if __name__ == "__main__":
    run()
