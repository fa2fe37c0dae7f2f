"""What the listener costs a job of 20,000 tiny tasks: real Spark, with and without it, in pairs.

All rounds run in one driver, which has warmed up, and the listener is added for one round of each pair and removed
for the other: two drivers, the one compiled a little luckier than the other, differ by far more than what is looked
for. Rounds are short and many, and the order within pairs alternates, so that a machine that is busy for a while is so
for both sides. A round ends when Spark's listener bus is empty. What counts is the job, by the clock, and the driver's
processor time for all of the round, which says more where others keep the processors busy.

On a machine that is shared, one per cent does not show in that. So what the listener's own threads take of the
processor is told as well: the shim's, and the thread of Spark's shared listener queue, in which the listener is alone.
Now and then a third round has Spark's own listener that does nothing: its cost is that of any listener, for Spark wakes
that thread for each event.

``TINY_TASKS_PAIRS`` (50): how many rounds of 2,000 tasks each side has. On a shared machine some hundred are needed.
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

_PAIRS = int(os.environ.get("TINY_TASKS_PAIRS", "50"))
_TASKS = 2_000
_WARM_UP = 10
#: Odd, so that it comes at both ends of a pair.
_IDLE_EVERY = 5
_PROMISE = 1.01
_CONFIDENCE = 0.95
# The JVM's own tasks: those of Python would take so long that nothing else could be seen.
_PROGRAM = f"""
import contextlib, json, os, sys, time
import psutil
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("tiny tasks").getOrCreate()
context = spark.sparkContext._jsc.sc()
listeners = {{
    "ours": spark._jvm.io.sparkevents.EventsListener(context.conf()),
    "idle": spark._jvm.org.apache.spark.SparkFirehoseListener(),
}}
driver = psutil.Process(os.getppid())
def is_sidecar(process):
    # A JVM may have other children for a moment, gone when they are asked.
    with contextlib.suppress(psutil.Error):
        return "spark_events.sidecar" in " ".join(process.cmdline())
(sidecar,) = filter(is_sidecar, driver.children())
def used(process):
    return sum(process.cpu_times()[:2])
def threads():
    # The processor time of those that may be the listener's, by number, in seconds; names have 15 letters here.
    found = {{}}
    for one in os.scandir(f"/proc/{{driver.pid}}/task"):
        # It may have ended meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if open(one.path + "/comm").read().startswith(("spark-listener", "spark-events")):
                found[one.name] = int(open(one.path + "/schedstat").read().split()[0]) / 1e9
    return found
known = {{one for one in threads()}}
ours = {{one for one in known if open(f"/proc/{{driver.pid}}/task/{{one}}/comm").read().startswith("spark-events")}}
def own():
    # Spark starts a thread for its listeners' queue when the first is added, and ends it with the last.
    return sum(used for one, used in threads().items() if one in ours or one not in known)
def add(kind):
    context.addSparkListener(listeners[kind])
def job():
    spark.range(0, {_TASKS}, 1, {_TASKS}).write.format("noop").mode("overwrite").save()
for _ in range({_WARM_UP}):
    job()
for pair in range(int(sys.argv[1])):
    idle = ["idle"] if pair % {_IDLE_EVERY} == 0 else []
    for kind in ["none", "ours", *idle] if pair % 2 == 0 else [*idle, "ours", "none"]:
        before_own = own()
        if kind in listeners:
            add(kind)
        before_beside, before = used(sidecar), used(driver)
        start = time.monotonic()
        job()
        clock = time.monotonic() - start
        context.listenerBus().waitUntilEmpty()
        took = [clock, used(driver) - before, own() - before_own, used(sidecar) - before_beside]
        with open(sys.argv[2], "a") as told:
            told.write(json.dumps([kind, *took, os.getloadavg()[0]]) + "\\n")
        if kind in listeners:
            context.removeSparkListener(listeners[kind])
spark.stop()
"""


class Round(NamedTuple):
    """What one round took, in seconds: by the clock, and of processor time."""

    kind: str
    clock: float
    driver: float
    own: float
    sidecar: float
    load: float


def _rounds(folder: Path) -> list[Round]:
    program = folder / "tiny_tasks_job.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
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
    # A file, for what else is printed is Spark's.
    told = folder / "rounds"
    command = [str(home / "bin" / "spark-submit"), *options, str(program), str(_PAIRS), str(told)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
    return [Round(*json.loads(line)) for line in told.read_text(encoding="utf-8").splitlines()]


def run() -> None:
    """Prints the times of both sides, their ratio, and what can be concluded from it; 1.01 is promised."""
    print(f"load before: {os.getloadavg()[0]:.2f}, on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        rounds = _rounds(Path(folder))
        with Path(folder, "events.jsonl").open("rb") as lines:
            jobs = sum(b'"spark.job.id"' in line for line in lines)
    # A start and an end of each: the listener was there when it should be, and only then.
    assert jobs == 2 * _PAIRS, jobs
    none, ours, idle = ([one for one in rounds if one.kind == kind] for kind in ("none", "ours", "idle"))
    print(f"{_PAIRS} pairs of rounds of {_TASKS:,} tasks, load {rounds[0].load:.1f} to {rounds[-1].load:.1f}")
    _conclude("by the clock", [one.clock for one in none], [one.clock for one in ours])
    _conclude("the driver's processor time", [one.driver for one in none], [one.driver for one in ours])
    for what, some in {"ours": ours, "one that does nothing": idle}.items():
        driver, own, sidecar = (sum(times) for times in zip(*[one[2:5] for one in some], strict=True))
        each = own / _TASKS / len(some) * 1e6
        print(
            f"{what}: its own threads took {own / driver:.2%} of the driver's processor time, {each:.1f} µs a task"
            f" (sidecar: {sidecar:.2f} of {driver:.1f} s)"
        )


def _conclude(what: str, without: Sequence[float], with_it: Sequence[float]) -> None:
    medians = statistics.median(without), statistics.median(with_it)
    logarithms = sorted(math.log(b / a) for a, b in zip(without, with_it, strict=True))
    print(
        f"{what}: median {medians[0]:.2f} s without, {medians[1]:.2f} s with the listener;"
        f" ratio of medians {medians[1] / medians[0]:.3f}"
    )
    for name, values, outside in (
        ("median of the pairs' ratios, whatever their distribution", logarithms, _of_signs(len(logarithms))),
        ("centre of the pairs' ratios, by ranks", _averages(logarithms), _of_ranks(len(logarithms))),
    ):
        centre, low, high = map(math.exp, (statistics.median(values), values[outside], values[-1 - outside]))
        verdict = "holds" if high <= _PROMISE else "is broken" if low > _PROMISE else "is neither shown nor refuted"
        print(f"  {name}: {centre:.4f}, {_CONFIDENCE:.0%} sure {low:.4f} to {high:.4f}: {_PROMISE} {verdict}")


def _of_signs(count: int) -> int:
    """How many of so many ordered values lie outside of those that hold the true median: the sign test's interval.

    Each of the values lies above the true median or below it as a coin falls. With fewer than six it is the outermost.
    """
    outside = tail = 0
    while 2 * (tail + math.comb(count, outside + 1)) <= (1 - _CONFIDENCE) * 2**count - 2:
        outside += 1
        tail += math.comb(count, outside)
    return outside


def _of_ranks(count: int) -> int:
    """The same for the averages of every two of so many values: Wilcoxon's signed ranks.

    It needs a distribution that is symmetric, and gets one: the sides of a pair differ in nothing but what is looked
    for, so but for that the logarithm of their ratio is as likely as its negative. From some dozens on, the sum of
    ranks is as good as normal.
    """
    mean = count * (count + 1) / 4
    deviation = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    return max(0, int(mean - statistics.NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * deviation))


def _averages(values: Sequence[float]) -> list[float]:
    """Of every two values, and of each with itself: their median is the estimate of Hodges and Lehmann."""
    return sorted((one + other) / 2 for place, one in enumerate(values) for other in values[place:])


if __name__ == "__main__":
    run()
