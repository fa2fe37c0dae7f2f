"""Measure the cost of listener and sidecar for consecutive micro-batches: real Spark, in pairs of rounds.

All rounds run in one warmed-up driver. In alternating order, the listener is added for one round of each pair and
removed for the other. A round is a streaming query that commits batches one after the other. On a shared machine,
wall-clock time depends on other load, so the benchmark also prints processor time: of the driver, of the driver's
threads for events, and of the sidecar, which shares the processors with Spark.

``MICRO_BATCHES_PAIRS`` (5): rounds per side. ``MICRO_BATCHES`` (300): batches per round.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from pathlib import Path

from benchmarks._submit import submit
from spark_events.jars import jar_path

_PAIRS = int(os.environ.get("MICRO_BATCHES_PAIRS", "5"))
_BATCHES = int(os.environ.get("MICRO_BATCHES", "300"))
_GOAL = 1.02
_PROGRAM = """
import contextlib, json, os, sys, time
import psutil
from pyspark.sql import SparkSession
pairs, batches, rounds_file, checkpoints = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
spark = SparkSession.builder.appName("micro-batches").getOrCreate()
context = spark.sparkContext._jsc.sc()
listener = spark._jvm.io.sparkevents.EventsListener(context.conf())
driver = psutil.Process(os.getppid())
def is_sidecar(process):
    # A JVM may have other children for a moment, gone when they are asked.
    with contextlib.suppress(psutil.Error):
        return "spark_events.sidecar.main" in " ".join(process.cmdline())
(sidecar,) = filter(is_sidecar, driver.children())
def used(process):
    return sum(process.cpu_times()[:2])
def threads():
    # The processor time of threads that may be the listener's, by number, in seconds; names have 15 letters here.
    found = {}
    for one in os.scandir(f"/proc/{driver.pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            name = open(one.path + "/comm").read()
            if name.startswith(("spark-listener", "spark-events")):
                seconds = int(open(one.path + "/schedstat").read().split()[0]) / 1e9
                found[one.name] = name.startswith("spark-events"), seconds
    return found
def own():
    # Spark starts a thread for the shared listener queue when the first listener is added, and ends it with the last.
    return sum(seconds for number, (_, seconds) in threads().items() if number not in sparks_own)
def stream(number, count):
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
    writer = source.writeStream.format("noop").queryName(f"round {number}")
    query = writer.option("checkpointLocation", f"{checkpoints}/{number}").start()
    while (query.lastProgress or {"batchId": -1})["batchId"] < count - 1:
        time.sleep(0.02)
    query.stop()
    return query.lastProgress["batchId"] + 1
stream("warm-up", 100)
# Only now: Spark starts a listener queue of its own with the first query.
sparks_own = {number for number, (is_ours, _) in threads().items() if not is_ours}
for pair in range(pairs):
    for kind in ["none", "ours"] if pair % 2 == 0 else ["ours", "none"]:
        if kind == "ours":
            context.addSparkListener(listener)
        before = [time.monotonic(), used(driver), own(), used(sidecar)]
        count = stream(f"{pair} {kind}", batches)
        context.listenerBus().waitUntilEmpty()
        after = [time.monotonic(), used(driver), own(), used(sidecar)]
        with open(rounds_file, "a") as lines:
            lines.write(json.dumps([kind, [(b - a) / count for a, b in zip(before, after)]]) + "\\n")
        if kind == "ours":
            context.removeSparkListener(listener)
spark.stop()
"""


def _rounds(folder: Path, jar: Path) -> list[tuple[str, list[float]]]:
    # Results are written to a file, because Spark prints to standard output.
    results = folder / "rounds"
    arguments = [str(_PAIRS), str(_BATCHES), str(results), str(folder / "checkpoints")]
    submit(folder, _PROGRAM, jar, arguments, {"spark.sql.streaming.numRecentProgressUpdates": "2"})
    return [(kind, numbers) for kind, numbers in map(json.loads, results.read_text(encoding="utf-8").splitlines())]


def run(jar: Path | None = None) -> None:
    """Print the cost of a batch with and without the listener, and the share of the listener's threads and the sidecar.

    Args:
        jar: another jar of the shim, for comparison.
    """
    print(f"load before: {os.getloadavg()[0]:.2f}, on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        rounds = _rounds(Path(folder), jar or jar_path())
        commits = Path(folder, "events.jsonl").read_bytes().count(b'"BatchCommitEvent"')
    assert commits >= _PAIRS * _BATCHES, commits
    none, ours = ([numbers for side, numbers in rounds if side == kind] for kind in ("none", "ours"))
    for place, what in enumerate(("by the clock", "processor time of the driver")):
        without, with_it = ([one[place] * 1e3 for one in some] for some in (none, ours))
        ratios = sorted(b / a for a, b in zip(without, with_it, strict=True))
        print(
            f"a batch, {what}: median {statistics.median(without):.2f} ms without, {statistics.median(with_it):.2f} ms"
            f" with the listener; median of the pairs' ratios {statistics.median(ratios):.3f} (goal {_GOAL})"
        )
    driver, own, sidecar = (statistics.median(one[place] for one in ours) * 1e3 for place in (1, 2, 3))
    print(
        f"a batch: {own:.2f} ms of the driver's {driver:.2f} ms are the listener's threads, and {sidecar:.2f} ms the"
        f" sidecar's: together {(own + sidecar) / (driver - own):.1%} of what Spark takes"
    )


if __name__ == "__main__":
    run()
