"""Compare the overhead of spark-events, Spark's event log and other projects' listeners, for the same jobs.

One program runs with each tool in a driver of its own: 20 SQL jobs that write Parquet and a stream of 10 micro-batches,
on ``local[2]``, after a warm-up. Rounds contain every tool once, in rotating order, so that other load on the
machine affects all of them. A figure is the median of the ratios to "no listener" of the same round; a machine with
other load needs more rounds.

- jobs, stream: wall time of the work. driver CPU: processor time of the JVM during the work, tasks included.
- memory: peak of the JVM plus the present size of its child processes, such as the sidecar of spark-events.
- run: wall time of spark-submit. stop: the part of this time after the call to ``spark.stop()``, in seconds.

Tools that send over HTTP also run with three destinations: one that answers, one that refuses connections, and one
that accepts them and never answers (black hole). The destination runs on the same machine. All tools have their
default settings apart from the destination. The tools do different things: OpenLineage derives the lineage of each
job, the event log writes every task, sparkMeasure sums up metrics, spark-events writes events.

``PEERS_ROUNDS`` (3): rounds. ``PEERS_JOBS`` (20): SQL jobs. ``PEERS_CASES``: pattern of the names of the cases to run
in addition to "no listener". ``PEERS_SECONDS`` (120): limit of a run, which some tools reach with a black hole. On
two idle processors, a run takes about half a minute, and a round about seven minutes. Results:
build/bench/peers-<version of Spark>.md and .json.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import math
import os
import re
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks._peers import SPARK_HOME, TOOLS, Tool, environment, spark_version, write

_ROUNDS = int(os.environ.get("PEERS_ROUNDS", "3"))
_JOBS = int(os.environ.get("PEERS_JOBS", "20"))
_CASES = os.environ.get("PEERS_CASES", "")
#: Time limit of a run. For a run that is stopped at the limit, this limit is the result, and other figures are missing
#: if the work was unfinished.
_SECONDS = int(os.environ.get("PEERS_SECONDS", "120"))
_PROGRAM = """
import json, os, sys, time
import psutil
from pyspark.sql import SparkSession
result, folder, count = sys.argv[1:]
spark = SparkSession.builder.appName("peers").getOrCreate()
spark.range(200).selectExpr("id", "id % 7 AS k").write.parquet(folder + "/input")
spark.range(200).repartition(20).write.parquet(folder + "/files")
def jobs(count, name):
    for number in range(count):
        rows = spark.read.parquet(folder + "/input").repartition(8)
        rows.groupBy("k").sum("id").write.mode("overwrite").parquet(folder + "/" + name)
def stream(name, limit):
    source = spark.readStream.schema("id long").option("maxFilesPerTrigger", limit).parquet(folder + "/files")
    query = source.selectExpr("id * 2 AS twice").writeStream.format("parquet").option("path", folder + "/" + name)
    query.option("checkpointLocation", folder + "/c-" + name).trigger(availableNow=True).start().awaitTermination()
driver = psutil.Process(os.getppid())
def used():
    return sum(driver.cpu_times()[:2])
jobs(5, "warm-up")
stream("warm-stream", 10)
before, start = used(), time.monotonic()
jobs(int(count), "output")
middle = time.monotonic()
stream("stream", 2)
end, after = time.monotonic(), used()
peak = next(int(line.split()[1]) for line in open(f"/proc/{driver.pid}/status") if line.startswith("VmHWM"))
others = sum(child.memory_info().rss for child in driver.children() if child.pid != os.getpid())
found = {"jobs": middle - start, "stream": end - middle, "cpu": after - before, "memory": peak / 1024 + others / 2**20}
json.dump({**found, "stopping": time.time()}, open(result, "w"))
spark.stop()
"""


class Measured(NamedTuple):
    """Figures of one run: times in seconds and memory in MB; NaN if the work did not end before the limit."""

    jobs: float
    stream: float
    cpu: float
    memory: float
    run: float
    stop: float


def _measure(conf: Mapping[str, str], folder: Path) -> Measured:
    (folder / "job.py").write_text(_PROGRAM, encoding="utf-8")
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **conf,
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    submit = str(SPARK_HOME / "bin" / "spark-submit")
    command = [submit, *options, str(folder / "job.py"), str(folder / "result"), str(folder), str(_JOBS)]
    own = {"SPARK_CONF_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    started = time.monotonic()
    # If a tool waits for its destination, the tool's requests may delay the driver.
    with (folder / "output").open("wb") as output, contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            command, env={**environment(), **own}, stdout=output, stderr=output, timeout=_SECONDS, check=True
        )
    run, ended = time.monotonic() - started, time.time()
    if not (folder / "result").exists():
        return Measured(math.nan, math.nan, math.nan, math.nan, run, math.nan)
    found: dict[str, float] = json.loads((folder / "result").read_text(encoding="utf-8"))
    stopping = found.pop("stopping")
    return Measured(**found, run=run, stop=ended - stopping)


class _Receiver(http.server.BaseHTTPRequestHandler):
    """Receiver that accepts every request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Suppress the access log."""


@contextlib.contextmanager
def _destinations() -> Iterator[dict[str, str]]:
    """Yield the URLs of the three destinations."""
    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Receiver) as healthy,
        socket.create_server(("127.0.0.1", 0), backlog=128) as silent,
        socket.socket() as closed,
    ):
        closed.bind(("127.0.0.1", 0))  # The socket is bound but does not listen, so connections are refused.
        thread = threading.Thread(target=healthy.serve_forever, daemon=True)
        thread.start()
        ports = {
            "healthy": healthy.server_port,
            "refusing": closed.getsockname()[1],
            "black hole": silent.getsockname()[1],
        }
        yield {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
        healthy.shutdown()


def _sending(url: str) -> dict[str, dict[str, str]]:
    """Return the settings by tool that replace the tool's file with an HTTP destination."""
    reporter = "spark.events.reporter.web"
    return {
        "OpenLineage": {"spark.openlineage.transport.type": "http", "spark.openlineage.transport.url": url},
        "spark-events": {"spark.events.reporters": "web", f"{reporter}.type": "webhook", f"{reporter}.url": url},
    }


def _rounds(cases: Sequence[tuple[str, Tool, dict[str, str]]]) -> dict[str, list[Measured]]:
    """Run all cases in each round, in rotating order."""
    found: dict[str, list[Measured]] = {name: [] for name, _, _ in cases}
    for number in range(_ROUNDS):
        turn = number % len(cases)
        for name, tool, extra in [*cases[turn:], *cases[:turn]]:
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch)
                found[name].append(_measure({**tool.conf(folder), **extra}, folder))
                figures = ", ".join(f"{key} {value:.1f}" for key, value in found[name][-1]._asdict().items())
                print(f"{name}: {figures}", flush=True)
    return found


def _table(found: Mapping[str, list[Measured]]) -> list[str]:
    """Return a table of medians.

    The row "no listener" contains figures. All other rows contain ratios to "no listener" in the same round.
    """
    lines = ["| | jobs | stream | driver CPU | memory | run | stop |", "|---|---|---|---|---|---|---|"]
    base = found["no listener"]
    for name, runs in found.items():
        if any(math.isnan(one.stop) for one in runs):
            lines.append(f"| {name} | " + "not ended | " * 4 + f"at least {_SECONDS} s | – |")
            continue
        stop = statistics.median(one.stop for one in runs)
        limit = "at least " if any(one.run >= _SECONDS for one in runs) else ""
        cells = []
        for index, unit in enumerate(("s", "s", "s", "MB", "s")):
            if name == "no listener":
                cells.append(f"{statistics.median(one[index] for one in runs):.{0 if unit == 'MB' else 1}f} {unit}")
            else:
                pairs = zip(runs, base, strict=True)
                cells.append(f"× {statistics.median(one[index] / other[index] for one, other in pairs):.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {limit}{stop:.1f} s |")
    return lines


def run() -> None:
    """Measure all cases and write the table."""
    load = os.getloadavg()[0]
    tools = {tool.name: tool for tool in TOOLS if tool.is_available}
    cases: list[tuple[str, Tool, dict[str, str]]] = [(tool.title, tool, {}) for tool in tools.values()]
    with _destinations() as urls:
        for destination, url in urls.items():
            for name, extra in _sending(url).items():
                if name in tools:
                    cases.append((f"{tools[name].title}, {destination}", tools[name], extra))
        found = _rounds([one for one in cases if one[0] == "no listener" or re.search(_CASES, one[0])])
    loads = f"load {load:.1f} at the start, {os.getloadavg()[0]:.1f} at the end"
    lines = [f"Medians of {_ROUNDS} rounds of {_JOBS} jobs; {loads}.", "", *_table(found)]
    data = {
        name: [{key: None if math.isnan(value) else value for key, value in one._asdict().items()} for one in runs]
        for name, runs in found.items()
    }
    write(f"peers-{spark_version()}", lines, data)
