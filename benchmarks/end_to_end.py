"""Measure events per second from the listener to a file, with the real shim, sidecar and file reporter.

``benchmarks/java/EndToEndBenchmark.java`` describes the method. Afterwards, the benchmark verifies that the file
contains every event once and in order. Environment: ``END_TO_END_ROUNDS`` (default 9); ``END_TO_END_PYTHON``: another
interpreter for the sidecar, for example an optimized build.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import msgspec

from benchmarks._java import run_java
from spark_events.event import Attributes, Event

_ROUNDS = int(os.environ.get("END_TO_END_ROUNDS", "9"))


def run() -> None:
    """Print events per second; the target is 50,000."""
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder, "events.jsonl")
        print(f"load before: {os.getloadavg()[0]:.2f}, on {os.cpu_count()} processors")
        python = os.environ.get("END_TO_END_PYTHON", sys.executable)
        run_java("EndToEndBenchmark", [python, events, folder, str(_ROUNDS)])
        _check(events)


def _check(path: Path) -> None:
    decoder = msgspec.json.Decoder(Event, dec_hook=lambda _, given: Attributes(given))
    ids = set()
    sequence = 0
    jobs = []
    with path.open("rb") as lines:
        for line in lines:
            event = decoder.decode(line)
            sequence += 1
            assert event.sequence == sequence, f"found event {event.sequence}, expected {sequence}"
            ids.add(event.event_id)
            if "spark.job.id" in event.attributes:
                jobs.append((event.attributes["spark.job.id"], event.attributes["spark.status.new"]))
    assert jobs == [(call // 2, ("RUNNING", "FINISHED")[call % 2]) for call in range(len(jobs))]
    assert len(ids) == sequence
    print(f"in the file: {len(jobs):,} job events, each once and in order")


if __name__ == "__main__":
    run()
