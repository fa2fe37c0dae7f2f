"""What a listener callback costs Spark: the shim's own classes in a JVM of their own, without Spark around them.

``benchmarks/java/ListenerBenchmark.java`` says what is compared, and how.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from spark_events.jars import jar_path

_SOURCE = Path(__file__).parent / "java" / "ListenerBenchmark.java"
#: As a driver runs: the server compiler, the default collector. Jetty and the like are not on the path.
_JVM = ["-Xms512m", "-Xmx512m"]


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def run() -> None:
    """Prints medians and tails, and the ratios that are promised: 2, 5 µs, 50 ns."""
    home = os.environ.get("JAVA_HOME")
    binaries = f"{home}/bin/" if home else ""
    with tempfile.TemporaryDirectory() as folder:
        classes = Path(folder, "classes")
        path = f"{jar_path()}:{_spark_jars()}/*"
        subprocess.run([f"{binaries}javac", "-cp", path, "-d", classes, _SOURCE], check=True)
        events = Path(folder, "events.jsonl")
        command = [f"{binaries}java", *_JVM, "-cp", f"{classes}:{path}", "io.sparkevents.ListenerBenchmark"]
        subprocess.run([*command, sys.executable, events], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    run()
