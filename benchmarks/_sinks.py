"""Receivers for benchmarks: minimal servers and the OpenTelemetry Collector, as processes on another core."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["COLLECTOR", "collector", "sink"]

COLLECTOR = Path(__file__).parents[1] / ".tools" / "otelcol"


def other_cores() -> set[int]:
    """Return all cores except core 0, on which the measured process runs. On a single-core machine, return core 0."""
    return set(range(os.cpu_count() or 1)) - {0} or {0}


def sink_program(protocol: str) -> None:
    """Run a receiver that discards all input, and print its port."""
    if protocol == "grpc":
        from concurrent.futures import ThreadPoolExecutor

        import grpc

        server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_receive_message_length", -1)])
        export = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
        service = "opentelemetry.proto.collector.logs.v1.LogsService"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": export}),))
        print(server.add_insecure_port("127.0.0.1:0"), flush=True)
        server.start()
        sys.stdin.read()
        return
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Sink(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Answers are small: Nagle's algorithm would delay each answer until the client acknowledges the previous one.
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    print(receiver.server_port, flush=True)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    sys.stdin.read()


@contextmanager
def sink(protocol: str) -> Iterator[str]:
    """Run ``sink_program`` in a process on another core, and yield its endpoint."""
    program = f"from benchmarks._sinks import sink_program; sink_program({protocol!r})"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        os.sched_setaffinity(process.pid, other_cores())
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


@contextmanager
def collector() -> Iterator[dict[str, str]]:
    """Run the OpenTelemetry Collector with output to /dev/null, and yield its endpoints by protocol."""

    def free() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    ports = {"grpc": free(), "http/protobuf": free()}
    config = {
        "receivers": {
            "otlp": {
                "protocols": {
                    "grpc": {"endpoint": f"127.0.0.1:{ports['grpc']}"},
                    "http": {"endpoint": f"127.0.0.1:{ports['http/protobuf']}"},
                }
            }
        },
        "exporters": {"file": {"path": os.devnull}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "error"}},
            "pipelines": {"logs": {"receivers": ["otlp"], "exporters": ["file"]}},
        },
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(config, file)
        file.flush()
        process = subprocess.Popen([COLLECTOR, "--config", f"file:{file.name}"])
        os.sched_setaffinity(process.pid, other_cores())
        try:
            for port in ports.values():
                _await(port)
            yield {protocol: f"http://127.0.0.1:{port}" for protocol, port in ports.items()}
        finally:
            process.terminate()
            process.wait()


def _await(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
