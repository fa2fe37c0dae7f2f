"""A client of a Spark Connect server, as user ada: statements that fail, a tagged job, and a query with foreachBatch.

Arguments: the folder and the server's port.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

folder, port = Path(sys.argv[1]), sys.argv[2]
spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}/;user_id=ada_b").getOrCreate()


def failed(statement: str) -> str:
    try:
        spark.sql(statement).collect()
    except Exception as error:
        return type(error).__name__
    return "nothing was raised"


def inside(batch: DataFrame, number: int) -> None:
    batch.groupBy().count().collect()
    if number == 1:
        batch.selectExpr("assert_true(id < 0)").collect()


errors = [
    failed("selec 1"),
    failed("select * from no_such_table"),
    failed("drop table no_such_table"),
    failed("select raise_error('broken by ada') from range(2)"),
]
spark.addTag("nightly")
spark.range(7).groupBy().count().collect()
spark.range(7).write.parquet(f"{folder}/written")
spark.clearTags()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().selectExpr("value id")
query = rows.writeStream.queryName("inner").foreachBatch(inside).option("checkpointLocation", f"{folder}/cp").start()
try:
    query.awaitTermination(300)
    errors.append("nothing was raised")
except Exception as error:
    errors.append(type(error).__name__)
session: Any = spark
truth = {"session": session.session_id, "errors": errors, "query": str(query.id), "run": str(query.runId)}
(folder / "truth.json").write_text(json.dumps(truth), encoding="utf-8")
