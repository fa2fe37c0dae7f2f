"""An alert that acts: when one of two streaming queries fails, the other is stopped.

Usage: python examples/stop_sibling.py. Both write to the same table, say, and half a day of one of them alone would
be worse than none. The callback runs in a thread of its own, in the driver; a sidecar could tell, but not do this.
"""

from pyspark.sql import SparkSession

import spark_events

builder = SparkSession.builder.appName("siblings").master("local[2]")
spark = spark_events.configure(builder, sidecar=False).getOrCreate()

with spark_events.start(spark, reporters=["log"]) as events:
    rates = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    orders = rates.writeStream.queryName("orders").format("noop").start()
    events.wait_for("BatchCommitEvent", timeout=300)

    @events.on("JobStatusChangeEvent", min_severity="ERROR")
    def stop_the_other(event: spark_events.Event) -> None:
        if event.attributes["spark.entity"] == "query":
            spark_events.add_event(
                spark_events.EventBuilder("shop.siblings", "SiblingStopped")
                .set_severity("WARN")
                .set_body(f"orders is stopped, because {event.attributes['spark.streaming.query.name']} has failed")
            )
            orders.stop()

    # Fails with its first row.
    rates.selectExpr("assert_true(value < 0)").writeStream.queryName("payments").format("noop").start()
    events.wait_for("SiblingStopped", timeout=300)
    orders.awaitTermination(300)
    print("orders is active:", orders.isActive)

spark.stop()
