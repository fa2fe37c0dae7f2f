"""Use events in the driver's Python process without a sidecar, as in a notebook."""

import asyncio
import json
import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

import spark_events
from spark_events import Event, EventBuilder, MemoryReporter

folder = Path(sys.argv[1])
truth: dict[str, Any] = {}
never = {"reporter.never.type": "file", "reporter.never.path": str(folder / "never.jsonl")}
settings = {**never, "shutdown.timeout": "2min"}
spark = spark_events.configure(SparkSession.builder.appName("alone"), settings=settings, sidecar=False).getOrCreate()
truth["is_configured"] = spark.conf.get("spark.extraListeners"), spark.conf.get("spark.events.sidecar.enabled")

memory = MemoryReporter()
before = spark.readStream.format("rate").load().writeStream.format("noop").queryName("early").start()
events = spark_events.start(spark, reporters={"memory": memory, "audit": {"type": "file", "path": folder / "e.jsonl"}})

# This query starts before the stream. The stream must still know the query's name.
commit = events.wait_for("BatchCommitEvent", timeout=1200)
truth["early"] = commit.attributes["spark.streaming.query.name"], commit.attributes["spark.app.name"]
before.stop()
# End this query before adding the callbacks below, so that they do not receive its termination event.
events.wait_for(
    "JobStatusChangeEvent", where=lambda e: e.attributes.get("spark.status.new") == "FINISHED", timeout=1200
)

calls: list[tuple[str, bool]] = []
pages: list[Any] = []
broken: list[str] = []
blocked = threading.Event()
abandoned = threading.Event()
release = threading.Event()


class Abandoned(logging.StreamHandler):  # type: ignore[type-arg]  # not generic before Python 3.11
    """Log handler that detects when a blocked thread is abandoned."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if "is abandoned" in record.getMessage():
            abandoned.set()


logging.getLogger("spark_events").addHandler(Abandoned())


@events.on("JobStatusChangeEvent", min_severity="INFO")
def plain(event: Event) -> None:
    calls.append((event.event_id, threading.current_thread() is threading.main_thread()))


@events.on("JobFailureEvent", min_severity="ERROR")
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
    truth["raised"] = type(error).__name__
failure = events.wait_for("JobFailureEvent", where=lambda e: e.attributes["spark.entity"] == "job", timeout=120)
truth["failure"] = failure.attributes["failure.root_cause"], failure.severity.value
blocked.wait(120)

# The custom event must keep its position among Spark's events.
spark.sparkContext.parallelize([1], 1).count()
spark_events.add_event(EventBuilder("shop.orders", "OrdersImported").set_attribute("orders", 12).set_severity("WARN"))
spark.sparkContext.parallelize([1], 1).count()
mine = events.wait_for("OrdersImported", timeout=120)
truth["mine"] = mine.attributes["orders"], mine.attributes["spark.app.name"], mine.severity.value
# Wait for the event in the history, because each reporter receives the event at a different time.
jobs = [e for e in events.history if e.name == "JobStatusChangeEvent" and e.attributes["spark.entity"] == "job"]
truth["order"] = [
    any(job.sequence < mine.sequence and job.attributes["spark.status.new"] == "FINISHED" for job in jobs[-4:]),
    events.wait_for("JobStatusChangeEvent", after=mine, timeout=120).sequence > mine.sequence,
]


async def waits() -> str:
    task = asyncio.ensure_future(events.wait_for_async("Later", timeout=120))
    await asyncio.sleep(0.05)
    spark_events.add_event(EventBuilder("shop.orders", "Later"))
    return (await task).name


truth["awaited"] = asyncio.run(waits())
try:
    events.wait_for("NeverHappens", timeout=0.3)
except spark_events.WaitTimeoutError as error:
    truth["in_vain"] = str(error)

truth["is_abandoned"] = abandoned.wait(120)
release.set()
began = time.monotonic()
spark.stop()
truth["stop_seconds"] = time.monotonic() - began
truth["is_running"] = events.is_running
truth["memory"] = [(e.name, e.event_id) for e in memory.events]
truth["history"] = [(e.name, e.event_id) for e in events.history]
truth["calls"], truth["pages"], truth["broken"] = calls, pages, broken
truth["last"] = events.history[-2].body, events.history[-1].body
truth["accounts"] = json.loads(str(events.history[-1].attributes["spark.events.reporters"]))
try:
    events.wait_for("NeverHappens", timeout=120)
except spark_events.StreamStoppedError as error:
    truth["ended"] = str(error)
for thread in threading.enumerate():
    if thread.name.startswith("spark-events"):
        thread.join(60)
truth["threads"] = [thread.name for thread in threading.enumerate() if thread.name.startswith("spark-events")]
(folder / "truth.json").write_text(json.dumps(truth))
