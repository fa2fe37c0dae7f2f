"""Query that reads a Kafka topic until the test ends the job."""

import sys

from control import FOLDER, announce, wait_until_received
from pyspark.sql import SparkSession

servers, topic = sys.argv[2:]
spark = SparkSession.builder.appName("kafka-source").getOrCreate()
rows = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    # This timeout exceeds the duration of the test. Therefore the query hangs in its source instead of failing.
    .option("kafka.default.api.timeout.ms", "600000")
    .load()
)
query = rows.writeStream.format("noop").queryName("clicks").option("checkpointLocation", f"{FOLDER}/checkpoint").start()
query.processAllAvailable()
announce("read")
wait_until_received("end", 600)
