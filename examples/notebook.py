"""Events in a notebook: display them, wait for them and react to them.

Editors and Jupytext recognize cells by ``# %%``. To run all cells as a script: ``python examples/notebook.py``.
Requirements: pyspark and spark-events in this Python.
"""

# %% Create a session with the listener and without a sidecar; events stay in this Python process.
from pyspark.sql import SparkSession

import spark_events

builder = SparkSession.builder.appName("notebook").master("local[2]")
spark = spark_events.configure(builder, sidecar=False).getOrCreate()
events = spark_events.start(spark)


# %% Register a callback for failures. If this cell runs again, the new callback replaces the previous callback.
@events.on("JobFailureEvent", min_severity="WARN")
def show(failure: spark_events.Event) -> None:
    print("FAILED:", failure.attributes["failure.root_cause"])


# %% Start a query and wait for its first commit.
clicks = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
query = clicks.writeStream.queryName("clicks").format("noop").start()
commit = events.wait_for("BatchCommitEvent", timeout=300)
commit  # noqa: B018 (a notebook displays its value)
print(commit)

# %% Run a job that fails: spark-events calls show(), and the event contains the cause.
try:
    spark.range(3).rdd.map(lambda row: 1 // row.id).collect()
except Exception as error:
    print("raised:", type(error).__name__)
failure = events.wait_for("JobFailureEvent", timeout=300)

# %% Add a custom event. Its position among the other events is the time of the call.
event = spark_events.EventBuilder("shop.orders", "OrdersImported").set_attribute("orders", 12)
spark_events.add_event(event.set_body("12 orders were imported"))
print(events.wait_for("OrdersImported", timeout=300))

# %% Stop the session: spark.stop() first delivers the last events.
query.stop()
spark.stop()
for last in events.history[-3:]:
    print(last)
