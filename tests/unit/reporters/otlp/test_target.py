"""Tests of the receiver of ``otlp`` and ``otlp-traces``: settings override the standard OpenTelemetry variables."""

from __future__ import annotations

import os

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from spark_events.config import Settings
from spark_events.dispatch.pipeline import build
from spark_events.errors import ConfigError
from spark_events.reporters.otlp.target import OtlpConfig, Target, header_values, target

ALL, LOGS = "OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_LOGS_"
ENVIRONMENTS = [
    {},
    {ALL + "ENDPOINT": "http://collector:1234"},
    {ALL + "ENDPOINT": "https://collector:1234"},
    {ALL + "ENDPOINT": "http://collector:1234", LOGS + "ENDPOINT": "http://logs:99/own/path"},
    {ALL + "ENDPOINT": "http://collector:1234/base/"},
    {ALL + "HEADERS": "a=b, c = d%20e%3D,f=g=h", ALL + "ENDPOINT": "http://x:1"},
    {ALL + "HEADERS": "a=b", LOGS + "HEADERS": "Authorization=Bearer%20x", ALL + "ENDPOINT": "http://x:1"},
    {ALL + "COMPRESSION": "gzip"},
    {ALL + "COMPRESSION": "gzip", LOGS + "COMPRESSION": "none"},
    {LOGS + "COMPRESSION": "gzip"},
    {ALL + "TIMEOUT": "3"},
    {ALL + "TIMEOUT": "3", LOGS + "TIMEOUT": "4.5"},
]


def with_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_http_variables_match_the_exporter(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """With HTTP, OpenTelemetry's exporter selects the same target in the same environment."""
    with_environment(monkeypatch, environment)
    theirs, ours = HttpExporter(), target(OtlpConfig(protocol="http/protobuf"), os.environ)
    assert ours.address == theirs._endpoint
    assert ours.is_compressed is (theirs._compression.value == "gzip")
    assert ours.timeout == min(10.0, theirs._client._timeout)
    assert ours.headers.items() <= theirs._client._headers.items()
    added = {"user-agent", "content-type", "content-encoding"}
    assert set(ours.headers) == {name.lower() for name in theirs._client._headers} - added
    theirs.shutdown()  # type: ignore[no-untyped-call]


# Excluded for gRPC: only HTTP has paths, and the gRPC exporter rejects the compression "none" of the specification.
_HTTP_ALONE = ("/base/", "/own/path", "none")
GRPC_ENVIRONMENTS = [
    *(one for one in ENVIRONMENTS if not any(value.endswith(_HTTP_ALONE) for value in one.values())),
    {ALL + "ENDPOINT": "collector:1234"},
    {ALL + "ENDPOINT": "collector:1234", ALL + "INSECURE": "true"},
    {ALL + "ENDPOINT": "collector:1234", ALL + "INSECURE": "true", LOGS + "INSECURE": "false"},
    {LOGS + "ENDPOINT": "collector:1234", LOGS + "INSECURE": "True"},
]


@pytest.mark.parametrize("environment", GRPC_ENVIRONMENTS, ids=str)
def test_grpc_variables_match_the_exporter(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """With gRPC, OpenTelemetry's exporter selects the same target in the same environment."""
    with_environment(monkeypatch, environment)
    theirs, ours = GrpcExporter(), target(OtlpConfig(protocol="grpc"), os.environ)
    assert ours.address == theirs._endpoint
    assert ours.is_secure is not theirs._insecure
    assert ours.is_compressed is (theirs._compression is grpc.Compression.Gzip)
    assert ours.timeout == min(10.0, theirs._timeout)
    assert tuple(ours.headers.items()) == theirs._headers
    theirs.shutdown()


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_variables_of_traces_match_the_exporter(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """For spans, OpenTelemetry's exporter selects the same target in the same environment."""
    environment = {name.replace("LOGS", "TRACES"): value for name, value in environment.items()}
    with_environment(monkeypatch, environment)
    theirs, ours = OTLPSpanExporter(), target(OtlpConfig(protocol="http/protobuf"), os.environ, "TRACES")
    assert ours.address == theirs._endpoint
    assert ours.is_compressed is (theirs._compression.value == "gzip")
    assert ours.timeout == min(10.0, theirs._client._timeout)
    assert ours.headers.items() <= theirs._client._headers.items()
    theirs.shutdown()  # type: ignore[no-untyped-call]


def read(environment: dict[str, str], **changes: object) -> Target:
    return target(OtlpConfig(**changes), environment)  # type: ignore[arg-type]


def test_settings_override_variables() -> None:
    everything = {
        "ENDPOINT": "http://other:1",
        "HEADERS": "a=b",
        "COMPRESSION": "gzip",
        "TIMEOUT": "1",
        "CERTIFICATE": "/other",
        "CLIENT_CERTIFICATE": "/other",
        "CLIENT_KEY": "/other",
        "PROTOCOL": "http/protobuf",
        "INSECURE": "true",
    }
    made = read(
        {f"{prefix}{name}": value for prefix in (ALL, LOGS) for name, value in everything.items()},
        endpoint="mine:2",
        headers=header_values.parse("c=d"),
        compression="none",
        timeout=5.0,
        certificate="/mine",
        client_certificate="/me",
        client_key="/me.key",
        protocol="grpc",
        insecure=False,
    )
    assert made == Target(
        is_http=False,
        address="mine:2",
        is_secure=True,
        headers={"c": "d"},
        is_compressed=False,
        certificate="/mine",
        client_certificate="/me",
        client_key="/me.key",
        timeout=5.0,
    )


def test_the_variables_select_the_protocol_and_the_certificates() -> None:
    """The variables select the protocol. In OpenTelemetry, the imported exporter determines the protocol."""
    names = {"PROTOCOL": "http/protobuf", "CERTIFICATE": "/ca", "CLIENT_CERTIFICATE": "/me", "CLIENT_KEY": "/key"}
    made = read({f"{LOGS}{name}": value for name, value in names.items()})
    assert (made.is_http, made.certificate, made.client_certificate, made.client_key) == (True, "/ca", "/me", "/key")
    assert made.address == "http://localhost:4318/v1/logs"


def test_an_http_endpoint_without_a_path_gets_the_default_path() -> None:
    assert read({}, protocol="http/protobuf", endpoint="http://c:4318").address == "http://c:4318/v1/logs"
    assert read({}, protocol="http/protobuf", endpoint="https://c/otlp/v1/logs").address == "https://c/otlp/v1/logs"


@pytest.mark.parametrize(
    ("environment", "changes", "message"),
    [
        ({ALL + "PROTOCOL": "http/json"}, {}, "OTEL_EXPORTER_OTLP_PROTOCOL: given 'http/json', expected one of grpc"),
        ({LOGS + "COMPRESSION": "zstd"}, {}, "OTEL_EXPORTER_OTLP_LOGS_COMPRESSION: given 'zstd', expected one of"),
        ({ALL + "INSECURE": "yes", ALL + "ENDPOINT": "c:1"}, {}, "OTEL_EXPORTER_OTLP_INSECURE: given 'yes'"),
        ({ALL + "TIMEOUT": "soon"}, {}, "OTEL_EXPORTER_OTLP_TIMEOUT: given 'soon', expected a number of seconds"),
        ({ALL + "TIMEOUT": "-1"}, {}, "OTEL_EXPORTER_OTLP_TIMEOUT: given '-1'"),
        ({ALL + "ENDPOINT": "ftp://c"}, {}, "OTEL_EXPORTER_OTLP_ENDPOINT: given 'ftp://c', expected http://host"),
        ({}, {"endpoint": "c:4318", "protocol": "http/protobuf"}, "endpoint: given 'c:4318', allowed over HTTP:"),
        ({}, {"endpoint": "http://c:4317/v1/logs"}, "a gRPC endpoint must not have a path"),
        ({}, {"client_key": "/k"}, "client.certificate: not set; a client certificate needs its key"),
        ({}, {"client_certificate": "/c"}, "client.key: not set"),
        (
            {LOGS + "HEADERS": "s3cret"},
            {},
            "LOGS_HEADERS: given a value that is not shown (header 1 is not name=value)",
        ),
    ],
)
def test_an_invalid_value_is_rejected_with_its_source(
    environment: dict[str, str], changes: dict[str, object], message: str
) -> None:
    """The message about an invalid value contains its key or variable and the allowed values, but no header values."""
    with pytest.raises(ConfigError) as caught:
        read(environment, **changes)
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("s3cret", "header 1 is not name=value"),
        ("a=b,c d=s3cret", "header 2 is not name=value"),
        ("a=s3cret%0Ab", "the value of a contains a character that is not allowed in headers"),
    ],
)
def test_invalid_headers_are_rejected_without_their_values(value: str, reason: str) -> None:
    """The message about invalid headers contains the key and the reason, but no header values."""
    with pytest.raises(ConfigError) as caught:
        build(Settings.of({"events.reporter.o.type": "otlp", "events.reporter.o.headers": value}))
    message = f"events.reporter.o.headers: given a value that is not shown ({reason}), expected name=value, several"
    assert message in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_line_break_at_the_end_of_a_header_is_removed() -> None:
    """A reference to a file often ends with a line break, which headers must not contain."""
    assert read({}, headers=header_values.parse("a=s3cret%0A")).headers == {"a": "s3cret"}


@pytest.mark.parametrize("value", ["ftp://c:1", "http://", "http://c:port", "http://user:s3cret@c:1", "http://c/?a=b"])
def test_an_invalid_endpoint_is_rejected_with_its_key(value: str) -> None:
    """An invalid endpoint is rejected at the application's start, with one message and the allowed values."""
    settings = {"events.reporter.o.type": "otlp", "events.reporter.o.endpoint": value}
    with pytest.raises(ConfigError, match=r"events\.reporter\.o\.endpoint: .*expected http://host:port or https"):
        build(Settings.of(settings))


def test_an_invalid_variable_is_reported_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message about an invalid variable contains the name of the reporter that reads the variable."""
    monkeypatch.setenv(ALL + "PROTOCOL", "http/json")
    with pytest.raises(ConfigError, match=r"events\.reporter\.o: .*OTEL_EXPORTER_OTLP_PROTOCOL: given 'http/json'"):
        build(Settings.of({"events.reporter.o.type": "otlp"}))


def test_repr_does_not_show_headers() -> None:
    """The repr of the config and of the target contains no header values."""
    headers = header_values.parse("authorization=s3cret")
    assert "s3cret" not in repr(OtlpConfig(headers=headers))
    assert "s3cret" not in repr(read({}, headers=headers))
