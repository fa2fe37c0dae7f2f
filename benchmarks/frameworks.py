"""Compare frameworks that call a service for each row: ``enrich`` on Spark, Daft, Ray Data, Flink's ``orderedWait``.

All frameworks run on this machine with one task or actor, call the same HTTP service in its own process and keep the
order of the rows. Each framework runs in one process, which starts before the first run and waits for its turn. The
service computes the goodput: answered calls from its first call to its last answer. The service also counts rows
without an answer. A run ends at the time limit. Frameworks run alternately; a result is the median of the ratios to
``enrich`` in the same round. `make frameworks` fetches the frameworks; the benchmark omits those that are missing.

Environment: ``FRAMEWORKS_ROUNDS`` (3), ``FRAMEWORKS_ROWS`` (1000), ``FRAMEWORKS_SECONDS`` (20): limit of a run.
Results: build/bench/frameworks.md and .json. The frameworks' output is in frameworks.log. A run of all cases takes
six to eight minutes on two idle processors.
"""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

from benchmarks._peers import FOLDER, write
from benchmarks.adaptive import Service, service

__all__ = ["run"]

_ROUNDS = int(os.environ.get("FRAMEWORKS_ROUNDS", "3"))
_ROWS = int(os.environ.get("FRAMEWORKS_ROWS", "1000"))
_SECONDS = float(os.environ.get("FRAMEWORKS_SECONDS", "20"))
_START_SECONDS = 180
_ROOT = Path(__file__).parents[1]
_PYTHON = _ROOT / ".tools/frameworks/bin/python"
_FLINK = _ROOT / ".tools/flink/jars"
_CAPACITY = 20
_HEAVY_TAIL: dict[str, Any] = {"tail": [0.01, 30]}
#: Calls in flight (0: the default of each framework) and behavior of the service, by the name of the case.
_CASES: dict[int, dict[str, dict[str, Any]]] = {
    _CAPACITY: {"even latency": {}, "heavy tail": _HEAVY_TAIL},
    0: {
        "heavy tail": _HEAVY_TAIL,
        f"slower beyond {_CAPACITY} calls": {"capacity": _CAPACITY},
        f"503 beyond {_CAPACITY} calls": {"capacity": _CAPACITY, "rejects": True},
    },
}


class Result(NamedTuple):
    """Answered rows per second, rows without an answer, most calls in flight, and whether the limit ended the run."""

    goodput: float
    lost: int
    in_flight: int
    is_cut: bool


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


class _Framework:
    """Process of a framework, which runs once for each line of its standard input and prints ``done``."""

    def __init__(self, command: Sequence[str], url: str, in_flight: int, log: IO[bytes]) -> None:
        self._command = [*command, url, str(_ROWS), str(in_flight)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, destination: Service, behavior: dict[str, Any]) -> Result:
        """Run once, and return the service's figures. If the run reaches the limit, kill the process."""
        if self._process is None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0
            )
            self._run(self._process, destination, {})  # warm-up
        is_cut = not self._run(self._process, destination, behavior)
        log = destination.log()
        if is_cut:
            self.end()
        return Result(log["answered"] / max(log["seconds"], 1e-9), _ROWS - log["rows"], log["most"], is_cut)

    def _run(self, process: subprocess.Popen[bytes], destination: Service, behavior: dict[str, Any]) -> bool:
        """Return whether the run ended before the limit, which is measured from the first call of the run."""
        assert process.stdin is not None
        assert process.stdout is not None
        destination.behave(behavior)
        started = time.monotonic()
        process.stdin.write(b"\n")
        while True:
            if select.select([process.stdout], [], [], 0.5)[0]:
                line = process.stdout.readline()
                if not line:
                    raise RuntimeError(f"{self._command} ended with code {process.wait()}; see {self._log.name}")
                if line.strip() == b"done":  # Frameworks may print additional lines.
                    return True
            elapsed = destination.log()["elapsed"]
            if elapsed > _SECONDS:
                return False
            if not elapsed and time.monotonic() - started > _START_SECONDS:
                raise RuntimeError(f"{self._command} did not start in {_START_SECONDS} s; see {self._log.name}")

    def end(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _table(found: Mapping[str, Mapping[str, Sequence[Result]]]) -> list[str]:
    """Return a table of medians: goodput, ratio to ``enrich`` in the same round, rows without an answer."""
    lines = ["| case | framework | rows/s | ratio to enrich | without an answer | most in flight |"]
    lines.append("|---|---|---|---|---|---|")
    for case, by_name in found.items():
        for name, runs in by_name.items():
            ratios = [one.goodput / ours.goodput for one, ours in zip(runs, by_name["enrich"], strict=True)]
            span = f" ({min(ratios):.2f} to {max(ratios):.2f})" if name != "enrich" else ""
            cut = f", not ended after {_SECONDS:.0f} s" if any(one.is_cut for one in runs) else ""
            lines.append(
                f"| {case} | {name} | {statistics.median(one.goodput for one in runs):.0f} |"
                f" {statistics.median(ratios):.2f}{span} |"
                f" {statistics.median(one.lost for one in runs):,.0f} of {_ROWS:,}{cut} |"
                f" {max(one.in_flight for one in runs):,} |"
            )
    return lines


def run() -> None:
    """Write a table with the goodput of each framework and setting, as a ratio to the goodput of ``enrich``."""
    found: dict[str, dict[str, list[Result]]] = {}
    load = os.getloadavg()[0]
    log = FOLDER / "frameworks.log"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, service() as destination, log.open("wb") as output:
        commands = dict(_commands(Path(folder)))
        for in_flight, cases in _CASES.items():
            with ExitStack() as stack:
                frameworks = {
                    name: _Framework(command, destination.url, in_flight, output) for name, command in commands.items()
                }
                for framework in frameworks.values():
                    stack.callback(framework.end)
                for case, behavior in cases.items():
                    title = f"{case}, {f'{in_flight} in flight' if in_flight else 'defaults'}"
                    of_case = found[title] = {name: [] for name in frameworks}
                    for number in range(_ROUNDS):
                        for name in list(frameworks) if number % 2 == 0 else reversed(frameworks):
                            of_case[name].append(frameworks[name].run(destination, behavior))
                            print(f"{title}: {name} {of_case[name][-1]}", flush=True)
    head = f"Medians of {_ROUNDS} rounds; load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end."
    write(
        "frameworks",
        [head, "", *_table(found)],
        {
            case: {name: [one._asdict() for one in runs] for name, runs in by_name.items()}
            for case, by_name in found.items()
        },
    )


def _enrich(url: str, rows: int, in_flight: int) -> None:
    """Call the service with ``enrich`` on Spark, once for each line of standard input."""
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

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    limits = Limits(max_in_flight=in_flight) if in_flight else Limits()
    for _ in sys.stdin:
        one_task = spark.range(rows).coalesce(1)
        frame = enrich(one_task, lookup, output="answer long", resource=opened, limits=limits, on_failure="null")
        assert len(frame.collect()) == rows
        print("done", flush=True)


if __name__ == "__main__":
    _enrich(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
