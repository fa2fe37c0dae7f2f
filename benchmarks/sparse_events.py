"""Compare the CPU cost of infrequent OTLP events with that of OpenTelemetry's batch processor.

Both sides run alternately in separate processes, with their defaults and the same receiver. Processor time is read when
all events are delivered, so the last batch counts. The SDK's processor sends a batch every 5 s. One call costs 1 ms
(gRPC) to 2 ms (httpx) of processor time, so a linger time of 200 ms mostly measures the cost of the calls.

Environment: ``SPARSE_ROUNDS`` (5), ``SPARSE_SECONDS`` (10), ``SPARSE_RATE`` (50).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent import futures

__all__ = ["run"]

_ROUNDS = int(os.environ.get("SPARSE_ROUNDS", "5"))
_SECONDS = float(os.environ.get("SPARSE_SECONDS", "10"))
_RATE = float(os.environ.get("SPARSE_RATE", "50"))
_WARM_UP = 50
_BODY = "Query 'clicks-per-minute' committed batch 41 in 1017 ms: 6 rows, watermark 2026-01-31T10:00:20Z"
_ATTRIBUTES: dict[str, str | int] = {
    **{f"spark.batch.duration.phase{n}_ms": 17 * n for n in range(8)},
    **{f"spark.batch.offset_{end}": '{"clicks":{"0":1204031,"1":1203310}}' for end in ("from", "to")},
    "spark.app.name": "clickstream",
    "spark.streaming.query.id": "6f595dfe-64f8-4732-9d1e-01d23ed89ab7",
    "spark.batch.rows_input": 6,
}


def _ours(endpoint: str, count: int, linger: str) -> float:
    from spark_events.config import Settings
    from spark_events.dispatch.entries import Entry
    from spark_events.dispatch.pipeline import build
    from spark_events.event import EventBuilder

    otlp = {"type": "otlp", "endpoint": endpoint, "batch.linger": linger}
    if endpoint.endswith("/v1/logs"):
        otlp["protocol"] = "http/protobuf"
    settings = {f"events.reporter.o.{key}": value for key, value in otlp.items() if value}
    dispatcher = build(Settings.of({"events.dispatcher.type": "async-queued", **settings})).dispatcher
    dispatcher.start()

    def emit(number: int) -> None:
        commit = EventBuilder("spark.streaming.query", "BatchCommitEvent").set_body(_BODY).set_attributes(_ATTRIBUTES)
        dispatcher.dispatch([Entry(number + 1, commit.build())], number + 1)

    def flush() -> None:
        assert dispatcher.drain(time.monotonic() + 20) == ["o"]

    return _measured(emit, flush, count)


def _theirs(endpoint: str, count: int, _: str) -> float:
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcExporter
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    is_http = endpoint.endswith("/v1/logs")
    exporter = HttpExporter(endpoint) if is_http else GrpcExporter(endpoint, insecure=True)
    provider = LoggerProvider()
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = provider.get_logger("spark.streaming.query")

    def emit(_: int) -> None:
        logger.emit(
            LogRecord(
                timestamp=time.time_ns(),
                severity_number=SeverityNumber.INFO,
                body=_BODY,
                attributes={**_ATTRIBUTES},
                event_name="BatchCommitEvent",
            )
        )

    return _measured(emit, provider.force_flush, count)


def _measured(emit: Callable[[int], None], flush: Callable[[], object], count: int) -> float:
    """Return the microseconds of processor time per event, without the connection and the first batches."""
    for number in range(_WARM_UP):
        emit(number)
    flush()
    began, before = time.monotonic(), time.process_time()
    for number in range(count):
        time.sleep(max(0.0, began + number / _RATE - time.monotonic()))
        emit(_WARM_UP + number)
    flush()
    return (time.process_time() - before) / count * 1e6


_HTTP_SINK = """
import asyncio
async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            length = next(int(l[15:]) for l in head.split(b"\\r\\n") if l.lower().startswith(b"content-length:"))
            await reader.readexactly(length)
            kind = b"Content-Type: application/x-protobuf"
            writer.write(b"HTTP/1.1 200 OK\\r\\n" + kind + b"\\r\\nContent-Length: 0\\r\\n\\r\\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
_SIDES = {"ours": (_ours, ""), "linger-1s": (_ours, "1s"), "without-linger": (_ours, "0ms"), "sdk": (_theirs, "")}


def _receiver() -> tuple[object, str]:
    """Start a receiver in this process that accepts all requests."""
    import grpc
    from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc

    class Service(logs_service_pb2_grpc.LogsServiceServicer):
        def Export(self, request: object, context: object) -> object:
            return logs_service_pb2.ExportLogsServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, f"http://127.0.0.1:{port}"


def run() -> None:
    """Print the processor time per event for the default linger time, a longer one and none, and for the SDK."""
    server, endpoint = _receiver()
    print(f"{_RATE:g} events/s over OTLP for {_SECONDS:g} s, {_ROUNDS} rounds in turns")
    _compare("gRPC", endpoint)
    server.stop(0)  # type: ignore[attr-defined]
    with subprocess.Popen([sys.executable, "-c", _HTTP_SINK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            _compare("HTTP", f"http://127.0.0.1:{int(process.stdout.readline())}/v1/logs")
        finally:
            process.kill()


def _compare(protocol: str, endpoint: str) -> None:
    costs: dict[str, list[float]] = {side: [] for side in _SIDES}
    for _ in range(_ROUNDS):
        for side, of_side in costs.items():
            command = [sys.executable, "-m", "benchmarks.sparse_events", side, endpoint]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS + 60)
            of_side.append(float(done.stdout))
    medians = {side: statistics.median(found) for side, found in costs.items()}
    for side, median in medians.items():
        print(
            f"{protocol}, {side}: {median:.0f} µs of processor an event, {median / medians['sdk']:.2f} times the SDK's"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure, how = _SIDES[sys.argv[1]]
        print(measure(sys.argv[2], int(_RATE * _SECONDS), how))
    else:
        run()
