"""Tests that the OTLP encoding equals the encoding of OpenTelemetry's SDK."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from fakes import ROOT, event
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from spark_events import Event, EventBuilder, Severity
from spark_events._version import __version__
from spark_events.event import Attributes
from spark_events.reporters.otlp.encoding import Encoder, event_name
from spark_events.reporters.otlp.otlp_resources import SCHEMA_URL, resource_of
from spark_events.reporters.otlp.spans import ids

#: Attributes with which the SDK identifies itself.
TELEMETRY = {key: str(value) for key, value in Resource.create().attributes.items() if key.startswith("telemetry.")}
NOW = 1_800_000_000_000_000_000


def encoded(*events: Event, longest: int = 1_000) -> ExportLogsServiceRequest:
    data = Encoder(lambda: NOW, longest, {"team": "payments"}).encode(events)
    request: ExportLogsServiceRequest = ExportLogsServiceRequest.FromString(data)
    return request


def theirs(one: Event, resource: dict[str, str]) -> ExportLogsServiceRequest:
    """Encode the record of the event with the SDK's encoder."""
    fields = {"log.record.uid": one.event_id, "spark.events.class_scope": one.class_scope}
    elsewhere = ("spark.app.id", "spark.version", "host.name")
    own = {key: value for key, value in one.attributes.items() if key not in elsewhere}
    record = LogRecord(
        timestamp=one.observed_ts_millis * 1_000_000,
        observed_timestamp=NOW,
        severity_text=one.severity.value,
        severity_number=SeverityNumber(one.severity.number),
        body=one.body,
        attributes={**fields, "spark.events.sequence": one.sequence, **own},
        event_name=event_name(one.class_scope, one.name),
    )
    scope = InstrumentationScope("spark_events", __version__, SCHEMA_URL)
    return encode_logs([ReadableLogRecord(record, Resource(resource, SCHEMA_URL), scope)])


@pytest.mark.parametrize("severity", Severity)
def test_a_record_is_the_same_as_the_sdk_would_encode_it(severity: Severity) -> None:
    """A record contains every field, attribute type and severity, encoded as in the SDK's record."""
    app = {"spark.app.name": "shop", "spark.version": "4.3.0", "spark.app.id": "app-1", "host.name": "h1"}
    one = event(7, severity, whole=-3, half=0.5, yes=True, no=False, text='zoë\n\x00"😀', empty="", **app)
    service = {"service.name": "shop", "service.version": "4.3.0", "service.instance.id": "app-1"}
    spark = {"spark.app.id": "app-1", "spark.version": "4.3.0", "host.name": "h1"}
    ours, sdk = encoded(one), theirs(one, {**TELEMETRY, **service, **spark, "team": "payments"})
    for request in (ours, sdk):
        # The order of resource attributes has no meaning.
        request.resource_logs[0].resource.attributes.sort(key=lambda attribute: attribute.key)
    assert ours == sdk


@pytest.mark.parametrize(
    ("scope", "name", "expected"),
    [
        ("spark.streaming.query", "JobFailureEvent", "spark.job_failure"),
        ("spark.stage", "AllSubtasksStatusChangeEvent", "spark.all_subtasks_status_change"),
        ("spark_events.dispatch", "EventsDroppedEvent", "spark.events_dropped"),
        ("shop.orders", "OrderImported", "shop.orders.order_imported"),
        ("sparkling.water", "HTTPStatusEvent", "sparkling.water.http_status"),
        ("spark", "Event", "spark.event"),
        ("shop", "already_snake", "shop.already_snake"),
        ("shop", "Batch2Done", "shop.batch2_done"),
    ],
)
def test_the_name_of_an_event(scope: str, name: str, expected: str) -> None:
    """The OTLP name of a built-in event begins with ``spark``; the name of a custom event begins with its scope."""
    assert event_name(scope, name) == expected


def test_texts_of_body_and_attributes_are_truncated() -> None:
    """Strings are truncated to a length that includes the truncation mark. Shorter strings are unchanged."""
    long, fits = "é" * 101, "é" * 100
    built = EventBuilder("tests", "Test").set_body(long).set_attributes({"long": long, "fits": fits}).build()
    record = encoded(built, longest=100).resource_logs[0].scope_logs[0].log_records[0]
    texts = {one.key: one.value.string_value for one in record.attributes}
    assert len(record.body.string_value) == len(texts["long"]) == 100
    assert texts["long"].endswith("é… (cut, it had 101 characters)")
    assert texts["fits"] == fits


def test_an_attribute_named_like_a_field_is_omitted() -> None:
    """An attribute with the name of a field is omitted, because a record must not contain duplicate keys."""
    fields: dict[str, Any] = {"log.record.uid": "mine", "spark.events.sequence": 9}
    odd = event(1, **fields)
    record = encoded(odd).resource_logs[0].scope_logs[0].log_records[0]
    found = {one.key: one.value.string_value for one in record.attributes}
    assert sorted(found) == ["log.record.uid", "spark.events.class_scope", "spark.events.sequence"]
    assert found["log.record.uid"] == odd.event_id


def test_the_environment_and_settings_override_the_application(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings override the SDK's variables, and these override the application's values.

    Resource detectors also run.
    """
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=env,team=a%20b,host.name=env")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "named by env")
    monkeypatch.setenv("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "process")
    found = resource_of(("shop", "4.3.0", "app-1", "2", "h1"), {"service.version": "7"}).attributes
    assert (found["service.name"], found["service.version"], found["team"]) == ("named by env", "7", "a b")
    assert (found["host.name"], found["spark.app.id"], found["spark.version"]) == ("env", "app-1", "4.3.0")
    assert (found["service.instance.id"], found["process.pid"]) == ("app-1/2", os.getpid())
    assert found["telemetry.sdk.name"] == "opentelemetry"
    data = Encoder(lambda: NOW, 1_000, {}).encode([event(1)])
    resource = ExportLogsServiceRequest.FromString(data).resource_logs[0].resource
    assert [one.value.int_value for one in resource.attributes if one.key == "process.pid"] == [os.getpid()]


def test_an_event_that_bypassed_the_builder_is_encoded() -> None:
    """Lone surrogates, integers beyond 64 bits and times beyond OTLP's range become the nearest valid value."""
    odd = Event(
        name="T\ud800",
        class_scope="s\ud800",
        body="b\ud800",
        severity=Severity.INFO,
        observed_ts_millis=2**63 - 1,
        event_id="i\ud800",
        attributes=Attributes({"k\ud800": "v\ud800", "n": 2**64, "spark.app.name": "a\ud800"}),
    )
    resource = encoded(odd).resource_logs[0]
    record = resource.scope_logs[0].log_records[0]
    service = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (service["service.name"], resource.scope_logs[0].scope.name) == ("a?", "spark_events")
    assert (record.event_name, record.body.string_value, record.time_unix_nano) == ("s?.t?", "b?", 2**64 - 1)
    texts = {one.key: one.value.string_value for one in record.attributes}
    fields = {"log.record.uid": "i?", "spark.events.class_scope": "s?", "spark.events.sequence": ""}
    assert texts == {**fields, "k?": "v?", "n": str(2**64), "spark.app.name": "a?"}


def test_a_sidecar_without_otlp_does_not_import_opentelemetry() -> None:
    """Only the reporter and the metrics exporter import the SDK, and only if they are configured."""
    program = (
        "import sys\nimport spark_events.sidecar.main\nfrom spark_events.config import Settings\n"
        "from spark_events.dispatch.pipeline import build\nbuild(Settings.of({'events.reporter.l.type': 'log'}))\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'grpc', 'httpx', 'google'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_records_have_the_ids_of_their_span() -> None:
    """A record has the trace id of its application, and the span id of its job if the event belongs to a job."""
    about: dict[str, Any] = {"spark.app.id": "a"}
    events = [event(1, **about), event(2, **{**about, "spark.job.id": 7})]
    data = Encoder(lambda: NOW, 1_000, {}, partial(ids, parent=None)).encode(events)
    without, of_job = [
        record
        for resource in ExportLogsServiceRequest.FromString(data).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    assert without.trace_id == of_job.trace_id != b""
    assert len(of_job.trace_id) == 16
    assert (len(without.span_id), len(of_job.span_id)) == (0, 8)


def test_missing_libraries_are_reported_with_the_install_command() -> None:
    program = (
        "import sys; sys.modules['opentelemetry.proto'] = None\n"
        "from spark_events.config import Settings\nfrom spark_events.dispatch.pipeline import build\n"
        "build(Settings.of({'events.reporter.o.type': 'otlp'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "events.reporter.o: the reporter cannot be created" in done.stderr
    assert "pip install 'spark-events[otlp]'" in done.stderr
