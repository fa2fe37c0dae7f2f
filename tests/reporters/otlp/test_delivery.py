"""Tests of the fields that a real OpenTelemetry Collector receives from the ``otlp`` reporter."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import event

from reporters.otlp.sending import BOTH, GRPC, HTTP, config, send
from reporters.peers.otlp import Collector, plain
from spark_events import Event, EventBuilder
from spark_events._version import __version__
from spark_events.config import Settings
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.pipeline import build
from spark_events.event import Attributes


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("collector")) as started:
        yield started


SCOPE = {"spark.app.id": "app-1", "spark.app.name": "shop", "spark.app.attempt_id": "2", "spark.version": "4.3.0"}


def failure() -> Event:
    builder = EventBuilder("spark.streaming.query", "JobFailureEvent").set_body("Query 'clicks' failed at batch 1")
    builder.set_severity("ERROR").set_observed_ts_millis(1_700_000_000_123)
    details = {"error.type": "ValueError", "exception.type": "ValueError", "exception.message": "no currency"}
    trace = {"exception.stacktrace": "Traceback:\n  line 1"}
    return builder.set_attributes({**SCOPE, **details, **trace, "attempts": 3, "ratio": 0.5, "retried": True}).build()


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("protocol", BOTH)
def test_every_field_arrives(collector: Collector, protocol: str, compression: str) -> None:
    """Name, times, severity, body, attributes, scope and resource of an event follow OTLP's log data model."""
    before = time.time_ns()
    sent = failure()
    already = len(collector.received())
    send(config(protocol, collector.endpoint(protocol), compression=compression), [sent])
    collector.await_bodies(already + 1)
    resource, scope, record = collector.received()[-1]
    found = plain(resource["attributes"])
    assert found.pop("telemetry.sdk.name") == "opentelemetry"
    assert (found.pop("telemetry.sdk.language"), found.pop("telemetry.sdk.version") != "") == ("python", True)
    assert found == {
        "service.name": "shop",
        "service.version": "4.3.0",
        "service.instance.id": "app-1/2",
        "spark.app.id": "app-1",
        "spark.version": "4.3.0",
    }
    assert scope == {"name": "spark_events", "version": __version__}
    assert before <= int(record.pop("observedTimeUnixNano")) <= time.time_ns()
    fields = {"log.record.uid": sent.event_id, "spark.events.class_scope": "spark.streaming.query"}
    own = {key: value for key, value in sent.attributes.items() if key not in ("spark.app.id", "spark.version")}
    assert plain(record.pop("attributes")) == {**own, **fields, "spark.events.sequence": 0}
    assert record == {
        "timeUnixNano": "1700000000123000000",
        "severityNumber": 17,
        "severityText": "ERROR",
        "body": {"stringValue": "Query 'clicks' failed at batch 1"},
        "eventName": "spark.job_failure",
    }


@pytest.mark.parametrize("protocol", BOTH)
def test_any_text_arrives_unchanged(collector: Collector, protocol: str) -> None:
    """Any string, even with NUL and supplementary characters, is unchanged; only lone surrogates become "?"."""
    texts = {"lines": "a\r\nb\u2028c", "quotes": "\"'\\`", "nul": "a\x00b", "emoji": "😀 zoë", "empty": ""}
    whole = event(1, **texts)
    fields = {name: getattr(whole, name) for name in Event.__struct_fields__}
    spoilt = Event(**{**fields, "attributes": Attributes({**texts, "lone": "a\ud800b", "key\udfff": 2**70})})
    already = len(collector.received())
    send(config(protocol, collector.endpoint(protocol)), [spoilt, whole])
    collector.await_bodies(already + 2)
    first, second = collector.received()[already:]
    assert {key: first.attributes[key] for key in texts} == {key: second.attributes[key] for key in texts} == texts
    assert first.attributes["lone"] == "a?b"
    assert first.attributes["key?"] == str(2**70)


@pytest.mark.parametrize("protocol", BOTH)
def test_events_of_different_scopes_arrive_in_order(collector: Collector, protocol: str) -> None:
    """Events of different scopes and applications are received in order, without regrouping."""
    events = []
    for number in range(300):
        builder = EventBuilder(f"spark.scope{number % 3}", "Test").set_body(f"{protocol} {number}")
        events.append(builder.set_attribute("spark.app.name", f"app{number // 50 % 2}").build())
    already = len(collector.received())
    send(config(protocol, collector.endpoint(protocol)), events[:100], events[100:])
    assert collector.await_bodies(already + 300)[already:] == [one.body for one in events]
    names = [plain(one.resource["attributes"])["service.name"] for one in collector.received()[already:]]
    assert names == [f"app{number // 50 % 2}" for number in range(300)]


@pytest.mark.parametrize(
    ("protocol", "variables"),
    [
        (GRPC, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:{grpc}"}),
        (GRPC, {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:{grpc}", "OTEL_EXPORTER_OTLP_INSECURE": "true"}),
        (HTTP, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:{http}", "OTEL_EXPORTER_OTLP_PROTOCOL": HTTP}),
        (HTTP, {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://127.0.0.1:{http}/v1/logs"}),
    ],
)
def test_the_standard_variables_set_the_endpoint(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, protocol: str, variables: dict[str, str]
) -> None:
    """If no setting defines the endpoint, the OTEL_* environment variables define it."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(grpc=collector.grpc_port, http=collector.http_port))
    monkeypatch.setenv("OTEL_SERVICE_NAME", "named by the environment")
    already = len(collector.received())
    named = config(protocol if "OTEL_EXPORTER_OTLP_PROTOCOL" not in variables else None, None)  # type: ignore[arg-type]
    send(named, [event(1)])
    collector.await_bodies(already + 1)
    assert plain(collector.received()[-1].resource["attributes"])["service.name"] == "named by the environment"


@pytest.mark.parametrize("protocol", BOTH)
def test_a_large_batch_is_sent_in_several_requests(collector: Collector, protocol: str) -> None:
    """A receiver with a limit of 4 MB per request receives 16 MB of events in order."""
    events = [event(number, text="x" * 30_000) for number in range(512)]
    already = len(collector.received())
    send(config(protocol, collector.endpoint(protocol)), events)
    assert collector.await_bodies(already + 512)[already:] == [str(number) for number in range(512)]


def settings_of_names(**changes: Any) -> dict[str, Any]:
    return {"service_name": "billing", "service_version": "7", **changes}


def test_the_service_s_name_and_version_can_be_set(collector: Collector) -> None:
    """Settings override the name and the version of the service. The defaults are the Spark application's values."""
    already = len(collector.received())
    send(config(GRPC, collector.endpoint(GRPC), **settings_of_names()), [failure()])
    collector.await_bodies(already + 1)
    found = plain(collector.received()[-1].resource["attributes"])
    assert (found["service.name"], found["service.version"]) == ("billing", "7")
    assert (found["service.instance.id"], found["spark.version"]) == ("app-1/2", "4.3.0")


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_events_reach_the_collector_through_a_spool(
    collector: Collector, tmp_path: Path, protocol: str, isolation: str
) -> None:
    """Events reach the Collector through a spool, with the reporter in a thread or in its own process."""
    keys = {
        "type": "otlp",
        "protocol": protocol,
        "endpoint": collector.endpoint(protocol),
        "isolation": isolation,
        "delivery.guarantee": "at-least-once",
        "spool.directory": str(tmp_path),
    }
    settings = Settings.of({f"events.reporter.telemetry.{key}": value for key, value in keys.items()})
    dispatcher = build(settings, application="shop").dispatcher
    already = len(collector.received())
    dispatcher.start()
    dispatcher.dispatch([Entry(0, event(number)) for number in range(100)], 0)
    dispatcher.drain(time.monotonic() + 30)
    dispatcher.stop(time.monotonic() + 10)
    assert collector.await_bodies(already + 100)[already:] == [str(number) for number in range(100)]
    assert dispatcher.counters()["telemetry"].delivered == 100
