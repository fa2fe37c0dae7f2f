"""What an event costs each reporter, on one core, beside the bare client library doing the same.

The reporters are called as a worker calls them, with batches of 512 events of a usual size, from a process that is
pinned to one core. Baselines are what one would write without this project:

- ``otlp``: OpenTelemetry's own exporter, handed SDK log records that are made already;
- ``file``: ``json.dumps`` and ``file.write``, and msgspec alone.

Counted is processor time, of all threads of the process: that of a busy machine's clock says little. Each pair is
measured in turns, so that the machine is as busy for both; the ratio is the median of the rounds'.
The receivers are real servers of their own processes (gRPC's and Python's HTTP server, which only count); with
``make collector`` done, the OpenTelemetry Collector is measured, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from spark_events import Event, EventBuilder, Reporter
from spark_events.event import encode_event
from spark_events.reporters.file import FileConfig, FileReporter
from spark_events.reporters.otlp.config import OtlpConfig
from spark_events.reporters.otlp.reporter import OtlpReporter

_BATCH = 512
_ROUNDS = 7
_ROUND_SECONDS = 0.7
_COLLECTOR = Path(__file__).parents[1] / ".tools" / "otelcol"


def events() -> list[Event]:
    """Committed batches, as a stream reports them: 17 attributes."""
    attributes: dict[str, Any] = {
        "spark.app.id": "local-1795263269000",
        "spark.app.name": "clickstream",
        "spark.user": "ada",
        "spark.version": "4.3.0",
        "host.name": "driver-1",
        "spark.streaming.query.id": "8f7c1b9e-9a53-4a55-a1f5-0c6c3f6f4a0e",
        "spark.streaming.query.run_id": "b1f7f2a4-6b75-47cf-8b0e-5b1f3d6f3b52",
        "spark.streaming.query.name": "clicks-per-minute",
        "rows.input": 1200,
        "batches": 1,
        "duration.addBatch_ms": 30,
        "duration.triggerExecution_ms": 900,
        "watermark": "2026-01-31T10:00:20.000Z",
        "source.0.description": "KafkaV2[Subscribe[clicks]]",
        "source.0.rows": 1200,
        "state.rows": 41,
    }
    made = []
    for number in range(_BATCH):
        builder = EventBuilder("spark.streaming.query", "BatchCommitEvent")
        builder.set_body(f"Query 'clicks-per-minute' committed batch {number} in 900 ms: 1,200 rows")
        made.append(builder.set_attributes({**attributes, "spark.streaming.batch.id": number}).build())
    return made


Deliver = Callable[[], None]


class Rate(NamedTuple):
    """Events a second: of processor time, all threads together, and of the clock."""

    cpu: float
    clock: float


def rate(deliver: Deliver) -> Rate:
    """Of one round."""
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while (took := time.perf_counter() - start) < _ROUND_SECONDS:
        deliver()
        count += _BATCH
    return Rate(count / (time.process_time() - cpu), count / took)


def show(what: str, ours: Deliver, bare: dict[str, Deliver], clean: Callable[[], None] = lambda: None) -> None:
    """Prints the medians of both and of their ratio, measured in turns; ``clean`` is called between them."""

    def round_of(deliver: Deliver) -> Rate:
        deliver()
        measured = rate(deliver)
        clean()
        return measured

    for name, other in bare.items():
        pairs = [(round_of(ours), round_of(other)) for _ in range(_ROUNDS)]
        mine = Rate(*(statistics.median(values) for values in zip(*(one for one, _ in pairs), strict=True)))
        bare_cpu = statistics.median(one.cpu for _, one in pairs)
        ratio = statistics.median(one.cpu / other.cpu for one, other in pairs)
        print(
            f"{what}: {mine.cpu:,.0f} events/s of one core ({1e6 / mine.cpu:.1f} µs each), {mine.clock:,.0f} by the"
            f" clock; {name}: {bare_cpu:,.0f} ({1e6 / bare_cpu:.1f} µs); {ratio:.2f} times as fast",
            flush=True,
        )


@contextmanager
def delivering(reporter: Reporter, batch: Sequence[Event]) -> Iterator[Deliver]:
    """A reporter on a loop of its own, as in its worker's thread."""
    loop = asyncio.new_event_loop()

    async def call(method: Callable[[], Any]) -> None:
        waiting = method()
        if waiting is not None:
            await waiting

    loop.run_until_complete(call(reporter.open))
    try:
        yield lambda: loop.run_until_complete(call(lambda: reporter.report(batch)))
    finally:
        loop.run_until_complete(call(reporter.close))
        loop.close()


# --- file -----------------------------------------------------------------------------------------


def measure_file(batch: list[Event]) -> None:
    plain = [json.loads(encode_event(event)) for event in batch]
    with tempfile.TemporaryDirectory() as folder, open(Path(folder, "bare"), "ab", buffering=0) as bare:
        path = Path(folder, "events.jsonl")

        def with_json() -> None:
            bare.write("".join(f"{json.dumps(one)}\n" for one in plain).encode())

        def with_msgspec() -> None:
            bare.write(b"".join(encode_event(event) + b"\n" for event in batch))

        def clean() -> None:
            # What waits for the disk must not slow down who comes next.
            for one in Path(folder).iterdir():
                os.truncate(one, 0)

        for what, changes in (("file", {}), ("file, put aside at 64m", {"max_size": 64 << 20, "keep": 1})):
            with delivering(FileReporter(FileConfig(str(path), **changes)), batch) as ours:
                show(what, ours, {"json and write": with_json, "msgspec and write": with_msgspec}, clean)


# --- otlp -----------------------------------------------------------------------------------------


def exporter_of(protocol: str, endpoint: str, batch: list[Event]) -> tuple[Deliver, Callable[[], None]]:
    """OpenTelemetry's own exporter with the same records, and its end."""
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk._logs.export import LogRecordExportResult
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as Exporter
    else:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as Exporter

        endpoint += "/v1/logs"
    exporter = Exporter(endpoint=endpoint)
    resource, scope = Resource({"service.name": "clickstream"}), InstrumentationScope("spark.streaming.query")
    records = [
        ReadableLogRecord(
            LogRecord(
                timestamp=event.observed_ts_millis * 1_000_000,
                observed_timestamp=time.time_ns(),
                severity_text=event.severity.value,
                severity_number=SeverityNumber(event.severity.number),
                body=event.body,
                attributes={"event_id": event.event_id, "sequence": event.sequence, **event.attributes},
                event_name="spark.batch_commit",
            ),
            resource,
            scope,
        )
        for event in batch
    ]

    def deliver() -> None:
        assert exporter.export(records) is LogRecordExportResult.SUCCESS

    return deliver, exporter.shutdown


def sink_program(protocol: str) -> None:
    """A receiver that does nothing with what it gets; prints its port."""
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
        # An answer is small: Nagle's algorithm would hold it back until the client has acknowledged.
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
    """The same in a process of its own, on another core; its endpoint."""
    program = f"from benchmarks.reporters import sink_program; sink_program({protocol!r})"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        os.sched_setaffinity(process.pid, _other_cores())
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


@contextmanager
def collector() -> Iterator[dict[str, str]]:
    """The real one, which writes what it gets to /dev/null; its endpoints."""
    import socket

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
        process = subprocess.Popen([_COLLECTOR, "--config", f"file:{file.name}"])
        os.sched_setaffinity(process.pid, _other_cores())
        try:
            for port in ports.values():
                _await(port)
            yield {protocol: f"http://127.0.0.1:{port}" for protocol, port in ports.items()}
        finally:
            process.terminate()
            process.wait()


def _await(port: int) -> None:
    import socket

    deadline = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def measure_otlp(batch: list[Event]) -> None:
    with ExitStack() as stack:
        protocols = ("grpc", "http/protobuf")
        targets = [("a bare sink", {protocol: stack.enter_context(sink(protocol)) for protocol in protocols})]
        if _COLLECTOR.exists():
            targets.append(("the collector", stack.enter_context(collector())))
        else:
            print("the collector is not measured: `make collector` builds it")
        for to, endpoints in targets:
            for protocol in protocols:
                settings = OtlpConfig(protocol=protocol, endpoint=endpoints[protocol])
                bare, end = exporter_of(protocol, endpoints[protocol], batch)
                with delivering(OtlpReporter(settings), batch) as ours:
                    show(f"otlp by {protocol} to {to}", ours, {"the bare exporter": bare})
                end()


def _other_cores() -> set[int]:
    """All but the one that is measured on; that one, where there is no other."""
    return set(range(os.cpu_count() or 1)) - {0} or {0}


def run() -> None:
    """Prints events a second on one core, and how that compares; promised are 20,000 for otlp, 150,000 for file."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    try:
        batch = events()
        measure_file(batch)
        measure_otlp(batch)
    finally:
        os.sched_setaffinity(0, before)


if __name__ == "__main__":
    run()
