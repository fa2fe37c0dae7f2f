"""Enrich 40 rows in two tasks and report the progress five times a second.

Arguments: the folder of the run and the service's port.
"""

import logging
import sys
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from spark.enriching import by_value, lookup, opener

from spark_events import Limits, Replay, Retry
from spark_events.enrichment.api.batch import run
from spark_events.enrichment.api.options import plan_of
from spark_events.enrichment.api.request import Request
from spark_events.enrichment.driver.micro_batch import micro_batch

logging.basicConfig(level=logging.INFO)
by_value(__name__)
spark = SparkSession.builder.appName("enrich-progress").getOrCreate()
df = spark.range(0, 40, 1, 2)
output = "name string, score double"
limits = Limits(max_in_flight=20, rate_limit=1000, timeout=None, total_timeout=None)
replay = Replay()
plan, failures = plan_of(
    df, lookup, output, opener(int(sys.argv[2])), None, None, limits, Retry(), "fail", None, replay
)  # fmt: skip
request = Request.of(df, plan, output, None, None, failures.column, limits, replay)
run(request, micro_batch(df, None, None), limits, replay, progress_seconds=0.2)
spark.stop()
