"""Spark job for ``benchmarks.adaptive``, which calls the service for rows and prints the number of unanswered rows."""

from __future__ import annotations

import re
import sys
from typing import Any

from pyspark.sql import SparkSession

from benchmarks._adaptive_client import client_of
from spark_events import Limits, enrich_batch


async def ready(row: Any) -> dict[str, str]:
    return {"country": "DE"}


def run(url: str, rows: int, setting: str, master: str) -> None:
    """Enrich rows on a local cluster, one partition per core.

    Args:
        url: address of the service.
        rows: number of rows.
        setting: number of calls in flight of each task; "auto-4": adapted.
        master: ``local-cluster[executors,cores,memory]``.
    """

    opened, get = client_of(url)

    async def lookup(row: Any, ctx: Any) -> Any:
        return await get(ctx.resource, row.id)

    executors, cores = (int(number) for number in re.findall(r"\d+", master)[:2])
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    spark = builder.config("spark.scheduler.minRegisteredResourcesRatio", "1.0").getOrCreate()
    tasks, limits = executors * cores, Limits(timeout=300, total_timeout=600)
    # Start the worker processes.
    enrich_batch(spark.range(0, 100 * tasks, 1, tasks), ready, output="country string", limits=limits)
    if not setting.startswith("auto"):
        limits = Limits(max_in_flight=int(setting), timeout=300, total_timeout=600)
    frame = spark.range(0, rows, 1, tasks)
    made = enrich_batch(
        frame, lookup, output="country string", resource=opened, limits=limits, retry=None, on_failure="null"
    )
    print(made.where("country is null").count())
    spark.stop()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), *sys.argv[3:5])
