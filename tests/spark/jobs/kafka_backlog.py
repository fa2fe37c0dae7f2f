"""Query that reads a Kafka topic with 100 rows per batch, and holds its second batch until the test sends a word."""

import sys

from control import FOLDER, wait_until_received
from pyspark.sql import DataFrame, SparkSession

servers, topic = sys.argv[2:]
spark = SparkSession.builder.appName("kafka-backlog").getOrCreate()
source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)


def write(batch: DataFrame, number: int) -> None:
    if number == 1:
        wait_until_received("go", 600)


rows = source.options(startingOffsets="earliest", maxOffsetsPerTrigger="100").load()
query = rows.writeStream.foreachBatch(write).queryName("clicks").option("checkpointLocation", f"{FOLDER}/state").start()
query.processAllAvailable()
query.stop()
spark.stop()
