"""Stop a streaming query when its sibling fails.

Usage: python examples/stop_sibling.py. Assume that both queries write to the same table, and that output of only one
query would be worse than no output. The callback runs in the driver, in its own thread, so it can stop the query. A
reporter in the sidecar can only report the failure.
"""

from pyspark.sql import SparkSession

import spark_events

builder = SparkSession.builder.appName("siblings").master("local[2]")
spark = spark_events.configure(builder, sidecar=False).getOrCreate()

with spark_events.start(spark, reporters=["log"]) as events:
    rates = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    orders = rates.writeStream.queryName("orders").format("noop").start()
    events.wait_for("BatchCommitEvent", timeout=300)

    @events.on("JobFailureEvent", min_severity="ERROR")
    def stop_the_other(event: spark_events.Event) -> None:
        if event.attributes["spark.entity"] == "query":
            spark_events.add_event(
                spark_events.EventBuilder("shop.siblings", "SiblingStopped")
                .set_severity("WARN")
                .set_body(f"stopping orders, because {event.attributes['spark.streaming.query.name']} failed")
            )
            orders.stop()

    # This query fails on its first row.
    rates.selectExpr("assert_true(value < 0)").writeStream.queryName("payments").format("noop").start()
    events.wait_for("SiblingStopped", timeout=300)
    orders.awaitTermination(300)
    print("orders is active:", orders.isActive)

spark.stop()
