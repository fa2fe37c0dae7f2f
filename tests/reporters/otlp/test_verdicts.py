"""Tests of receivers that reject, throttle or fail the requests of the ``otlp`` reporter."""

from __future__ import annotations

import email.utils
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from fakes import event, eventually
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status as RpcStatus
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsPartialSuccess, ExportLogsServiceResponse

from reporters.otlp.sending import BOTH, GRPC, HTTP, config, delivery, put, send, verdict
from reporters.peers.otlp import (
    Collector,
    GrpcReceiver,
    HttpReceiver,
    Response,
    Status,
    grpc_ingress,
    grpc_receiver,
    http_receiver,
)
from spark_events import PermanentError, ThrottledError, TransientError
from spark_events.reporters.batch_progress import TooLargeError
from spark_events.reporters.otlp.otlp_verdicts import of_grpc
from spark_events.reporters.otlp.target import header_values

Codes = grpc.StatusCode


def details(pause: float | None = None, message: str = "no") -> RpcStatus:
    packed = []
    if pause is not None:
        info = AnyMessage()
        info.Pack(RetryInfo(retry_delay=Duration(seconds=int(pause), nanos=int(pause % 1 * 1e9))))
        packed.append(info)
    return RpcStatus(code=8, message=message, details=packed)


def with_retry_info(code: grpc.StatusCode, pause: float) -> Status:
    return Status(code, "no", (("grpc-status-details-bin", details(pause).SerializeToString()),))


def partial(rejected: int, message: str) -> ExportLogsServiceResponse:
    refused = ExportLogsPartialSuccess(rejected_log_records=rejected, error_message=message)
    return ExportLogsServiceResponse(partial_success=refused)


def retry_after(value: str, status: int = 503) -> Response:
    return Response(status, b"", (("retry-after", value),))


PROTOBUF = (("content-type", "application/x-protobuf"),)
TEXT = (("content-type", "text/plain; charset=utf-8"),)
#: Go's content type of a body that the server writes before it sets a type, as Loki does.
BYTES = (("content-type", "application/octet-stream"),)
HTML = (("content-type", "text/html; charset=utf-8"),)
UNAVAILABLE = [
    (Status(Codes.UNAVAILABLE), "UNAVAILABLE: no"),
    (Status(Codes.UNAUTHENTICATED, "who are you"), "UNAUTHENTICATED: who are you"),
    (Status(Codes.PERMISSION_DENIED), "PERMISSION_DENIED: no"),
    (Status(Codes.UNIMPLEMENTED), "UNIMPLEMENTED: no"),
    (Status(Codes.ABORTED), "ABORTED: no"),
    (Response(502, b"<html>", HTML), "HTTP 502"),
    (Response(503, details(message="busy").SerializeToString()), "HTTP 503: busy"),
    (Response(401, b"who are you", (("content-type", "text/plain"),)), "HTTP 401: who are you"),
    (Response(403, b'{"message":"not you"}', (("content-type", "application/json"),)), "HTTP 403: not you"),
    (Response(404, b"<html>", HTML), "HTTP 404"),
    (Response(500, b"<html>a proxy's page", HTML), "HTTP 500"),
    (Response(400, b"<html>a proxy's page", HTML), "HTTP 400"),
    (Response(400, b"Client sent an HTTP request to an HTTPS server.", ()), "HTTP 400: Client sent an HTTP request"),
    (Response(415, b"protobuf only", TEXT), "HTTP 415: protobuf only"),
    (Response(431, b"shorter headers", TEXT), "HTTP 431: shorter headers"),
    (Response(500, b"no ingester", TEXT), "HTTP 500: no ingester"),
    (
        Response(307, b"", (("location", "https://elsewhere/?token=secret"),)),
        "redirected to https://elsewhere/…; configure the new address",
    ),
    (Response(200, b"<html>welcome", HTML), "not an OTLP receiver: it answered with content type text/html"),
    (Response(200, b"x" * 5_000_000), "the HTTP 200 response is cut off, or has more than 4194304 bytes"),
]
REFUSED = [
    (Status(Codes.INVALID_ARGUMENT, "bad"), "INVALID_ARGUMENT: bad"),
    (Status(Codes.INTERNAL, "bad"), "INTERNAL: bad"),
    (Status(Codes.UNKNOWN, "bad"), "UNKNOWN: bad"),
    (Status(Codes.RESOURCE_EXHAUSTED, "grpc: received message larger than max (9 vs. 4)"), "larger than max"),
    (Response(400, details(message="bad").SerializeToString()), "HTTP 400: bad"),
    (Response(500, details(message="bad").SerializeToString()), "HTTP 500: bad"),
    (Response(400, b"too far behind", TEXT), "HTTP 400: too far behind"),
    (Response(400, details(message="too old").SerializeToString(), BYTES), "HTTP 400: too old"),
    (Response(400, b"\xff\xff", BYTES), "HTTP 400"),
    (Response(400, b"", ()), "HTTP 400"),
    (Response(422, b"no such field", TEXT), "HTTP 422: no such field"),
    (Response(413), "HTTP 413"),
]
THROTTLED = [
    (with_retry_info(Codes.RESOURCE_EXHAUSTED, 7.5), 7.5),
    (with_retry_info(Codes.UNAVAILABLE, 2), 2.0),
    (with_retry_info(Codes.UNAVAILABLE, 86_400), 300.0),
    (Status(Codes.RESOURCE_EXHAUSTED, "quota"), 0.0),
    (Response(429, b"", ()), 0.0),
    (retry_after("soon", 429), 0.0),
    (retry_after("7"), 7.0),
    (retry_after("7", 429), 7.0),
    (retry_after(email.utils.formatdate(time.time() + 100_000, usegmt=True), 429), 300.0),
    (retry_after(email.utils.formatdate(time.time() - 100_000, usegmt=True), 429), 0.0),
]


def serving(answer: object) -> tuple[str, Any]:
    """Return a protocol, and a receiver of this protocol that always returns the same response."""
    if isinstance(answer, Response):
        return HTTP, http_receiver(lambda _: answer)
    return GRPC, grpc_receiver(lambda _: answer)


@pytest.mark.parametrize(("answer", "message"), UNAVAILABLE)
def test_errors_not_about_the_events_are_retried(answer: object, message: str) -> None:
    """Errors caused by outages, credentials, paths and proxies are transient, because the events did not cause them."""
    protocol, receiver = serving(answer)
    with receiver as (_, endpoint), pytest.raises(TransientError) as caught:
        send(config(protocol, endpoint), [event(1), event(2)])
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("answer", "message"), REFUSED)
def test_errors_about_the_events_are_permanent(answer: object, message: str) -> None:
    """Errors about the events are permanent, as the specification requires, because a retry would fail again."""
    protocol, receiver = serving(answer)
    with receiver as (_, endpoint), pytest.raises(PermanentError, match="2 of 2 events") as caught:
        send(config(protocol, endpoint), [event(1), event(2)])
    assert message in str(caught.value)
    assert caught.value.rejected == 2


@pytest.mark.parametrize("status", [200, 308, 400, 401, 404, 415, 500, 503, 520])
def test_an_ingress_that_answers_for_a_grpc_receiver_is_retried(status: int) -> None:
    """An HTTP status without a gRPC status is transient, because the receiver has not rejected the events."""
    with grpc_ingress(status) as endpoint, pytest.raises(TransientError) as caught:
        send(config(GRPC, endpoint), [event(1), event(2)])
    assert f"status: {status}" in str(caught.value) or status == 200


def test_an_ingress_with_a_size_limit_gets_smaller_requests() -> None:
    """A 413 of an ingress before a gRPC receiver halves the batch; single events that are too large are rejected."""
    with grpc_ingress(413) as endpoint, pytest.raises(PermanentError, match=r"2 of 2 events: .* status: 413"):
        send(config(GRPC, endpoint), [event(1), event(2)])
    assert isinstance(of_grpc("UNKNOWN", "Received http2 header with status: 413", None), TooLargeError)


def test_an_ingress_that_throttles_is_retried() -> None:
    """A 429 of an ingress before a gRPC receiver is throttling."""
    with grpc_ingress(429) as endpoint, pytest.raises(ThrottledError):
        send(config(GRPC, endpoint), [event(1)])


@pytest.mark.parametrize(("answer", "pause"), THROTTLED)
def test_the_receiver_s_retry_delay_is_used(answer: object, pause: float) -> None:
    """The delay in RetryInfo or Retry-After, in seconds or as a date, is used up to five minutes."""
    protocol, receiver = serving(answer)
    with receiver as (_, endpoint), pytest.raises(ThrottledError) as caught:
        send(config(protocol, endpoint), [event(1)])
    assert caught.value.retry_after == pytest.approx(pause, abs=0.001)


@pytest.mark.parametrize("value", ["soon", "-1", "1.5", ""])
def test_an_invalid_retry_after_is_ignored(value: str) -> None:
    """If Retry-After is invalid, the reporter uses its own back-off."""
    with http_receiver(lambda _: retry_after(value)) as (_, endpoint), pytest.raises(TransientError):
        send(config(HTTP, endpoint), [event(1)])


@pytest.mark.parametrize("protocol", BOTH)
def test_the_dispatcher_waits_for_the_requested_delay(protocol: str) -> None:
    asked = {"left": 1}

    def answer(_: list[str]) -> object:
        if asked["left"]:
            asked["left"] -= 1
            return with_retry_info(Codes.UNAVAILABLE, 1) if protocol == GRPC else retry_after("1")
        return None

    make: Any = grpc_receiver if protocol == GRPC else http_receiver
    with make(answer) as (receiver, endpoint), delivery(config(protocol, endpoint)) as to:
        began = time.monotonic()
        put(to, [event(1)])
        assert to.wait_until_settled(20)
        assert time.monotonic() - began >= 1.0
        assert receiver.requests == [["1"], ["1"]]


@pytest.mark.parametrize("protocol", BOTH)
def test_a_receiver_that_throttles_at_the_end_gets_every_event(protocol: str) -> None:
    """At the application's end, throttling is no outage, even if the receiver requests no delay."""
    is_ending, left = threading.Event(), [3]

    def answer(_: list[str]) -> object:
        if is_ending.is_set():
            left[0] -= 1
        throttles = Status(Codes.RESOURCE_EXHAUSTED) if protocol == GRPC else Response(429)
        return None if left[0] < 0 else throttles

    make: Any = grpc_receiver if protocol == GRPC else http_receiver
    with make(answer) as (_, endpoint), delivery(config(protocol, endpoint)) as to:
        put(to, [event(1)])
        eventually(lambda: to.counters().failures >= 3, what="throttled attempts")
        is_ending.set()
        to.begin_drain()
        assert to.wait_until_settled(20)
        assert (to.counters().delivered, to.counters().dropped) == (1, {})


@pytest.mark.parametrize("protocol", BOTH)
def test_a_rejected_event_does_not_affect_others(protocol: str) -> None:
    """The reporter bisects a rejected batch: one event is rejected; all others are delivered once, in order."""

    def answer(bodies: list[str]) -> object:
        if "17" in bodies:
            return Status(Codes.INVALID_ARGUMENT) if protocol == GRPC else Response(400, b"", PROTOBUF)
        return None

    make: Any = grpc_receiver if protocol == GRPC else http_receiver
    with make(answer) as (receiver, endpoint):
        with delivery(config(protocol, endpoint), batch_size=512) as to:
            put(to, [event(number) for number in range(100)])
            assert to.wait_until_settled(20)
            counters = to.counters()
        assert receiver.accepted == [str(number) for number in range(100) if number != 17]
    assert (counters.delivered, counters.dropped) == (99, {"rejected": 1})


def test_a_receiver_that_rejects_everything_does_not_get_each_event_alone() -> None:
    """If a receiver rejects every part of a batch, the reporter stops before it sends single events."""
    with grpc_receiver(lambda _: Status(Codes.INVALID_ARGUMENT)) as (receiver, endpoint):
        with pytest.raises(PermanentError, match="512 of 512 events"):
            send(config(GRPC, endpoint), [event(number) for number in range(512)])
        assert len(receiver.requests) <= 62


@pytest.mark.parametrize("protocol", BOTH)
def test_a_partial_success_is_counted(protocol: str) -> None:
    """A partial success is not retried. Its rejected events do not count as delivered."""
    message = partial(3, "too old")
    answer: object = message if protocol == GRPC else Response(body=message.SerializeToString())
    make: Any = grpc_receiver if protocol == GRPC else http_receiver
    with make(lambda _: answer) as (receiver, endpoint):
        with delivery(config(protocol, endpoint)) as to:
            put(to, [event(number) for number in range(10)])
            assert to.wait_until_settled(20)
            counters = to.counters()
        assert len(receiver.requests) == 1
    assert (counters.delivered, counters.dropped) == (7, {"rejected": 3})


def test_a_partial_success_in_json_is_counted() -> None:
    """A partial success in JSON is recognized, because some receivers answer a protobuf request with JSON."""
    body = b'{"partialSuccess":{"rejectedLogRecords":"2","errorMessage":"too old"}}'
    json_answer = Response(body=body, headers=(("content-type", "application/json"),))
    expected = pytest.raises(PermanentError, match="2 of 3 events: too old")
    with http_receiver(lambda _: json_answer) as (_, endpoint), expected as caught:
        send(config(HTTP, endpoint), [event(number) for number in range(3)])
    assert caught.value.rejected == 2


def test_a_success_with_a_message_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A success with a message but without rejected events is logged, because the specification calls it a warning."""
    with grpc_receiver(lambda _: partial(0, "please upgrade")) as (_, endpoint):
        send(config(GRPC, endpoint), [event(1)])
    assert [record.getMessage() for record in caplog.records if "please upgrade" in record.getMessage()]


def test_a_receiver_with_a_smaller_limit_gets_smaller_requests(tmp_path: Path) -> None:
    """If a receiver has a limit of 1 MiB, the reporter halves requests of 4 MiB."""
    with (
        Collector(tmp_path, most_mib=1) as collector,
        delivery(config(GRPC, collector.endpoint(GRPC)), batch_size=64) as to,
    ):
        put(to, [event(number, text="x" * 30_000) for number in range(256)])
        assert to.wait_until_settled(20)
        assert collector.await_bodies(256) == [str(number) for number in range(256)]
        assert to.counters().lost == 0


def test_only_the_event_that_exceeds_the_limit_is_lost(tmp_path: Path) -> None:
    """Only the event that exceeds the limit is lost, and the error contains its size and the limit."""
    with Collector(tmp_path) as collector:
        settings = config(GRPC, collector.endpoint(GRPC), request_max_size=65_536, attribute_max_length=1 << 20)
        sent = [event(0), event(1, text="x" * 100_000), event(2)]
        with pytest.raises(PermanentError, match=r"1 of 3 events: the event has 100,\d\d\d bytes.*65,536"):
            send(settings, sent)
        assert collector.await_bodies(2) == ["0", "2"]


def test_a_long_text_is_truncated_with_a_mark(tmp_path: Path) -> None:
    """A long string, such as a huge stack trace, is truncated with a mark, and its event is delivered."""
    with Collector(tmp_path) as collector:
        send(config(GRPC, collector.endpoint(GRPC), attribute_max_length=100), [event(1, text="x" * 5_000)])
        collector.await_bodies(1)
        text = collector.received()[0].attributes["text"]
    assert len(text) == 100
    assert text.endswith("x… (cut, it had 5000 characters)")


@pytest.mark.parametrize("protocol", BOTH)
def test_a_collector_at_its_memory_limit_is_retried(tmp_path: Path, protocol: str) -> None:
    with Collector(tmp_path, is_short_of_memory=True) as collector:
        refusal = eventually(lambda: verdict(config(protocol, collector.endpoint(protocol))))
    assert isinstance(refusal, TransientError)
    assert "memory" in str(refusal)


@pytest.mark.parametrize("protocol", BOTH)
def test_events_wait_while_credentials_are_revoked(tmp_path: Path, protocol: str) -> None:
    """While the credentials are invalid, events are held; afterwards, they are delivered."""
    token = tmp_path / "token"
    token.write_text("abc")
    with Collector(tmp_path, token=token) as collector:
        endpoint = collector.endpoint(protocol)
        wrong = verdict(config(protocol, endpoint, headers=header_values.parse("authorization=Bearer%20wrong")))
        assert isinstance(wrong, TransientError)
        assert str(wrong).startswith("UNAUTHENTICATED" if protocol == GRPC else "HTTP 401")
        assert "wrong" not in str(wrong)
        with delivery(config(protocol, endpoint, headers=header_values.parse("authorization=Bearer%20abc"))) as to:
            put(to, [event(number) for number in range(10)])
            assert to.wait_until_settled(20)
            token.write_text("another")
            # Wait until the Collector has reloaded the file.
            eventually(
                lambda: verdict(config(protocol, endpoint, headers=header_values.parse("authorization=Bearer abc"))),
                what="the old token to be refused",
            )
            put(to, [event(number) for number in range(10, 30)])
            eventually(lambda: to.counters().failures >= 3, what="refused attempts")
            token.write_text("abc")
            assert to.wait_until_settled(20)
            # The received events also include the events of the single attempts above.
            eventually(lambda: "29" in [one.body for one in collector.received()], what="the last one")
            numbered = [int(one.body) for one in collector.received()]
            assert [number for number in numbered if number >= 10] == list(range(10, 30))
            assert to.counters().lost == 0


@pytest.mark.parametrize("protocol", BOTH)
def test_headers_are_in_every_request_and_never_logged(protocol: str) -> None:
    """Percent-encoded headers, such as a tenant or a token, are sent with every request and are never logged."""
    make: Any = grpc_receiver if protocol == GRPC else http_receiver
    settings = config(
        protocol, "http://x", headers=header_values.parse("X-Scope-OrgID=shop,authorization=Bearer%20s3cret%3D")
    )
    with make(lambda _: None) as (receiver, endpoint):
        send(config(protocol, endpoint, headers=settings.headers), [event(1)])
        seen = receiver.metadata if isinstance(receiver, GrpcReceiver) else receiver.headers
    assert (seen["x-scope-orgid"], seen["authorization"]) == ("shop", "Bearer s3cret=")
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    "answer",
    [
        Status(Codes.UNAUTHENTICATED, "no: Bearer s3cret="),
        Status(Codes.INVALID_ARGUMENT, "no: s3cret="),
        Response(401, b"no: Bearer s3cret=", (("content-type", "text/plain"),)),
        Response(400, details(message="no: s3cret%3D").SerializeToString()),
    ],
    ids=str,
)
def test_headers_that_a_receiver_quotes_are_not_logged(answer: object) -> None:
    """If a receiver's message quotes the headers of the request, the logged error does not contain them."""
    protocol, receiver = serving(answer)
    with receiver as (_, endpoint), pytest.raises(Exception, match=r"no: \*\*\*") as caught:
        send(config(protocol, endpoint, headers=header_values.parse("authorization=Bearer%20s3cret%3D")), [event(1)])
    assert "s3cret" not in str(caught.value)


def test_unusable_proxy_variables_have_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network in NO_PROXY, and a SOCKS proxy in ALL_PROXY, have no effect."""
    monkeypatch.setenv("NO_PROXY", "fd00::/8,127.0.0.1")
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    with http_receiver(lambda _: None) as (receiver, endpoint):
        send(config(HTTP, endpoint), [event(1)])
        assert receiver.accepted == ["1"]


@pytest.mark.parametrize(
    ("protocol", "endpoint"),
    [(GRPC, "http://127.0.0.1:9"), (HTTP, "http://127.0.0.1:9"), (GRPC, "http://no-such-host.invalid:4317")],
)
def test_an_unreachable_endpoint_is_reported(protocol: str, endpoint: str) -> None:
    """If no server listens at the endpoint, the error is transient and contains the system's reason."""
    refusal = verdict(config(protocol, endpoint))
    assert isinstance(refusal, TransientError)
    assert any(word in str(refusal) for word in ("refused", "failed", "resolution")), refusal


def test_the_port_of_the_other_protocol_is_reported(tmp_path: Path) -> None:
    """If gRPC connects to the HTTP port, or HTTP to the gRPC port, the attempt fails without hanging and is retried."""
    with Collector(tmp_path) as collector:
        crossed = [verdict(config(GRPC, collector.endpoint(HTTP))), verdict(config(HTTP, collector.endpoint(GRPC)))]
    assert [type(one) for one in crossed] == [TransientError, TransientError], crossed


def test_the_http_receiver_records_requests() -> None:
    with http_receiver(lambda _: None) as (receiver, endpoint):
        send(config(HTTP, endpoint), [event(1)])
        assert isinstance(receiver, HttpReceiver)
        assert (receiver.requests, receiver.paths) == ([["1"]], ["/v1/logs"])
