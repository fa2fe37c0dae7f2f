"""Two applications in one plain script: events without a sidecar, as in a notebook, and a stream beside a sidecar.

The second application makes invalid calls, and Python exits without stop().
"""

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

import spark_events
from spark_events import Event, EventBuilder, MemoryReporter, Reporter

folder = Path(sys.argv[1])
mistakes: dict[str, str] = {}
abandoned = threading.Event()


class Abandoned(logging.StreamHandler):  # type: ignore[type-arg]  # not generic before Python 3.11
    """Log handler that detects when a blocked thread is abandoned."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if "is abandoned" in record.getMessage():
            abandoned.set()


def mistake(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:
        mistakes[name] = f"{type(error).__name__}: {error}"
    else:
        mistakes[name] = "nothing was raised"


class Broken(Reporter):
    def __init__(self, config: object) -> None:
        raise RuntimeError("no licence")

    def report(self, events: Sequence[Event]) -> None:
        raise AssertionError


mistake("no session", spark_events.start)
mistake("unknown key", lambda: spark_events.spark_conf({"a": {"type": "file", "path": "x", "ptah": 1}}))
mistake("object", lambda: spark_events.spark_conf([MemoryReporter()]))
mistake("dispatcher", lambda: spark_events.spark_conf(dispatcher="quick"))

# --- events without a sidecar ---

alone: dict[str, Any] = {}
never = {"reporter.never.type": "file", "reporter.never.path": str(folder / "never.jsonl")}
settings = {**never, "shutdown.timeout": "2min"}
spark = spark_events.configure(SparkSession.builder.appName("alone"), settings=settings, sidecar=False).getOrCreate()
alone["is_configured"] = spark.conf.get("spark.extraListeners"), spark.conf.get("spark.events.sidecar.enabled")

memory = MemoryReporter()
before = spark.readStream.format("rate").load().writeStream.format("noop").queryName("early").start()
events = spark_events.start(spark, reporters={"memory": memory, "audit": {"type": "file", "path": folder / "e.jsonl"}})

# This query starts before the stream. The stream must still know the query's name.
commit = events.wait_for("BatchCommitEvent", timeout=1200)
alone["early"] = commit.attributes["spark.streaming.query.name"], commit.attributes["spark.app.name"]
before.stop()
# End this query before adding the callbacks below, so that they do not receive its termination event.
events.wait_for(
    "JobStatusChangeEvent", where=lambda e: e.attributes.get("spark.status.new") == "FINISHED", timeout=1200
)

calls: list[tuple[str, bool]] = []
pages: list[Any] = []
broken: list[str] = []
blocked = threading.Event()
release = threading.Event()

logging.getLogger("spark_events").addHandler(Abandoned())


@events.on("JobStatusChangeEvent", min_severity="INFO")
def plain(event: Event) -> None:
    calls.append((event.event_id, threading.current_thread() is threading.main_thread()))


@events.on("JobFailureEvent", min_severity="WARN")
async def page(event: Event) -> None:
    await asyncio.sleep(0)
    pages.append(event.attributes["exception.message"])


@events.on("OrdersImported")
def audit(event: Event) -> None:
    """Callback with the same name as a reporter."""


@events.on
def raises(event: Event) -> None:
    broken.append(event.event_id)
    raise ValueError("a callback's own mistake")


@events.on("JobStatusChangeEvent", timeout=0.5)
def blocks(event: Event) -> None:
    blocked.set()
    release.wait()


def divide(row: Row) -> Any:
    return 1 // row.id


try:
    spark.range(1).rdd.map(divide).collect()
except Exception as error:
    alone["raised"] = type(error).__name__
failure = events.wait_for("JobFailureEvent", where=lambda e: e.attributes["spark.entity"] == "job", timeout=120)
alone["failure"] = failure.attributes["failure.root_cause"], failure.severity.value
blocked.wait(120)

# The custom event must keep its position among Spark's events.
spark.sparkContext.parallelize([1], 1).count()
spark_events.add_event(EventBuilder("shop.orders", "OrdersImported").set_attribute("orders", 12).set_severity("WARN"))
spark.sparkContext.parallelize([1], 1).count()
mine = events.wait_for("OrdersImported", timeout=120)
alone["mine"] = mine.attributes["orders"], mine.attributes["spark.app.name"], mine.severity.value
# Wait for the event in the history, because each reporter receives the event at a different time.
jobs = [e for e in events.history if e.name == "JobStatusChangeEvent" and e.attributes["spark.entity"] == "job"]
alone["order"] = [
    any(job.sequence < mine.sequence and job.attributes["spark.status.new"] == "FINISHED" for job in jobs[-4:]),
    events.wait_for("JobStatusChangeEvent", after=mine, timeout=120).sequence > mine.sequence,
]


async def waits() -> str:
    task = asyncio.ensure_future(events.wait_for_async("Later", timeout=120))
    await asyncio.sleep(0.05)
    spark_events.add_event(EventBuilder("shop.orders", "Later"))
    return (await task).name


alone["awaited"] = asyncio.run(waits())
try:
    events.wait_for("NeverHappens", timeout=0.3)
except spark_events.WaitTimeoutError as error:
    alone["in_vain"] = str(error)

alone["is_abandoned"] = abandoned.wait(120)
release.set()
began = time.monotonic()
spark.stop()
alone["stop_seconds"] = time.monotonic() - began
alone["is_running"] = events.is_running
alone["memory"] = [(e.name, e.event_id) for e in memory.events]
alone["history"] = [(e.name, e.event_id) for e in events.history]
alone["calls"], alone["pages"], alone["broken"] = calls, pages, broken
alone["last"] = events.history[-2].body, events.history[-1].body
alone["accounts"] = json.loads(str(events.history[-1].attributes["spark.events.reporters"]))
try:
    events.wait_for("NeverHappens", timeout=120)
except spark_events.StreamStoppedError as error:
    alone["ended"] = str(error)
for thread in threading.enumerate():
    if thread.name.startswith("spark-events"):
        thread.join(60)
alone["threads"] = [thread.name for thread in threading.enumerate() if thread.name.startswith("spark-events")]

# --- a stream beside a sidecar ---

beside: dict[str, Any] = {}
reporters = {"audit": {"type": "file", "path": folder / "events.jsonl"}}
spark = spark_events.configure(
    SparkSession.builder.appName("beside"), reporters, settings={"shutdown.timeout": "2min"}
).getOrCreate()
mistake("late configure", lambda: spark_events.configure(SparkSession.builder))
mistake("no reporter", lambda: spark_events.start(spark, reporters=[3]))
mistake("taken name", lambda: spark_events.start(spark, reporters={"history": "log"}))
mistake("wrong key", lambda: spark_events.start(spark, reporters={"f": {"type": "file"}}))

spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
mistake("no licence", lambda: spark_events.start(spark, reporters={"f": {"type": "__main__:Broken"}}))
beside["pool"] = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
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
beside["mine"] = events.wait_for("OrdersImported", timeout=120).event_id
# Use the event builder in the JVM, as Scala and Java programs do.
assert spark._jvm is not None
built = spark._jvm.io.sparkevents.Events.builder("shop.orders", "FromTheJvm").severity("WARN").body("12 orders")
details = {"orders": 12, "share": 0.5, "last": True, "who": "é"}
for key, value in details.items():
    built = built.attribute(key, value)
beside["added"] = built.add()
received = events.wait_for("FromTheJvm", timeout=120)
beside["from_the_jvm"] = [received.body, received.severity.value, {key: received.attributes[key] for key in details}]
events.stop()
# After the stream has stopped, the sidecar must continue.
spark_events.add_event(EventBuilder("shop.orders", "AfterTheStream"))
beside["history"] = [(e.name, e.event_id) for e in events.history if e.name != "DispatcherReportEvent"]
beside["mistakes"] = mistakes
(folder / "truth.json").write_text(json.dumps({"alone": alone, "beside": beside}))
