"""Start and stop streams in one process: repeatedly, with new contexts, in a fork, in threads, and during a wait."""

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

import spark_events
from spark_events import Event, EventBuilder, MemoryReporter, Reporter

folder = Path(sys.argv[1])
rounds = int(sys.argv[2])
truth: dict[str, Any] = {}


def session() -> SparkSession:
    return spark_events.configure(SparkSession.builder, sidecar=False).getOrCreate()


def counts(spark: SparkSession) -> dict[str, Any]:
    for thread in threading.enumerate():
        # stop() does not wait for the thread that supervises the reporters' threads.
        if thread.name.startswith("spark-events"):
            thread.join(60)
    gc.collect()
    # A py4j thread releases JVM objects every second and opens its connection at the first release.
    assert spark.sparkContext._gateway is not None
    while spark.sparkContext._gateway._gateway_client.finalizer_deque:
        time.sleep(0.1)
    jvm = spark._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    me = psutil.Process()
    (java,) = [child for child in me.children() if "java" in child.name()]
    beans = jvm.java.lang.management.ManagementFactory
    own = [str(t.getName()) for t in jvm.Thread.getAllStackTraces().keySet() if t.getName().startswith("spark-events")]
    return {
        "threads": threading.active_count(),
        "descriptors": me.num_fds(),
        "processes": len(me.children(recursive=True)),
        "jvm_threads": beans.getThreadMXBean().getThreadCount(),
        "jvm_descriptors": java.num_fds(),
        "jvm_own_threads": own,
    }


def once(spark: SparkSession, number: int) -> Any:
    with spark_events.start(spark) as events:

        @events.on("Mine")
        def uses_spark(event: Event) -> None:
            spark.sparkContext.applicationId  # noqa: B018 (py4j opens a connection for the thread)

        spark_events.add_event(EventBuilder("a.b", "Mine").set_attribute("round", number))
        return events.wait_for("Mine", timeout=120).attributes["round"]


spark = session()
warm = [once(spark, number) for number in range(3)]
truth["before"] = counts(spark)
truth["rounds"] = [once(spark, number) for number in range(rounds)]
truth["after"] = counts(spark)
deadline = time.monotonic() + 60
# The JVM closes its side of a closed connection with a delay.
while any(truth["after"][one] > truth["before"][one] + 3 for one in ("jvm_threads", "jvm_descriptors")):
    if time.monotonic() > deadline:
        break
    time.sleep(0.1)
    truth["after"] = counts(spark)

# Two Spark sessions of one application must share a stream.
first = spark_events.start(spark)
try:
    spark_events.start(spark.newSession())
except spark_events.SessionError as error:
    truth["second"] = str(error)
spark_events.add_event(EventBuilder("a.b", "Before"))
before = first.wait_for("Before", timeout=120)
replaced = spark_events.start(spark.newSession(), replace=True)
truth["replaced"] = first.is_running, replaced.is_running
spark_events.add_event(EventBuilder("a.b", "After"))
truth["counted_on"] = replaced.wait_for("After", after=before, timeout=120).sequence > before.sequence

# A forked child must have no stream, and its exit must not affect the parent's stream.
child = os.fork()
if child == 0:
    replaced.stop()
    os._exit(0 if not replaced.is_running else 1)
truth["fork"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), replaced.is_running
spark_events.add_event(EventBuilder("a.b", "AfterTheFork"))
truth["after_fork"] = replaced.wait_for("AfterTheFork", timeout=120).name

# Each event that several threads add must be reported once.
memory = MemoryReporter()
replaced.stop()
events = spark_events.start(spark, reporters=[memory])


def adds(thread: int) -> None:
    for number in range(50):
        spark_events.add_event(EventBuilder("a.b", "FromAThread").set_attribute("n", thread * 50 + number), spark)


adders = [threading.Thread(target=adds, args=(thread,)) for thread in range(4)]
for adder in adders:
    adder.start()
for adder in adders:
    adder.join()
events.stop()
truth["from_threads"] = [e.attributes["n"] for e in memory.events if e.name == "FromAThread"]

# Stop the context and create a new one in the same process.
spark.stop()
try:
    spark_events.start(spark)
except spark_events.SessionError as error:
    truth["stopped"] = str(error)
try:
    spark_events.add_event(EventBuilder("a.b", "Nobody"), spark)
except spark_events.SessionError as error:
    truth["stopped_add"] = str(error)
applications = []
for _ in range(2):
    spark = session()
    events = spark_events.start(spark)
    spark_events.add_event(EventBuilder("a.b", "Mine"))
    applications.append(events.wait_for("Mine", timeout=120).attributes["spark.app.id"])
    spark.stop()
truth["applications"] = applications
truth["bodies"] = [event.body for event in events.history]

# Stop a stream while Spark's listener waits for the stream's answer to an event.
spark = session()
settings = {"events.dispatcher.type": "sync", "events.dispatcher.sync.timeout": "1min"}
assert spark._jvm is not None
shim = spark._jvm.io.sparkevents.inprocess.InProcess.open(spark._jsc.sc(), json.dumps({"settings": settings}))
shim.listen()
spark._jvm.io.sparkevents.Events.add(json.dumps({"id": "1", "name": "Waits"}))
while b'"Waits"' not in shim.fetch(1_000):
    pass
began = time.monotonic()
shim.end()
truth["stop_during_a_wait_seconds"] = time.monotonic() - began
spark.stop()


# Stop a stream while Spark's listener queue is full.
class Slow(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        time.sleep(4)


spark = session()
events = spark_events.start(spark, reporters=[Slow()], dispatcher="sync", settings={"shutdown.timeout": "5s"})
for _ in range(10):
    spark.range(1).count()
began = time.monotonic()
events.stop()
truth["stop_with_a_full_queue_seconds"] = time.monotonic() - began
spark.stop()
(folder / "truth.json").write_text(json.dumps(truth))
