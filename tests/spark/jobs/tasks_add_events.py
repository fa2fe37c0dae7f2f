"""Tasks that add events, in Python and in the executor's JVM, and the same facts added by the driver."""

from collections.abc import Iterable, Iterator

from control import write_down
from pyspark.sql import SparkSession

import spark_events
from spark_events import EventBuilder

spark = SparkSession.builder.appName("tasks").getOrCreate()


def adds(rows: Iterable[int]) -> Iterator[str]:
    try:
        spark_events.add_event(EventBuilder("a.b", "FromATask").set_attribute("rows", len(list(rows))))
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


rejected = spark.sparkContext.accumulator(0)
spark.sparkContext.parallelize(range(4), 2).foreach(lambda row: rejected.add(row % 2))
spark_events.add_event(EventBuilder("a.b", "FromTheDriver").set_attribute("rows", rejected.value))
event = """concat('{"id": "', id, '", "name": "FromATask", "class_scope": "a.b"}')"""
added = spark.range(4).selectExpr(f"reflect('io.sparkevents.Events', 'add', {event}) added").collect()
python = spark.sparkContext.parallelize(range(4), 2).mapPartitions(adds).collect()
write_down({"java": [row.added for row in added], "python": python})
spark.stop()
