"""In a notebook: events of everything that runs in it, shown, waited for, and acted upon.

Cells are separated by ``# %%``, as editors and Jupytext have it; as a script it runs from top to bottom:
``python examples/notebook.py``. Needs pyspark and spark-events in this Python.
"""

# %% A session that has the listener, and no second process: events stay in this Python.
from pyspark.sql import SparkSession

import spark_events

builder = SparkSession.builder.appName("notebook").master("local[2]")
spark = spark_events.configure(builder, sidecar=False).getOrCreate()
events = spark_events.start(spark)


# %% Something to be called with what matters. Run this cell again: it takes the place of the one before.
@events.on("JobFailureEvent", min_severity="ERROR")
def show(failure: spark_events.Event) -> None:
    print("FAILED:", failure.attributes["failure.root_cause"])


# %% A query, and its first commit.
clicks = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
query = clicks.writeStream.queryName("clicks").format("noop").start()
commit = events.wait_for("BatchCommitEvent", timeout=300)
commit  # noqa: B018 (a notebook shows it, with all its details; a script says:)
print(commit)

# %% One that fails: show() is called, and the cause is in its event.
try:
    spark.range(3).rdd.map(lambda row: 1 // row.id).collect()
except Exception as error:
    print("raised:", type(error).__name__)
failure = events.wait_for("JobFailureEvent", timeout=300)

# %% An event of one's own, in its place among the others.
event = spark_events.EventBuilder("shop.orders", "OrdersImported").set_attribute("orders", 12)
spark_events.add_event(event.set_body("12 orders were imported"))
print(events.wait_for("OrdersImported", timeout=300))

# %% The end: the last events are told before the session is gone.
query.stop()
spark.stop()
for told in events.history[-3:]:
    print(told)
