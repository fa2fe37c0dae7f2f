"""Tests of metrics over OTLP, which a real sidecar exports to a real OpenTelemetry Collector."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import (
    ROOT,
    FakeDriver,
    application_end,
    application_start,
    goodbye,
    query_progress,
    query_started,
    read_events,
)
from lateness import Witness

from reporters.peers.otlp import Collector, plain
from spark_events._version import __version__


def commits() -> list[dict[str, Any]]:
    source = {"description": "Kafka", "endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 5}}, "numInputRows": 6}
    took = {"addBatch": 1, "triggerExecution": 1_500}
    return [query_progress(batch, sources=[source], durationMs=took) for batch in (0, 1)]


def run(folder: Path, endpoint: str, **more: str) -> list[dict[str, Any]]:
    """Run a sidecar with an application that commits twice, and return the sidecar's messages to the driver.

    ``more`` contains the types of further reporters, by name.
    """
    settings = {
        "events.reporter.all.type": "file",
        "events.reporter.all.path": str(folder / "events.jsonl"),
        "events.metrics.otlp.endpoint": endpoint,
        **{f"events.reporter.{name}.type": kind for name, kind in more.items()},
    }
    with FakeDriver(folder / "errors", settings) as driver:
        driver.send_records(application_start(), query_started(), *commits(), application_end())
        driver.send(goodbye(within_ms=20_000))
        assert driver.await_exit(within=30) == 0
        return driver.answers


def values(metric: dict[str, Any]) -> list[tuple[dict[str, Any], float]]:
    """Return the attributes and the value of each metric point."""
    (kind,) = metric.keys() & {"sum", "gauge", "histogram"}
    found = []
    for point in metric[kind]["dataPoints"]:
        value = point.get("asInt", point.get("asDouble", point.get("sum")))
        found.append((plain(point.get("attributes", [])), float(value)))
    return found


def test_commits_and_delivery_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics of batches, delivery, losses and circuit breakers are exported with the application's resource."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests"))
    with Collector(tmp_path) as collector:
        run(tmp_path, collector.endpoint("http/protobuf"), refusing="misbehaving:Refuses")
    found = {one.record["name"]: one for one in collector.metrics()}
    query = {"spark.streaming.query.name": "clicks", "spark.streaming.query.id": "q1"}
    assert values(found["spark.batch.duration"].record) == [(query, 3.0)]
    assert found["spark.batch.duration"].record["unit"] == "s"
    assert values(found["spark.batch.rows_input"].record) == [(query, 10.0)]
    assert values(found["spark.batch.count"].record) == [(query, 2.0)]
    assert values(found["spark.batch.lag"].record) == [(query, 4.0)]
    reporter = {"spark.events.reporter.name": "all"}
    written = len(read_events(tmp_path / "events.jsonl"))
    assert (reporter, float(written)) in values(found["spark.events.delivered"].record)
    assert (reporter, 0.0) in values(found["spark.events.breaker"].record)
    for name in ("failures", "queue.usage", "spool.depth", "oldest.age"):
        assert reporter in [attributes for attributes, _ in values(found[f"spark.events.{name}"].record)]
    latency = {
        str(of["quantile"]): took
        for of, took in values(found["spark.events.latency"].record)
        if reporter.items() <= of.items()
    }
    assert latency.keys() == {"0.5", "0.99"}
    assert 0 <= latency["0.5"] <= latency["0.99"]
    lost = values(found["spark.events.dropped"].record)
    assert {of["spark.events.reporter.name"] for of, _ in lost} == {"refusing"}
    assert all(of["spark.events.dropped.reason"] and count > 0 for of, count in lost)
    one = found["spark.batch.duration"]
    assert plain(one.resource["attributes"])["service.name"] == "shop"
    assert one.scope == {"name": "spark_events", "version": __version__}


def test_a_silent_receiver_of_metrics_delays_nothing(tmp_path: Path, witness: Witness) -> None:
    """If the metrics receiver never answers, all events are reported, and the sidecar exits by its deadline."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        run(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert witness.took(began) < 25
    assert read_events(tmp_path / "events.jsonl")[-1]["name"] == "DispatcherReportEvent"


def test_without_the_extra_events_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, events are reported, and one error contains the install command."""
    hidden = tmp_path / "opentelemetry"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ModuleNotFoundError('no', name='opentelemetry')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    answers = run(tmp_path, "http://127.0.0.1:9")
    assert read_events(tmp_path / "events.jsonl")[-1]["name"] == "DispatcherReportEvent"
    (error,) = [str(answer) for answer in answers if "events.metrics.otlp.endpoint" in str(answer)]
    assert "pip install 'spark-events[otlp]'" in error
