"""Stream whose batches are enriched three times; the second run of the job reads one more column.

Arguments: the folder of the run, the service's port, the folder of the stream, and the schema of its files.
"""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from spark.enriching import by_value, opener, stream

from spark_events import Limits, enrich_batch

logging.basicConfig()
port, folder, schema = int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
by_value(__name__)
spark = SparkSession.builder.appName("enrich-schema").getOrCreate()


async def charge_card(row: Any, ctx: Any) -> Mapping[str, Any]:
    await ctx.resource.get(f"charge-{row.id}", ctx.idempotency_key)
    return {"charged": True}


async def send_receipt(row: Any, ctx: Any) -> Mapping[str, Any]:
    await ctx.resource.get(f"send-{row.id}", ctx.idempotency_key)
    return {"sent": True}


async def note_everything(row: Any, ctx: Any) -> Mapping[str, Any]:
    await ctx.resource.get(f"note-{row.id}", ctx.idempotency_key)
    return {"noted": True}


def process(df: DataFrame, batch_id: int) -> None:
    options: dict[str, Any] = {"resource": opener(port), "limits": Limits(timeout=None, total_timeout=None)}
    charged = enrich_batch(df, charge_card, output="charged boolean", input_cols="id", **options)
    noted = enrich_batch(charged, note_everything, output="noted boolean", **options)
    enrich_batch(noted, send_receipt, output="sent boolean", input_cols="id", **options)


if not (folder / "source").exists():
    (folder / "source").mkdir()
    for number in range(2):
        file = folder / "source" / f"{number}.json"
        rows = range(10 * number, 10 * number + 10)
        file.write_text("".join(f'{{"id": {row}, "currency": "EUR"}}\n' for row in rows), encoding="utf-8")
        os.utime(file, (1_700_000_000 + number,) * 2)
stream(spark, folder / "source", folder / "checkpoint", process, schema).awaitTermination()
spark.stop()
