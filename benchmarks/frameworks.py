"""Calls of a service for each row, with ``enrich`` on Spark beside Daft, Ray Data and Flink's ``orderedWait``.

All frameworks run on this machine with one task or actor, call the same HTTP service in its own process and keep the
order of the rows. Each case runs with the number of calls in flight that suits the service, and with each framework's
default. Goodput is the service's: answered calls from its first call to its last answer, so the start of a framework
does not count. Frameworks run alternately; the result is the median. `make frameworks` fetches them; the benchmark
leaves out those that are not fetched.

Environment: ``FRAMEWORKS_ROUNDS`` (3), ``FRAMEWORKS_ROWS`` (3000).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.adaptive import service

__all__ = ["run"]

_ROUNDS = int(os.environ.get("FRAMEWORKS_ROUNDS", "3"))
_ROWS = int(os.environ.get("FRAMEWORKS_ROWS", "3000"))
_ROOT = Path(__file__).parents[1]
_PYTHON = _ROOT / ".tools/frameworks/bin/python"
_FLINK = _ROOT / ".tools/flink/jars"
_CAPACITY = 20
#: Name of a case, and the behavior of the service.
_CASES: dict[str, dict[str, Any]] = {
    "heavy tail": {"capacity": _CAPACITY, "tail": [0.01, 30]},
    "slower beyond 20 calls": {"capacity": _CAPACITY},
    "503 beyond 20 calls": {"capacity": _CAPACITY, "rejects": True},
}


def _commands(classes: Path) -> Iterator[tuple[str, list[str]]]:
    yield "enrich", [sys.executable, "-m", "benchmarks.frameworks"]
    if _PYTHON.exists():
        program = str(Path(__file__).with_name("_frameworks.py"))
        yield "Daft", [str(_PYTHON), program, "daft"]
        yield "Ray Data", [str(_PYTHON), program, "ray"]
    if _FLINK.exists():
        home = os.environ.get("JAVA_HOME")
        binaries = f"{home}/bin/" if home else ""
        source = Path(__file__).parent / "flink/Calls.java"
        subprocess.run([f"{binaries}javac", "-cp", f"{_FLINK}/*", "-d", classes, source], check=True)
        opened = "--add-opens=java.base/java.util=ALL-UNNAMED"
        yield "Flink", [f"{binaries}java", opened, "-cp", f"{classes}:{_FLINK}/*", "Calls"]


def run() -> None:
    """Print the goodput of each framework and setting as a ratio to that of ``enrich``, with lost rows."""
    with tempfile.TemporaryDirectory() as folder, service() as destination:
        commands = dict(_commands(Path(folder)))
        for case, behavior in _CASES.items():
            for setting, most in ((f"{_CAPACITY} in flight", _CAPACITY), ("defaults", 0)):
                found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in commands}
                for number in range(_ROUNDS):
                    for name in list(commands) if number % 2 == 0 else reversed(commands):
                        command = [*commands[name], destination.url, str(_ROWS), str(most)]
                        found[name].append(destination.measure(behavior, [command], 180))
                ours = statistics.median(goodput for goodput, _, _ in found["enrich"])
                for name, runs in found.items():
                    goodput = statistics.median(one[0] for one in runs)
                    lost = max(one[2] for one in runs)
                    print(
                        f"{case}, {setting}: {name} {goodput:.0f} rows/s, {goodput / ours:.2f} times enrich, "
                        f"{lost:,} of {_ROWS:,} rows without an answer",
                        flush=True,
                    )


def _enrich(url: str, rows: int, in_flight: int) -> None:
    """Call the service with ``enrich`` on Spark; print the number of rows without an answer."""
    import aiohttp
    from pyspark.sql import SparkSession

    from spark_events import Limits, enrich

    def opened() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(limit=0))

    async def lookup(row: Any, ctx: Any) -> Any:
        async with ctx.resource.get(f"/{row.id}") as response:
            response.raise_for_status()
            await response.read()
            return {"answer": row.id}

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    limits = Limits(max_in_flight=in_flight) if in_flight else Limits()
    rows_of_one_task = spark.range(rows).coalesce(1)
    frame = enrich(rows_of_one_task, lookup, output="answer long", resource=opened, limits=limits, on_failure="null")
    answers = frame.collect()
    assert len(answers) == rows
    print(sum(answer["answer"] != row for row, answer in enumerate(answers)))


if __name__ == "__main__":
    _enrich(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
