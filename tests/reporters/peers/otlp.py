"""OTLP receivers: an OpenTelemetry Collector and two servers with scripted responses; an ingress without a receiver."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from fakes import ROOT, eventually
from missing import missing
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (
    LogsServiceServicer,
    add_LogsServiceServicer_to_server,
)
from ports import free_port

BINARY = ROOT / ".tools" / "otelcol"


class Received(NamedTuple):
    """One LogRecord in the Collector's file, with its scope and resource."""

    resource: dict[str, Any]
    scope: dict[str, Any]
    record: dict[str, Any]

    @property
    def body(self) -> str:
        return str(self.record["body"]["stringValue"])

    @property
    def attributes(self) -> dict[str, Any]:
        return plain(self.record["attributes"])


def plain(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Convert attributes of OTLP JSON, in which integers are strings, to a dictionary."""
    found = {}
    for attribute in attributes:
        ((kind, value),) = attribute["value"].items()
        found[attribute["key"]] = int(value) if kind == "intValue" else value
    return found


class Collector:
    """Real OpenTelemetry Collector that writes accepted records to a file and can be restarted.

    Args:
        folder: folder for its configuration and its file.
        tls: ``tls`` settings for both protocols.
        token: file of the accepted bearer tokens; the Collector reloads this file after changes.
        most_mib: size limit of a gRPC message, in MiB.
        is_short_of_memory: whether the memory limiter rejects every request.
    """

    def __init__(
        self,
        folder: Path,
        *,
        tls: dict[str, str] | None = None,
        token: Path | None = None,
        most_mib: int = 4,
        is_short_of_memory: bool = False,
    ) -> None:
        if not BINARY.exists():
            missing(f"{BINARY} not found: run `make collector`")
        self.grpc_port, self.http_port = free_port(), free_port()
        self._log = folder / "collector.log"
        self._file = folder / "records.jsonl"
        self._config = folder / "collector.json"
        self._process: subprocess.Popen[bytes] | None = None
        common: dict[str, Any] = {**({"tls": tls} if tls else {})}
        if token is not None:
            common["auth"] = {"authenticator": "bearertokenauth"}
        grpc_settings = {"endpoint": f"127.0.0.1:{self.grpc_port}", "max_recv_msg_size_mib": most_mib, **common}
        http_settings = {"endpoint": f"127.0.0.1:{self.http_port}", **common}
        pipeline: dict[str, Any] = {"receivers": ["otlp"], "exporters": ["file"]}
        # If rotation is configured, the Collector appends without a buffer. The tests never reach the rotation size.
        # Otherwise, the Collector flushes its buffer both by a timer and at shutdown, without a common lock, which
        # corrupts lines.
        written = {"path": str(self._file), "rotation": {"max_megabytes": 100}}
        config: dict[str, Any] = {
            "receivers": {"otlp": {"protocols": {"grpc": grpc_settings, "http": http_settings}}},
            "exporters": {"file": written},
            "service": {"pipelines": {"logs": pipeline, "metrics": pipeline}},
        }
        if token is not None:
            config["extensions"] = {"bearertokenauth": {"scheme": "Bearer", "filename": str(token)}}
            config["service"]["extensions"] = ["bearertokenauth"]
        if is_short_of_memory:
            config["processors"] = {"memory_limiter": {"check_interval": "10ms", "limit_mib": 1}}
            pipeline["processors"] = ["memory_limiter"]
        # The Collector reads YAML, and every JSON document is valid YAML.
        self._config.write_text(json.dumps(config))

    def __enter__(self) -> Collector:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def endpoint(self, protocol: str, scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.grpc_port if protocol == 'grpc' else self.http_port}"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([BINARY, "--config", f"file:{self._config}"], stdout=log, stderr=log)
        for port in (self.grpc_port, self.http_port):
            eventually(partial(self._answers, port), what=f"the collector at {port}")

    def _answers(self, port: int) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    def stop(self) -> None:
        """Stop the Collector gracefully. Afterwards, its file contains all accepted records."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(20)
            self._process = None

    def received(self) -> list[Received]:
        """Return the records that the Collector has written, in order."""
        return [
            Received(resource["resource"], scope["scope"], record)
            for line in self._lines()
            for resource in line.get("resourceLogs", ())
            for scope in resource["scopeLogs"]
            for record in scope["logRecords"]
        ]

    def metrics(self) -> list[Received]:
        """Return the metrics that the Collector has written, in order."""
        return [
            Received(resource["resource"], scope["scope"], metric)
            for line in self._lines()
            for resource in line.get("resourceMetrics", ())
            for scope in resource["scopeMetrics"]
            for metric in scope["metrics"]
        ]

    def _lines(self) -> list[dict[str, Any]]:
        lines = self._file.read_bytes().split(b"\n")[:-1] if self._file.exists() else []
        return [json.loads(line) for line in lines]

    def await_bodies(self, count: int) -> list[str]:
        """Wait for ``count`` records and return their bodies in order."""
        eventually(lambda: len(self.received()) >= count, what=f"{count} records")
        return [one.body for one in self.received()]


#: Function that receives the bodies of the records in a request, and returns the response.
Answer = Callable[[list[str]], Any]


def bodies_of(request: ExportLogsServiceRequest) -> list[str]:
    return [
        record.body.string_value
        for resource in request.resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


class Status(NamedTuple):
    """Error response of a gRPC receiver."""

    code: grpc.StatusCode
    details: str = "no"
    metadata: tuple[tuple[str, bytes], ...] = ()


class GrpcReceiver(LogsServiceServicer):
    """gRPC server that answers with the result of a function, and stores the accepted records."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[list[str]] = []
        self.accepted: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.times: list[float] = []

    def Export(self, request: ExportLogsServiceRequest, context: grpc.ServicerContext) -> ExportLogsServiceResponse:
        self.times.append(time.monotonic())
        bodies = bodies_of(request)
        self.requests.append(bodies)
        self.metadata = dict(context.invocation_metadata())
        answer = self.answer(bodies)
        if isinstance(answer, Status):
            context.set_trailing_metadata(answer.metadata)
            context.abort(answer.code, answer.details)
        self.accepted += bodies
        return answer or ExportLogsServiceResponse()


@contextlib.contextmanager
def grpc_receiver(answer: Answer) -> Iterator[tuple[GrpcReceiver, str]]:
    """Run a gRPC receiver, and yield the receiver and its endpoint."""
    receiver = GrpcReceiver(answer)
    server = grpc.server(ThreadPoolExecutor(4))
    add_LogsServiceServicer_to_server(receiver, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield receiver, f"http://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


class Response(NamedTuple):
    """Response of an HTTP receiver."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/x-protobuf"),)


class HttpReceiver(http.server.ThreadingHTTPServer):
    """HTTP server that answers with the result of a function, and stores the records of successful requests."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[list[str]] = []
        self.accepted: list[str] = []
        self.headers: dict[str, str] = {}
        self.paths: list[str] = []


class _Handler(http.server.BaseHTTPRequestHandler):
    server: HttpReceiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        bodies = bodies_of(ExportLogsServiceRequest.FromString(data))
        self.server.requests.append(bodies)
        self.server.headers = {key.lower(): value for key, value in self.headers.items()}
        self.server.paths.append(self.path)
        answer = self.server.answer(bodies) or Response()
        if answer.status < 300:
            self.server.accepted += bodies
        self.send_response(answer.status)
        for key, value in answer.headers:
            self.send_header(key, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Suppress the access log of the server."""


@contextlib.contextmanager
def http_receiver(answer: Answer) -> Iterator[tuple[HttpReceiver, str]]:
    """Run an HTTP receiver, and yield the receiver and its endpoint."""
    receiver = HttpReceiver(answer)
    thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver, f"http://127.0.0.1:{receiver.server_port}"
    finally:
        receiver.shutdown()
        thread.join()
        receiver.server_close()


class _Ingress(socketserver.StreamRequestHandler):
    """HTTP/2 connection whose requests get an HTTP status and no gRPC status."""

    status: str

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            self.rfile.read(len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
            self._send(_SETTINGS, 0)
            while head := self.rfile.read(9):
                kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
                content = self.rfile.read(int.from_bytes(head[:3], "big"))
                if kind == _SETTINGS and not flags & _ACK:
                    self._send(_SETTINGS, 0, _ACK)
                elif kind == _PING and not flags & _ACK:
                    self._send(_PING, 0, _ACK, content)
                elif flags & _END_STREAM and kind in (_DATA, _HEADERS):
                    # HPACK: literal value for the static table's name 8, which is ":status".
                    block = bytes([8, len(self.status)]) + self.status.encode()
                    self._send(_HEADERS, stream, _END_STREAM | _END_HEADERS, block)

    def _send(self, kind: int, stream: int, flags: int = 0, content: bytes = b"") -> None:
        self.wfile.write(len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content)


#: Frame types and flags of HTTP/2.
_DATA, _HEADERS, _SETTINGS, _PING = 0, 1, 4, 6
_ACK, _END_STREAM, _END_HEADERS = 1, 1, 4


@contextlib.contextmanager
def grpc_ingress(status: int) -> Iterator[str]:
    """Run an ingress that answers each gRPC call with an HTTP status, and yield its endpoint."""
    handler = type("_Ingress", (_Ingress,), {"status": str(status)})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
