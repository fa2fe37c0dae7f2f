"""Spark Connect client that records its events, its warnings about missing events, and unsupported calls."""

import contextlib
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_events
from spark_events import Event, EventBuilder, EventStream

folder, port = Path(sys.argv[1]), sys.argv[2]
truth: dict[str, Any] = {}
messages: list[str] = []


class MessageRecorder(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        messages.append(record.getMessage())


logging.getLogger("spark_events").addHandler(MessageRecorder())
builder = SparkSession.builder.remote(f"sc://127.0.0.1:{port}")
try:
    spark_events.configure(builder)
except spark_events.SessionError as error:
    truth["configure"] = str(error)
spark = builder.getOrCreate()
truth["kind"] = type(spark).__module__
try:
    spark_events.add_event(EventBuilder("a.b", "C"), spark)
except spark_events.SessionError as error:
    truth["add"] = str(error)
rate = spark.readStream.format("rate").load()
failing = rate.selectExpr("assert_true(value > 100000)")


def start(name: str, df: DataFrame) -> StreamingQuery:
    return df.writeStream.format("noop").queryName(name).start()


def watched(events: EventStream) -> None:
    calls: list[str | None] = []

    @events.on("JobStatusChangeEvent")
    def seen(event: Event) -> None:
        calls.append(event.body)

    query = start("good", rate)
    truth["commit"] = events.wait_for("BatchCommitEvent", timeout=300).body
    query.stop()
    start("bad", failing)
    failure = events.wait_for("JobFailureEvent", timeout=300)
    truth["failure"] = failure.severity.value, failure.attributes["spark.streaming.query.name"], failure.body
    events.stop()
    truth["calls"] = calls
    truth["history"] = [(e.name, e.body) for e in events.history]
    truth["applications"] = sorted({e.attributes.get("spark.app.id", "") for e in events.history})
    truth["app_id"] = spark.conf.get("spark.app.id")


def unwatched() -> None:
    query = start("good", rate)
    while not query.recentProgress:
        time.sleep(0.1)
    query.stop()
    with contextlib.suppress(Exception):  # This query fails on purpose; the client requests the reason from the server.
        start("bad", failing).awaitTermination(300)


events: EventStream | None = None
try:
    events = spark_events.start(spark, reporters={"audit": {"type": "file", "path": folder / "client.jsonl"}})
except spark_events.SessionError as error:
    truth["start"] = str(error)
    unwatched()
else:
    watched(events)
truth["messages"] = messages
# The stream receives no events after stop().
start("unseen", rate).stop()
truth["later"] = len(events.history) if events is not None else 0
(folder / "truth.json").write_text(json.dumps(truth))
spark.stop()
