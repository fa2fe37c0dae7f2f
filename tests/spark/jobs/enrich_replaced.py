"""Batch with keys after a shuffle, whose result the job reads several times.

Arguments: the folder, the service's port, and optionally `notify`: the driver notifies replaced tasks, so that they
stop.
"""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession, functions

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from spark.enriching import ONCE, by_value, lookup, opener

from spark_events import Limits, enrich_batch

folder = Path(sys.argv[1])
port = int(sys.argv[2])
by_value(__name__)
spark = SparkSession.builder.appName("enrich-replaced").getOrCreate()
PARTITIONS, ROWS, READS = 3, 12, 8

# Choose one key per partition; all rows of a key are in one partition.
numbers = spark.range(100).withColumnRenamed("id", "k").repartition(PARTITIONS, "k")
keys = {row.p: row.k for row in numbers.select("k", functions.spark_partition_id().alias("p")).collect()}
key_of = functions.create_map(*(functions.lit(one) for pair in keys.items() for one in pair))


def traced(folder: Path) -> Callable[[Row, Any], Awaitable[Mapping[str, Any]]]:
    async def call(row: Row, ctx: Any) -> Mapping[str, Any]:
        (folder / f"partition-{row.p}-{os.getpid()}").touch()
        return await lookup(row, ctx)

    return call


rows = spark.range(0, ROWS, 1, 4).withColumn("p", (functions.col("id") % PARTITIONS).cast("int"))
good, dead = enrich_batch(
    rows.withColumn("k", key_of[functions.col("p")].cast("long")).repartition(PARTITIONS, "k"),
    traced(folder),
    output="name string, score double",
    resource=opener(port),
    key="k",
    on_failure="dead_letter",
    retry=ONCE,
    limits=Limits(circuit_breaker=None, timeout=None, total_timeout=None, driver_channel="notify" in sys.argv[3:]),
)
reads = [[sorted(row.id for row in one.collect()) for one in (good, dead)] for _ in range(READS)]
(folder / "truth.json").write_text(json.dumps({"reads": reads}), encoding="utf-8")
spark.stop()
