"""Measure the time of a listener callback, with the shim's classes in a JVM without a SparkContext.

Starts and ends of tasks are measured in processor time; ``reading the metrics`` is the minimum for the end of a task.
``benchmarks/java/ListenerBenchmark.java`` describes the method.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks._java import run_java


def run() -> None:
    """Print medians, tails and ratios. The targets are: ratio 2, time 5 µs, and 300 ns for the end of a task."""
    with tempfile.TemporaryDirectory() as folder:
        run_java("ListenerBenchmark", [sys.executable, Path(folder, "events.jsonl")])


if __name__ == "__main__":
    run()
