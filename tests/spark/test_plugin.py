"""Tests of the plugin, which registers the listener once and publishes metrics in Spark's metrics system."""

from __future__ import annotations

import json
import re
from collections import Counter
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from spark.harness import DEADLINE_SECONDS, PATIENT, SMALL_SPARK, Lab, Run, file_reporter, two_lines
from spark.sidecar_double import make, records

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PLUGIN = {"spark.plugins": "io.sparkevents.EventsPlugin"}
REPORTER = {**PATIENT, **file_reporter(Path("{folder}/events.jsonl"), "async-queued")}
ALONE = {"spark.driver.extraClassPath": two_lines()["spark.driver.extraClassPath"], **PLUGIN}
LISTENER = {"spark.extraListeners": two_lines()["spark.extraListeners"]}
#: Settings of consecutive contexts in one JVM, by name.
CONTEXTS = {
    "alone": PLUGIN,
    "both": {**LISTENER, **PLUGIN},
    "async-queued": LISTENER,
    "sync": {**LISTENER, "spark.events.dispatcher.type": "sync"},
    "guaranteed": {**PLUGIN, "spark.events.reporter.audit.delivery.guarantee": "guaranteed"},
}
METRICS = {
    **SMALL_SPARK,
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    "spark.metrics.conf.*.sink.csv.class": "org.apache.spark.metrics.sink.CsvSink",
    "spark.metrics.conf.*.sink.csv.directory": "{folder}/csv",
    "spark.metrics.conf.*.sink.csv.period": "1",
}
#: Settings for a small listener queue, from which Spark drops events.
OVERFLOWING = {"spark.scheduler.listenerbus.eventqueue.shared.capacity": "10"}


def watched(lab: Lab) -> Run:
    folder = lab.folder / "talking"
    return lab.run("watched.py", defaults={**ALONE, **make(folder, "talks")}, small=METRICS)


def flooded(lab: Lab) -> tuple[Run, list[dict[str, Any]]]:
    """Fill Spark's listener queue, with the dispatcher sync and a slow sidecar."""
    folder = lab.folder / "slow"
    lines = {**two_lines(), **make(folder, "is slow"), "events.dispatcher.type": "sync"}
    run = lab.start("flood.py", defaults=lines, small={**SMALL_SPARK, **OVERFLOWING})

    def reported() -> list[dict[str, Any]]:
        return [record for record in records(folder) if record.get("where") == "spark-listener-queue"]

    run.wait_for("a report of the drops", reported, DEADLINE_SECONDS)
    run.command("stop")
    run.wait()
    return run, reported()


def listened(lab: Lab) -> Run:
    """Run the contexts of CONTEXTS, each with its own file."""
    reporter = {**REPORTER, "events.shutdown.outcome-timeout": "0ms"}
    path = "spark.events.reporter.audit.path"
    contexts = {name: {path: f"{{folder}}/{name}.jsonl", **own} for name, own in CONTEXTS.items()}
    class_path = {"spark.driver.extraClassPath": ALONE["spark.driver.extraClassPath"]}
    return lab.run("listening.py", json.dumps(contexts), defaults={**class_path, **reporter})


@pytest.fixture(scope="module")
def listening(lab: Lab) -> Future[Run]:
    """Return a run that records the listener's queue in each context."""
    return lab.background(listened, lab)


@pytest.fixture(scope="module")
def several(lab: Lab) -> Future[Run]:
    """Return a run with plugin and listener that has several consecutive contexts."""
    at_once = {"events.shutdown.outcome-timeout": "0ms"}
    return lab.background(lab.run, "contexts.py", defaults={**two_lines(), **PLUGIN, **REPORTER, **at_once})


@pytest.fixture(scope="module")
def prometheus(lab: Lab) -> Future[Run]:
    """Return a job with Spark's Prometheus servlet and CSV sink, and a sidecar with known metrics."""
    return lab.background(watched, lab)


@pytest.fixture(scope="module")
def flood(lab: Lab) -> Future[tuple[Run, list[dict[str, Any]]]]:
    """Return a job whose listener is so slow that Spark's listener queue overflows."""
    return lab.background(flooded, lab)


def assert_reported_once(run: Run, context: str) -> None:
    """Verify that the start and the end of the application and of each job are reported once."""
    assert run.process.returncode == 0, run.tail()
    events = run.events(run.folder / f"{context}.jsonl")
    reported = [event["attributes"] for event in events if event["name"] == "JobStatusChangeEvent"]
    facts = [(a["spark.entity"], a.get("spark.job.id"), a["spark.status.new"]) for a in reported]
    assert facts[0] == ("application", None, "RUNNING")
    assert facts[-1] == ("application", None, "FINISHED")
    assert ("job", 0, "RUNNING") in facts
    assert ("job", 0, "FINISHED") in facts
    assert len(facts) == len(set(facts))
    assert Counter(event["event_id"] for event in events).most_common(1)[0][1] == 1
    assert run.own_messages == []


def metrics_of(run: Run) -> dict[str, float]:
    """Return spark-events' gauges in the Prometheus output, by the last part of their names."""
    found = re.findall(r"_driver_plugin_io_sparkevents_EventsPlugin_(\w+)_Value\S* (\S+)", run.truth())
    return {name: float(value) for name, value in found}


def test_the_plugin_alone_reports_all_events(listening: Future[Run]) -> None:
    assert_reported_once(listening.result(), "alone")


def test_plugin_and_listener_report_once(listening: Future[Run]) -> None:
    assert_reported_once(listening.result(), "both")


@pytest.mark.parametrize("way", ["async-queued", "sync", "guaranteed"])
def test_the_listener_is_in_the_shared_queue(listening: Future[Run], way: str) -> None:
    """The listener is in the queue for ``spark.extraListeners``, never in a queue for Spark's own listeners."""
    run = listening.result()
    assert_reported_once(run, way)
    assert "shared" in run.truth(f"queues-{way}")


@pytest.mark.any_spark
def test_each_context_of_a_jvm_is_reported(several: Future[Run]) -> None:
    run = several.result()
    assert run.process.returncode == 0, run.tail()
    names = [
        (event["attributes"]["spark.app.name"], event["attributes"]["spark.status.new"])
        for event in run.named("JobStatusChangeEvent", spark_entity="application")
    ]
    assert names == [(f"context {n}", status) for n in range(4) for status in ("RUNNING", "FINISHED")]


@pytest.mark.any_spark
def test_a_context_leaves_no_thread_process_or_pipe(several: Future[Run]) -> None:
    after = several.result().truth()
    assert [left["threads"] for left in after] == [[]] * 4
    assert after[-1]["children"] == after[0]["children"]
    assert after[-1]["pipes"] == after[0]["pipes"]


def test_the_queue_s_numbers_are_in_prometheus(prometheus: Future[Run]) -> None:
    """Prometheus shows the drops, usage and size of the queue and the restarts, with the names of FLIP-545."""
    run = prometheus.result()
    assert run.process.returncode == 0, run.tail()
    metrics = metrics_of(run)
    assert metrics["events_droppedCount"] == 1  # dropped by the reporter
    assert 0 <= metrics["events_dispatcher_queue_currentUsage"] <= 1
    assert 0 <= metrics["events_dispatcher_queue_unacknowledged"] <= 2048
    assert metrics["events_dispatcher_queue_size"] == 2048
    assert metrics["events_sidecar_restarts"] == 0


def test_a_reporter_s_numbers_are_in_prometheus(prometheus: Future[Run]) -> None:
    """Prometheus shows the metrics of a reporter, although the reporter's name is known only at run time."""
    metrics = metrics_of(prometheus.result())
    audit = {name.removeprefix("events_reporter_audit_"): v for name, v in metrics.items() if "_audit_" in name}
    assert audit == {
        "latency": 1.5,
        "failureCount": 2,
        "droppedCount": 1,
        "deliveredCount": 9,
        "breakerState": 2,
        "spool_depth": 4,
        "oldest_age": 250,
        "latency_p50": 1.25,
        "latency_p99": 7.5,
        "queue_currentUsage": 0.5,
    }
    assert metrics["events_reporter_on_call_deliveredCount"] == 7


def test_other_sinks_have_the_metrics(prometheus: Future[Run]) -> None:
    """Other sinks show the same metrics: Spark's CSV sink writes one file for each metric."""
    names = {path.name.partition(".EventsPlugin.")[2] for path in (prometheus.result().folder / "csv").iterdir()}
    assert {
        "events.droppedCount.csv",
        "events.dispatcher.queue.currentUsage.csv",
        "events.reporter.audit.latency.csv",
        "events.reporter.audit.failureCount.csv",
        "events.reporter.on-call.breakerState.csv",
    } <= names


def test_drops_of_spark_s_queue_are_reported(flood: Future[tuple[Run, list[dict[str, Any]]]]) -> None:
    """If Spark's listener queue drops events, records contain the drop count, and the driver logs a warning."""
    run, reported = flood.result()
    assert run.process.returncode == 0, run.tail()
    assert all(record["records"]["event"] > 0 and record["seq"] > 0 for record in reported)
    assert any("spark.scheduler.listenerbus.eventqueue.capacity" in message for message in run.own_messages)
