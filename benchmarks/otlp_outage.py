"""Compare OTLP events lost in an outage, and shutdown time, with OpenTelemetry's batch processor.

The receiver is a real gRPC server. Each side sends to its own receiver for 5 s. Then all receivers close, so that
connections are refused. Afterwards, the receivers are open for 10 s, and each side shuts down. The receivers count the
distinct events that arrive. In a second part, the receiver accepts connections and never answers, and each side shuts
down after 100 events: the time is measured from the shutdown call to the exit of the process. All sides run at the same
time with their default settings; ``at-least-once`` adds the spool, whose remaining events would be delivered by the
next application.

Environment: ``OUTAGE_SECONDS`` (30), ``OUTAGE_RATES`` (50,200): events/s, ``OUTAGE_ROUNDS`` (3). A round takes one
minute, and up to another minute for the shutdown. Results: build/bench/otlp_outage.md and .json.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any

from benchmarks._peers import write

__all__ = ["run"]

_SECONDS = float(os.environ.get("OUTAGE_SECONDS", "30"))
_RATES = [float(rate) for rate in os.environ.get("OUTAGE_RATES", "50,200").split(",")]
_ROUNDS = int(os.environ.get("OUTAGE_ROUNDS", "3"))
_BEFORE, _AFTER = 5.0, 10.0
_SHUTDOWN_EVENTS = 100
#: Time limit of a shutdown. If a process is killed at the limit, the limit is used as its time.
_LIMIT = 120.0
_SDK = "SDK's BatchLogRecordProcessor"
_SIDES = {"spark-events": "best-effort", "spark-events, at-least-once": "at-least-once", _SDK: ""}


class _Receiver:
    """gRPC server that records the bodies of all events. It can be closed, and opened again on the same port."""

    def __init__(self) -> None:
        self.bodies: set[str] = set()
        self._server: Any = None
        self._port = 0
        self.open()
        self.endpoint = f"http://127.0.0.1:{self._port}"

    def open(self) -> None:
        import grpc
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc

        bodies = self.bodies

        class Service(logs_service_pb2_grpc.LogsServiceServicer):
            def Export(self, request: Any, context: object) -> object:
                for resource in request.resource_logs:
                    for scope in resource.scope_logs:
                        bodies.update(record.body.string_value for record in scope.log_records)
                return logs_service_pb2.ExportLogsServiceResponse()

        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Service(), self._server)  # type: ignore[no-untyped-call]
        self._port = self._server.add_insecure_port(f"127.0.0.1:{self._port}")
        self._server.start()

    def close(self) -> None:
        self._server.stop(0).wait()


def _ours(endpoint: str, guarantee: str, folder: str) -> tuple[Callable[[int], None], Callable[[], object]]:
    from spark_events.config import Settings
    from spark_events.dispatch.entries import Entry
    from spark_events.dispatch.pipeline import build
    from spark_events.event import EventBuilder

    otlp = {"type": "otlp", "endpoint": endpoint, "delivery.guarantee": guarantee}
    if guarantee == "at-least-once":
        otlp["spool.directory"] = folder
    settings = Settings.of({f"events.reporter.o.{key}": value for key, value in otlp.items()})
    pipeline = build(settings, application="outage")
    pipeline.dispatcher.start()

    def emit(number: int) -> None:
        event = EventBuilder("spark.streaming.query", "BatchCommitEvent").set_body(str(number)).build()
        pipeline.dispatcher.dispatch([Entry(number + 1, event)], number + 1)

    return emit, lambda: pipeline.dispatcher.stop(time.monotonic() + 10)  # default of spark.events.shutdown.timeout


def _theirs(endpoint: str) -> tuple[Callable[[int], None], Callable[[], object]]:
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint, insecure=True)))
    logger = provider.get_logger("spark.streaming.query")

    def emit(number: int) -> None:
        logger.emit(LogRecord(timestamp=time.time_ns(), severity_number=SeverityNumber.INFO, body=str(number)))

    return emit, provider.shutdown


def _send(side: str, endpoint: str, count: int, rate: float) -> None:
    """Send events at a fixed rate, print the time, and shut down."""
    with tempfile.TemporaryDirectory() as folder:
        guarantee = _SIDES[side]
        emit, shutdown = _ours(endpoint, guarantee, folder) if guarantee else _theirs(endpoint)
        began = time.monotonic()
        for number in range(count):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            emit(number)
        print(time.time(), flush=True)
        shutdown()


def _start(side: str, endpoint: str, count: int, rate: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.otlp_outage", side, endpoint, str(count), str(rate)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _stopped(processes: Mapping[Any, subprocess.Popen[str]]) -> dict[Any, float]:
    """Wait for all processes. Return the seconds from each shutdown call to the process's exit, at most the limit."""

    def stopped(process: subprocess.Popen[str]) -> float:
        assert process.stdout is not None
        called = float(process.stdout.readline())
        with contextlib.suppress(subprocess.TimeoutExpired):
            if process.wait(_LIMIT):
                raise RuntimeError(f"{process.args!r} ended with code {process.returncode}")
        seconds = time.time() - called
        process.kill()
        process.communicate()
        return seconds

    with futures.ThreadPoolExecutor(len(processes)) as pool:
        return dict(zip(processes, pool.map(stopped, processes.values()), strict=True))


def _outage() -> dict[tuple[str, float], tuple[int, int]]:
    """Return the number of sent events and of events that did not arrive, by side and rate."""
    receivers = {(side, rate): _Receiver() for rate in _RATES for side in _SIDES}
    counts = {rate: int(rate * (_BEFORE + _SECONDS + _AFTER)) for rate in _RATES}
    processes = {
        (side, rate): _start(side, receiver.endpoint, counts[rate], rate)
        for (side, rate), receiver in receivers.items()
    }
    for receiver in receivers.values():
        while not receiver.bodies:  # Start the outage when every side is connected.
            time.sleep(0.05)
    time.sleep(0.5)
    for receiver in receivers.values():
        receiver.close()
    time.sleep(_SECONDS)
    for receiver in receivers.values():
        receiver.open()
    _stopped(processes)
    for receiver in receivers.values():
        receiver.close()
    return {key: (counts[key[1]], counts[key[1]] - len(receiver.bodies)) for key, receiver in receivers.items()}


def _shutdown() -> dict[str, float]:
    """Return the seconds to shut down with a receiver that never answers, by side."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        return _stopped({side: _start(side, endpoint, _SHUTDOWN_EVENTS, _SHUTDOWN_EVENTS) for side in _SIDES})


def _table(
    lost: Mapping[tuple[str, float], Sequence[tuple[int, int]]], took: Mapping[str, Sequence[float]]
) -> list[str]:
    """Return a table of medians: lost events by rate, shutdown in seconds and relative to the SDK."""
    heads = [f"lost at {rate:g}/s" for rate in _RATES]
    lines = ["| | " + " | ".join(heads) + " | shutdown | ratio to the SDK |", "|---" * (len(heads) + 3) + "|"]
    for side in _SIDES:
        cells = []
        for rate in _RATES:
            runs = lost[side, rate]
            cells.append(f"{statistics.median(one for _, one in runs):,.0f} of {runs[0][0]:,}")
        ratio = statistics.median(ours / sdk for ours, sdk in zip(took[side], took[_SDK], strict=True))
        limit = "at least " if max(took[side]) >= _LIMIT else ""
        lines.append(f"| {side} | {' | '.join(cells)} | {limit}{statistics.median(took[side]):.1f} s | {ratio:.2f} |")
    return lines


def run() -> None:
    """Write a table of lost events and of the time to shut down."""
    lost: dict[tuple[str, float], list[tuple[int, int]]] = {(side, rate): [] for side in _SIDES for rate in _RATES}
    took: dict[str, list[float]] = {side: [] for side in _SIDES}
    load = os.getloadavg()[0]
    for _ in range(_ROUNDS):
        for key, found in _outage().items():
            lost[key].append(found)
            print(f"{key[0]}, {key[1]:g}/s: lost {found[1]:,} of {found[0]:,}", flush=True)
        for side, seconds in _shutdown().items():
            took[side].append(seconds)
            print(f"{side}: shut down in {seconds:.1f} s", flush=True)
    head = f"Outage of {_SECONDS:g} s. Medians of {_ROUNDS} rounds; load {load:.1f} at the start."
    data = {"lost": {f"{side}, {rate:g}/s": runs for (side, rate), runs in lost.items()}, "shutdown": took}
    write("otlp_outage", [head, "", *_table(lost, took)], data)


if __name__ == "__main__":
    _send(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
