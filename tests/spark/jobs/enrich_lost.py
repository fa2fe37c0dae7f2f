"""Batch with a rate limit that starts after the loss of one of two executors.

The batch starts before the executor that replaces the lost executor registers.

Arguments: the folder, the service's port, and optionally `standalone`: a cluster without an executor limit.
"""

import logging
import sys
import time
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from spark.enriching import by_value, enrich_at_ten_a_second

logging.basicConfig()
folder = Path(sys.argv[1])
port = int(sys.argv[2])
by_value(__name__)
builder = SparkSession.builder.appName("enrich-lost")
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


wait_for_slots(2)
(folder / "both").touch()
wait_for_slots(1)
enrich_at_ten_a_second(spark, port)
spark.stop()
if cluster is not None:
    cluster.stop()
