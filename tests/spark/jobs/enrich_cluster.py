"""Enrichments by a service on the loopback interface, one case after another in one application.

Arguments: the folder, the service's port, and optionally `standalone`: a cluster without an executor limit.

The job runs a case when the test creates the file `run-<case>`, and ends when the test creates `stop`. Each case starts
with two running executors, has its own folder `<case>`, and ends with the file `<case>.json`.
"""

import importlib.util
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from control import FOLDER, announce, received, write_down
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, Row, SparkSession, functions

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from spark.enriching import ONCE, by_value, enrich_at_ten_a_second, logged_opener, lookup, opener, stream

from spark_events import Auto, Budget, Limits, enrich_batch

logging.basicConfig()
folder = Path(FOLDER)
port = int(sys.argv[2])
by_value(__name__)
builder = SparkSession.builder.appName("enrich-cluster")
cluster = None
if "standalone" in sys.argv[3:]:
    # Start the Master and Worker of local-cluster, but pass only the Master's address to the application.
    SparkContext._ensure_initialized()
    assert SparkContext._jvm is not None
    cluster = SparkContext._jvm.org.apache.spark.deploy.LocalSparkCluster.apply(2, 1, 1024, SparkConf()._jconf)
    builder = builder.master(cluster.start()[0])
spark = builder.getOrCreate()
scala = spark.sparkContext._jsc.sc()
profile = scala.resourceProfileManager().defaultResourceProfile()


def wait_for_slots(number: int) -> None:
    while scala.maxNumConcurrentTasks(profile) != number:
        time.sleep(0.02)


def executors() -> set[str]:
    return set(scala.getExecutorIds().mkString(" ").split())


def what_is_there(_: Iterable[int]) -> Iterator[tuple[list[str], str]]:
    names = ("spark_events", "msgspec", "tenacity", "pyarrow")
    yield [name for name in names if importlib.util.find_spec(name)], os.path.realpath(sys.prefix)


def enriched_stream(case: str, waits: bool = False, **leased: Any) -> dict[str, Any]:
    """Run a stream of three batches with a hundred rows each.

    Args:
        case: name of the folder.
        waits: after the second batch has settled, wait for the file `go`, and in the end for the loss of all executors.
        leased: limits that the driver leases to the tasks.
    """
    own = folder / case
    (own / "source").mkdir(parents=True)
    for batch in range(3):
        file = own / "source" / f"{batch}.json"
        file.write_text("".join(f'{{"id": {100 * batch + row}}}\n' for row in range(100)), encoding="utf-8")
        os.utime(file, (1_700_000_000 + batch,) * 2)

    def process(df: DataFrame, batch_id: int) -> None:
        made = enrich_batch(
            df.repartition(4, "id"),
            lookup,
            output="name string, score double",
            resource=logged_opener(port, str(own / "opened")),
            limits=Limits(max_in_flight=5, timeout=None, total_timeout=None, **leased),
        )
        (own / f"settled-{batch_id}").touch()
        while waits and batch_id == 1 and not received("go"):
            time.sleep(0.02)
        made.write.mode("overwrite").json(str(own / "sink" / str(batch_id)))

    before = executors()
    query = stream(spark, own / "source", own / "checkpoint", process)
    error = None
    try:
        query.awaitTermination()
    except Exception as failure:
        error = str(failure)
    while waits and before & executors():
        time.sleep(0.02)
    return {"query": str(query.id), "error": error}


def traced(own: Path) -> Callable[[Row, Any], Awaitable[Mapping[str, Any]]]:
    async def call(row: Row, ctx: Any) -> Mapping[str, Any]:
        (own / f"partition-{row.p}-{os.getpid()}").touch()
        return await lookup(row, ctx)

    return call


def replaced(case: str, notify: bool) -> dict[str, Any]:
    """Enrich rows with keys after a shuffle, and read the result several times.

    Args:
        case: name of the folder.
        notify: the driver notifies replaced tasks, so that they stop.
    """
    own = folder / case
    own.mkdir()
    partitions = 3
    # Choose one key per partition; all rows of a key are in one partition.
    numbers = spark.range(100).withColumnRenamed("id", "k").repartition(partitions, "k")
    keys = {row.p: row.k for row in numbers.select("k", functions.spark_partition_id().alias("p")).collect()}
    key_of = functions.create_map(*(functions.lit(one) for pair in keys.items() for one in pair))
    rows = spark.range(0, 12, 1, 4).withColumn("p", (functions.col("id") % partitions).cast("int"))
    good, dead = enrich_batch(
        rows.withColumn("k", key_of[functions.col("p")].cast("long")).repartition(partitions, "k"),
        traced(own),
        output="name string, score double",
        resource=opener(port),
        key="k",
        on_failure="dead_letter",
        retry=ONCE,
        limits=Limits(circuit_breaker=None, timeout=None, total_timeout=None, driver_channel=notify),
    )
    return {"reads": [[sorted(row.id for row in one.collect()) for one in (good, dead)] for _ in range(8)]}


def with_one_executor() -> dict[str, Any]:
    """Start a batch with a rate limit before the executor that replaces a lost executor registers."""
    announce("both")
    wait_for_slots(1)
    enrich_at_ten_a_second(spark, port)
    return {}


def adapted() -> dict[str, Any]:
    """Enrich 30 rows on each executor, with at most 20 calls in flight."""
    limits = Limits(max_in_flight=Auto(initial=20, max=20), timeout=None, total_timeout=None)
    rows = spark.range(0, 60, 1, 2)
    made = enrich_batch(rows, lookup, output="name string, score double", resource=opener(port), limits=limits)
    return {"rows": made.count()}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "stream": lambda: enriched_stream("stream"),
    "leased": lambda: enriched_stream("leased", max_in_flight_job=4, budget=Budget(60_000, cost=lambda row: 1)),
    "killed": lambda: enriched_stream("killed"),
    "settled": lambda: enriched_stream("settled", waits=True),
    "two-results": lambda: replaced("two-results", notify=False),
    "cancelled": lambda: replaced("cancelled", notify=True),
    "rate": with_one_executor,
    "adapted": adapted,
}
wait_for_slots(2)
# The first enrichment sends the package to the executors.
there = spark.sparkContext.parallelize(range(4), 4).mapPartitions(what_is_there).collect()
write_down(there, "there")
while not received("stop"):
    for case, run in CASES.items():
        if received(f"run-{case}") and not received(f"{case}.json"):
            wait_for_slots(2)
            write_down(run(), case)
    time.sleep(0.02)
spark.stop()
if cluster is not None:
    cluster.stop()
