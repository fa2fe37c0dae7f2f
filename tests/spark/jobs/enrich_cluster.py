"""Stream that a service on the loopback interface enriches.

Arguments: the folder, the service's port, and optionally `wait`: after the second batch settles, wait for `go`; or
`limited`: the driver leases four calls in flight and a budget.
"""

import importlib.util
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from spark.enriching import by_value, logged_opener, lookup, stream

from spark_events import Budget, Limits, enrich_batch

folder = Path(sys.argv[1])
port = int(sys.argv[2])
by_value(__name__)
spark = SparkSession.builder.appName("enrich-cluster").getOrCreate()


def what_is_there(_: Iterable[int]) -> Iterator[tuple[list[str], str]]:
    names = ("spark_events", "msgspec", "tenacity", "pyarrow")
    yield [name for name in names if importlib.util.find_spec(name)], os.path.realpath(sys.prefix)


there = spark.sparkContext.parallelize(range(4), 4).mapPartitions(what_is_there).collect()
opened = folder / "opened"
(folder / "source").mkdir()
for batch in range(3):
    file = folder / "source" / f"{batch}.json"
    file.write_text("".join(f'{{"id": {100 * batch + row}}}\n' for row in range(100)), encoding="utf-8")
    os.utime(file, (1_700_000_000 + batch,) * 2)


def process(df: DataFrame, batch_id: int) -> None:
    leased: dict[str, Any] = {}
    if "limited" in sys.argv[3:]:
        leased = {"max_in_flight_job": 4, "budget": Budget(60_000, cost=lambda row: 1)}
    made = enrich_batch(
        df.repartition(4, "id"),
        lookup,
        output="name string, score double",
        resource=logged_opener(port, str(opened)),
        limits=Limits(max_in_flight=5, timeout=None, total_timeout=None, **leased),
    )
    (folder / f"settled-{batch_id}").touch()
    while batch_id == 1 and "wait" in sys.argv[3:] and not (folder / "go").exists():
        time.sleep(0.02)
    made.write.mode("overwrite").json(str(folder / "sink" / str(batch_id)))


query = stream(spark, folder / "source", folder / "checkpoint", process)
query.awaitTermination()
(folder / "truth.json").write_text(json.dumps({"there": there, "query": str(query.id)}), encoding="utf-8")
spark.stop()
