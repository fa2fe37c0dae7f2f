"""Batch with a rate limit under dynamic allocation: executors start for the batch and end when idle.

Arguments: the folder and the service's port.
"""

import logging
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from spark.enriching import by_value, enrich_at_ten_a_second

logging.basicConfig()
folder = Path(sys.argv[1])
port = int(sys.argv[2])
by_value(__name__)
spark = SparkSession.builder.appName("enrich-allocated").getOrCreate()
made = enrich_at_ten_a_second(spark, port)
(folder / "settled").touch()
while not (folder / "go").exists():
    time.sleep(0.02)
made.write.json(str(folder / "sink"))
spark.stop()
