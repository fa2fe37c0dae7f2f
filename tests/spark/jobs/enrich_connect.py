"""Enrichment of batches and a stream with Spark Connect.

Arguments: the folder, the service's port and the mode.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import rand

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from spark.enriching import by_value, lookup, opener, stream

from spark_events import EnrichmentError, InvalidPlanError, Key, OnFailure, Replay, Retry, enrich, enrich_batch

folder = Path(sys.argv[1])
port = int(sys.argv[2])
by_value(__name__)
spark = SparkSession.builder.remote(os.environ["CONNECT_URL"]).getOrCreate()


def what_is_there(batches: Iterable[Any]) -> Iterator[Any]:
    import importlib.util

    import pyarrow

    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"there": [importlib.util.find_spec("tenacity") is not None]})


first = spark.range(1).mapInArrow(what_is_there, "there boolean").first()
assert first is not None
truth: dict[str, Any] = {"type": type(spark).__module__, "there": first.there}


async def double(row: Row) -> dict[str, int]:
    if row["a.b"] == 2:
        raise ValueError("two")
    return {"new.x": row["a.b"] * 2}


common: dict[str, Any] = {"output": "name string, score double", "resource": opener(port), "retry": Retry(attempts=1)}

out = enrich_batch(spark.range(0, 40, 1, 3), lookup, **common)
truth["names"] = [row.name for row in out.collect()]
# Spark Connect 3.5 returns numpy integers.
truth["count"] = int(out.count())
truth["joined"] = int(out.join(out.withColumnRenamed("name", "other").select("id", "other"), "id").count())
random = enrich_batch(spark.range(200, 210).withColumn("random", rand()), lookup, **common)
truth["random"] = random.collect() == random.collect()
truth["lazy"] = [row.name for row in spark.range(100, 103).transform(enrich, lookup, **common).collect()]
try:
    enrich_batch(spark.range(666, 670), lookup, **common)
except EnrichmentError as error:
    truth["error"] = [error.failed, error.rows]
awkward = spark.range(3).selectExpr("id as `a.b`", "-id as `c``d`")
asked: dict[str, Any] = {"output": "`new.x` long", "key": Key("a.b", order_by="c`d")}
good, dead = enrich_batch(awkward, double, on_failure=OnFailure("dead_letter", "why.not"), **asked)
truth["awkward"] = [good.columns, sorted([*row] for row in good.collect()), dead.columns, [*dead.collect()[0]][1]]
truth["awkward lazy"] = sorted(
    [*row][:3] for row in enrich(awkward, double, on_failure=OnFailure("column", "why.not"), **asked).collect()
)

(folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
if sys.argv[3] != "everything":
    sys.exit()

(folder / "source").mkdir()
for batch in range(2):
    file = folder / "source" / f"{batch}.json"
    file.write_text("".join(f'{{"id": {1000 + 10 * batch + row}}}\n' for row in range(10)), encoding="utf-8")
    os.utime(file, (1_700_000_000 + batch,) * 2)
sink = str(folder / "sink")
refused = str(folder / "refused")


def process(df: DataFrame, batch_id: int) -> None:
    for context in (Replay(), Replay(batch_id=batch_id), Replay(query="connected")):
        try:
            enrich_batch(df, lookup, **common, replay=context)
        except InvalidPlanError as error:
            with Path(refused).open("a", encoding="utf-8") as file:
                file.write(f"{error}\n")
    made = enrich_batch(df, lookup, **common, replay=Replay(query="connected", batch_id=batch_id))
    made.write.mode("overwrite").json(f"{sink}/{batch_id}")


query = stream(spark, folder / "source", folder / "checkpoint", process)
query.awaitTermination()
spark.stop()
