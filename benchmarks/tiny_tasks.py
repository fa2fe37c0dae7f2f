"""Measure the listener's overhead for jobs of 2,000 tiny tasks: real Spark with and without the listener, in pairs.

All rounds run in one warmed-up driver; the listener is added for one round of each pair and removed for the other. Two
separate drivers would differ by more than the overhead, because the JIT compiles them differently. Rounds are short
and their order alternates within pairs, so that other load affects both sides. A round ends when Spark's listener bus
is empty. The results are the job's wall-clock time, and the driver's processor time over the whole round, which
depends less on other load.

A shared machine is too noisy to show one per cent in these figures. Therefore the output also has the processor time
of the listener's own threads: the shim's, and the thread of Spark's shared listener queue, which contains no other
listener. Some pairs have a third round with a Spark listener that does nothing: it shows the cost of any listener,
because Spark wakes that thread for each event.

``TINY_TASKS_PAIRS`` (50): rounds of 2,000 tasks per side. A shared machine needs about a hundred.
``TINY_TASKS_DEADLINES`` (empty): any value turns all deadline rules on.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks._submit import submit
from spark_events.jars import jar_path

_PAIRS = int(os.environ.get("TINY_TASKS_PAIRS", "50"))
_RULES = ("batch", "progress", "resources", "job", "application", "lag-time")
_DEADLINES = (
    {**{f"spark.events.deadline.{rule}": "1h" for rule in _RULES}, "spark.events.deadline.lag": "1000000"}
    if os.environ.get("TINY_TASKS_DEADLINES")
    else {}
)
_TASKS = 2_000
_WARM_UP = 10
#: An odd number, so that the idle round runs both before and after a pair.
_IDLE_EVERY = 5
_PROMISE = 1.01
_CONFIDENCE = 0.95
# Tasks run in the JVM. Python tasks would take so long that they hide the overhead.
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
    # The JVM may have short-lived children that end before cmdline() is read.
    with contextlib.suppress(psutil.Error):
        return "spark_events.sidecar.main" in " ".join(process.cmdline())
(sidecar,) = filter(is_sidecar, driver.children())
def used(process):
    return sum(process.cpu_times()[:2])
def threads():
    # Processor seconds by thread id, of threads that may be the listener's; comm holds 15 characters.
    found = {{}}
    for one in os.scandir(f"/proc/{{driver.pid}}/task"):
        # The thread may have ended.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if open(one.path + "/comm").read().startswith(("spark-listener", "spark-events")):
                found[one.name] = int(open(one.path + "/schedstat").read().split()[0]) / 1e9
    return found
known = {{one for one in threads()}}
ours = {{one for one in known if open(f"/proc/{{driver.pid}}/task/{{one}}/comm").read().startswith("spark-events")}}
def own():
    # Spark starts the queue's thread with the first listener and ends it with the last.
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
        with open(sys.argv[2], "a") as results:
            results.write(json.dumps([kind, *took, os.getloadavg()[0]]) + "\\n")
        if kind in listeners:
            context.removeSparkListener(listeners[kind])
spark.stop()
"""


class Round(NamedTuple):
    """Result of one round: wall-clock and processor times in seconds, and the load average."""

    kind: str
    clock: float
    driver: float
    own: float
    sidecar: float
    load: float


def _rounds(folder: Path) -> list[Round]:
    # Results are written to a file, because Spark prints to standard output.
    results = folder / "rounds"
    submit(folder, _PROGRAM, jar_path(), [str(_PAIRS), str(results)], _DEADLINES)
    return [Round(*json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines()]


def run() -> None:
    """Print the times of both sides, their ratio and the verdict. The target is a ratio of 1.01."""
    print(f"load before: {os.getloadavg()[0]:.2f}, on {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory() as folder:
        rounds = _rounds(Path(folder))
        with Path(folder, "events.jsonl").open("rb") as lines:
            jobs = sum(b'"spark.job.id"' in line for line in lines)
    # A round with the listener causes one start event and one end event. A round without the listener causes none.
    assert jobs == 2 * _PAIRS, jobs
    none, ours, idle = ([one for one in rounds if one.kind == kind] for kind in ("none", "ours", "idle"))
    print(f"{_PAIRS} pairs of rounds of {_TASKS:,} tasks, load {rounds[0].load:.1f} to {rounds[-1].load:.1f}")
    _conclude("wall-clock time", [one.clock for one in none], [one.clock for one in ours])
    _conclude("the driver's processor time", [one.driver for one in none], [one.driver for one in ours])
    for what, some in {"spark-events": ours, "a listener that does nothing": idle}.items():
        driver, own, sidecar = (sum(times) for times in zip(*[one[2:5] for one in some], strict=True))
        each = own / _TASKS / len(some) * 1e6
        print(
            f"{what}: its own threads took {own / driver:.2%} of the driver's processor time, {each:.1f} µs per task"
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
        ("median ratio of the pairs, any distribution", logarithms, _of_signs(len(logarithms))),
        ("centre of the ratios of the pairs, by ranks", _averages(logarithms), _of_ranks(len(logarithms))),
    ):
        centre, low, high = map(math.exp, (statistics.median(values), values[outside], values[-1 - outside]))
        verdict = "holds" if high <= _PROMISE else "is missed" if low > _PROMISE else "is undecided"
        print(
            f"  {name}: {centre:.4f}, {_CONFIDENCE:.0%} interval {low:.4f} to {high:.4f}: target {_PROMISE} {verdict}"
        )


def _of_signs(count: int) -> int:
    """Return the number of ordered values to remove at each end for the median's confidence interval (sign test).

    Each value exceeds the true median with probability 1/2. Fewer than six values yield the full range.
    """
    outside = tail = 0
    while 2 * (tail + math.comb(count, outside + 1)) <= (1 - _CONFIDENCE) * 2**count - 2:
        outside += 1
        tail += math.comb(count, outside)
    return outside


def _of_ranks(count: int) -> int:
    """Return the number of ordered Walsh averages to remove at each end (Wilcoxon's signed-rank test).

    The test needs a symmetric distribution. Both sides of a pair differ only in the listener. If the listener has no
    effect, the logarithm of the ratio and its negative are equally likely. The normal approximation is valid for at
    least some dozens of values.
    """
    mean = count * (count + 1) / 4
    deviation = math.sqrt(count * (count + 1) * (2 * count + 1) / 24)
    return max(0, int(mean - statistics.NormalDist().inv_cdf((1 + _CONFIDENCE) / 2) * deviation))


def _averages(values: Sequence[float]) -> list[float]:
    """Return the sorted Walsh averages, whose median is the Hodges-Lehmann estimate."""
    return sorted((one + other) / 2 for place, one in enumerate(values) for other in values[place:])


if __name__ == "__main__":
    run()
