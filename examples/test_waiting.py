"""Tests that wait for an event instead of a fixed time: ``pytest examples/test_waiting.py``.

``processAllAvailable`` shows that a query has processed its input. Events also show the result, including failures. If
a wait times out, its error lists the events that arrived.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import spark_events


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a session with the listener and without a sidecar."""
    builder = SparkSession.builder.appName("tests").master("local[2]").config("spark.ui.enabled", "false")
    session = spark_events.configure(builder, sidecar=False).getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def events(spark: SparkSession) -> Iterator[spark_events.EventStream]:
    """Yield the events from the start of the test to its end."""
    with spark_events.start(spark) as stream:
        yield stream


def test_every_order_is_counted_once(spark: SparkSession, events: spark_events.EventStream, tmp_path: Path) -> None:
    """Two files are two batches, and each commit event contains the number of rows."""
    for number, lines in enumerate(['{"id": 1}\n{"id": 2}\n', '{"id": 3}\n']):
        (tmp_path / f"{number}.json").write_text(lines)
    orders = spark.readStream.schema("id int").option("maxFilesPerTrigger", 1).json(str(tmp_path))
    query = orders.writeStream.queryName("count").format("memory").trigger(availableNow=True).start()
    events.wait_for("JobStatusChangeEvent", where=lambda e: e.body == "tests: query 'count' finished", timeout=300)
    commits = [event for event in events.history if event.name == "BatchCommitEvent"]
    assert sorted(commit.attributes["spark.batch.rows_input"] for commit in commits) == [1, 2]
    assert query.exception() is None


def test_a_failure_names_its_cause(spark: SparkSession, events: spark_events.EventStream) -> None:
    """The event contains the same error message as the driver's log."""
    rates = spark.readStream.format("rate").option("rowsPerSecond", 10).load()
    rates.selectExpr("assert_true(value < 0, 'no negative orders')").writeStream.format("noop").queryName("bad").start()
    failure = events.wait_for("JobFailureEvent", min_severity="ERROR", timeout=300)
    assert "no negative orders" in str(failure.attributes["exception.message"])
