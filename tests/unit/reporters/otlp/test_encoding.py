"""Tests of the OTLP encoding: identical to the output of OpenTelemetry's own encoder."""

from __future__ import annotations

import subprocess
import sys

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

NOW = 1_800_000_000_000_000_000


def encoded(*events: Event, longest: int = 1_000) -> ExportLogsServiceRequest:
    data = Encoder(lambda: NOW, longest, {"team": "payments"}).encode(events)
    request: ExportLogsServiceRequest = ExportLogsServiceRequest.FromString(data)
    return request


def theirs(one: Event, resource: dict[str, str]) -> ExportLogsServiceRequest:
    """Encode the event's record with the SDK's encoder."""
    record = LogRecord(
        timestamp=one.observed_ts_millis * 1_000_000,
        observed_timestamp=NOW,
        severity_text=one.severity.value,
        severity_number=SeverityNumber(one.severity.number),
        body=one.body,
        attributes={"event_id": one.event_id, "sequence": one.sequence, **one.attributes},
        event_name=event_name(one.class_scope, one.name),
    )
    scope = InstrumentationScope(one.class_scope, __version__)
    return encode_logs([ReadableLogRecord(record, Resource(resource), scope)])


@pytest.mark.parametrize("severity", Severity)
def test_a_record_is_the_same_as_the_sdk_would_encode_it(severity: Severity) -> None:
    """A record has every field, attribute type and severity as the SDK would encode it."""
    app = {"spark.app.name": "shop", "spark.version": "4.3.0", "spark.app.id": "app-1"}
    one = event(7, severity, whole=-3, half=0.5, yes=True, no=False, text='zoë\n\x00"😀', empty="", **app)
    service = {"service.name": "shop", "service.version": "4.3.0", "service.instance.id": "app-1", "team": "payments"}
    assert encoded(one) == theirs(one, service)


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
    """The OTLP name of a built-in event is below ``spark``, that of a user's event below its own scope."""
    assert event_name(scope, name) == expected


def test_texts_of_body_and_attributes_are_truncated() -> None:
    """Texts are truncated to a limit of characters that includes the mark; shorter texts stay unchanged."""
    long, fits = "é" * 101, "é" * 100
    built = EventBuilder("tests", "Test").set_body(long).set_attributes({"long": long, "fits": fits}).build()
    record = encoded(built, longest=100).resource_logs[0].scope_logs[0].log_records[0]
    texts = {one.key: one.value.string_value for one in record.attributes}
    assert len(record.body.string_value) == len(texts["long"]) == 100
    assert texts["long"].endswith("é… (cut, it had 101 characters)")
    assert texts["fits"] == fits


def test_an_attribute_named_like_a_field_is_omitted() -> None:
    """An attribute with the name of a field is omitted, because a record must not have duplicate keys."""
    record = encoded(event(1, event_id="mine", sequence=9)).resource_logs[0].scope_logs[0].log_records[0]
    assert sorted(one.key for one in record.attributes) == ["event_id", "sequence"]
    assert next(one.value.string_value for one in record.attributes if one.key == "event_id") != "mine"


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
    assert (resource.resource.attributes[0].value.string_value, resource.scope_logs[0].scope.name) == ("a?", "s?")
    assert (record.event_name, record.body.string_value, record.time_unix_nano) == ("s?.t?", "b?", 2**64 - 1)
    texts = {one.key: one.value.string_value for one in record.attributes}
    assert texts == {"event_id": "i?", "sequence": "", "k?": "v?", "n": str(2**64), "spark.app.name": "a?"}


def test_missing_libraries_are_reported_with_the_install_command() -> None:
    """The message about missing libraries has the command that installs the extra."""
    program = (
        "import sys; sys.modules['opentelemetry.proto'] = None\n"
        "from spark_events.config import Settings\nfrom spark_events.pipeline import build\n"
        "build(Settings.of({'events.reporter.o.type': 'otlp'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "events.reporter.o: the reporter cannot be made" in done.stderr
    assert "pip install 'spark-events[otlp]'" in done.stderr
