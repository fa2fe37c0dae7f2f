"""What a listener callback costs Spark: the shim's own classes in a JVM of their own, without Spark around them.

``benchmarks/java/ListenerBenchmark.java`` says what is compared, and how.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks._java import run_java


def run() -> None:
    """Prints medians and tails, and the ratios that are promised: 2, 5 µs, 50 ns."""
    with tempfile.TemporaryDirectory() as folder:
        run_java("ListenerBenchmark", [sys.executable, Path(folder, "events.jsonl")])


if __name__ == "__main__":
    run()
