"""What the listener costs a job of 20,000 tiny tasks: real Spark, with and without it, in pairs.

The runs of a pair follow each other and the order within pairs alternates, so that a machine that is busy
for a while is so for both sides. What counts is the job alone, after a smaller one has warmed the JVM up: by the
clock, and by the driver's processor time, which says more where others keep the processors busy. The sidecar's own
processor time is told beside it.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from spark_events.jars import jar_path

_PAIRS = int(os.environ.get("TINY_TASKS_PAIRS", "9"))
_TASKS = 20_000
_PROMISE = 1.01
_CONFIDENCE = 0.95
# The JVM's own tasks: those of Python would take so long that nothing else could be seen.
_JOB = f"""
import json, os, sys, time
import psutil
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("tiny tasks").getOrCreate()
spark.range(0, 2000, 1, 2000).count()
driver = psutil.Process(os.getppid())
beside = [child for child in driver.children() if child.pid != os.getpid()]
def used(*processes):
    return sum(sum(one.cpu_times()[:2]) for one in processes)
start, before, before_beside = time.monotonic(), used(driver), used(*beside)
for _ in range(4):
    spark.range(0, {_TASKS // 4}, 1, {_TASKS // 4}).write.format("noop").mode("overwrite").save()
print(json.dumps([time.monotonic() - start, used(driver) - before, used(*beside) - before_beside]))
spark.stop()
"""


class Cost(NamedTuple):
    """What one run took, in seconds: by the clock, and of processor time in the driver and in the sidecar."""

    clock: float
    driver: float
    sidecar: float


def _run(folder: Path, with_listener: bool) -> Cost:
    job = folder / "tiny_tasks_job.py"
    job.write_text(_JOB, encoding="utf-8")
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    if with_listener:
        settings |= {
            "spark.extraListeners": "io.sparkevents.EventsListener",
            "spark.driver.extraClassPath": str(jar_path()),
            "spark.events.required": "true",
            "spark.events.dispatcher.type": "async-queued",
            "spark.events.reporter.audit.type": "file",
            "spark.events.reporter.audit.path": str(folder / "events.jsonl"),
        }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    command = [str(home / "bin" / "spark-submit"), *options, str(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def run() -> None:
    """Prints the times of both sides, their ratio, and what can be concluded from it; 1.01 is promised."""
    without: list[Cost] = []
    with_it: list[Cost] = []
    print(f"load before: {os.getloadavg()[0]:.2f}, on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        for pair in range(_PAIRS):
            for listening in (False, True) if pair % 2 == 0 else (True, False):
                (with_it if listening else without).append(_run(Path(folder), listening))
            print(
                f"pair {pair + 1}: without {without[-1].clock:.2f} s (driver's processor {without[-1].driver:.2f} s),"
                f" with {with_it[-1].clock:.2f} s ({with_it[-1].driver:.2f} s, sidecar {with_it[-1].sidecar:.2f} s),"
                f" load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    _conclude("by the clock", [cost.clock for cost in without], [cost.clock for cost in with_it])
    _conclude("the driver's processor time", [cost.driver for cost in without], [cost.driver for cost in with_it])


def _conclude(what: str, without: Sequence[float], with_it: Sequence[float]) -> None:
    medians = statistics.median(without), statistics.median(with_it)
    ratios = sorted(b / a for a, b in zip(without, with_it, strict=True))
    low, high, confidence = _interval(ratios)
    verdict = "holds" if high <= _PROMISE else "is broken" if low > _PROMISE else "is neither shown nor refuted"
    print(
        f"{_TASKS} tasks, {what}: median {medians[0]:.2f} s without, {medians[1]:.2f} s with the listener;"
        f" ratio of medians {medians[1] / medians[0]:.3f}, median of the pairs' ratios {statistics.median(ratios):.3f}"
    )
    print(
        f"the true median lies in {low:.3f} to {high:.3f} ({confidence:.0%} sure): the promise of {_PROMISE} {verdict}"
    )


def _interval(ordered: Sequence[float]) -> tuple[float, float, float]:
    """The narrowest pair of values that hold the true median with 95 % confidence, whatever the distribution.

    Each of the values lies above the true median or below it as a coin falls. With fewer than six there is no
    such pair: then it is the outermost, and the confidence is less.
    """
    count = len(ordered)
    outside, confidence = 0, 1 - 2 / 2**count
    while True:
        tail = sum(math.comb(count, below) for below in range(outside + 2)) / 2**count
        if 2 * tail > 1 - _CONFIDENCE:
            return ordered[outside], ordered[count - 1 - outside], confidence
        outside, confidence = outside + 1, 1 - 2 * tail


if __name__ == "__main__":
    run()
