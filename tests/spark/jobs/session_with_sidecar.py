"""Run a stream together with a sidecar, and make invalid calls. Python exits without stop()."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import spark_events
from spark_events import Event, EventBuilder, MemoryReporter, Reporter

folder = Path(sys.argv[1])
truth: dict[str, Any] = {}
mistakes: dict[str, str] = {}


def mistake(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:
        mistakes[name] = f"{type(error).__name__}: {error}"
    else:
        mistakes[name] = "nothing was raised"


audit = {"audit": {"type": "file", "path": folder / "events.jsonl"}}
mistake("no session", spark_events.start)
mistake("unknown key", lambda: spark_events.spark_conf({"a": {"type": "file", "path": "x", "ptah": 1}}))
mistake("object", lambda: spark_events.spark_conf([MemoryReporter()]))
mistake("dispatcher", lambda: spark_events.spark_conf(dispatcher="quick"))
spark = spark_events.configure(
    SparkSession.builder.appName("beside"), audit, settings={"shutdown.timeout": "2min"}
).getOrCreate()
mistake("late configure", lambda: spark_events.configure(SparkSession.builder))
mistake("no reporter", lambda: spark_events.start(spark, reporters=[3]))
mistake("taken name", lambda: spark_events.start(spark, reporters={"history": "log"}))
mistake("wrong key", lambda: spark_events.start(spark, reporters={"f": {"type": "file"}}))


class Broken(Reporter):
    def __init__(self, config: object) -> None:
        raise RuntimeError("no licence")

    def report(self, events: Sequence[Event]) -> None:
        raise AssertionError


spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
mistake("no licence", lambda: spark_events.start(spark, reporters={"f": {"type": "__main__:Broken"}}))
truth["pool"] = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
mistake("no spark", lambda: spark_events.start("local[2]"))

events = spark_events.start(spark, dispatcher="sync")
mistake("twice", lambda: spark_events.start(spark))
mistake("not a function", lambda: events.on("JobFailureEvent")(3))  # type: ignore[type-var]
mistake("no argument", lambda: events.on("JobFailureEvent")(lambda: None))  # type: ignore[type-var]
mistake("severity", lambda: events.on("JobFailureEvent", min_severity="LOUD"))
mistake("name", lambda: events.on(""))
mistake("timeout", lambda: events.wait_for("X", timeout=-1))
mistake("off", lambda: events.off(print))
mistake(
    "attribute",
    lambda: spark_events.add_event(EventBuilder("a.b", "C").set_attribute("wrong", [1])),  # type: ignore[arg-type]
)
mistake("no event", lambda: spark_events.add_event({"name": "C"}))  # type: ignore[arg-type]

spark.sparkContext.parallelize(range(4), 2).count()
spark_events.add_event(EventBuilder("shop.orders", "OrdersImported").set_attribute("orders", 12))
truth["mine"] = events.wait_for("OrdersImported", timeout=120).event_id
# Use the event builder in the JVM, as Scala and Java programs do.
assert spark._jvm is not None
built = spark._jvm.io.sparkevents.Events.builder("shop.orders", "FromTheJvm").severity("WARN").body("12 orders")
details = {"orders": 12, "share": 0.5, "last": True, "who": "é"}
for key, value in details.items():
    built = built.attribute(key, value)
truth["added"] = built.add()
received = events.wait_for("FromTheJvm", timeout=120)
truth["from_the_jvm"] = [received.body, received.severity.value, {key: received.attributes[key] for key in details}]
events.stop()
# After the stream has stopped, the sidecar must continue.
spark_events.add_event(EventBuilder("shop.orders", "AfterTheStream"))
truth["history"] = [(e.name, e.event_id) for e in events.history if e.name != "DispatcherReportEvent"]
truth["mistakes"] = mistakes
(folder / "truth.json").write_text(json.dumps(truth))
