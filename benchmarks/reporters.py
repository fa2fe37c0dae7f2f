"""Compare the cost of an event in the file and otlp reporters with the bare client library, on one core.

The benchmark calls each reporter as its thread does, with batches of 512 events of typical size, in a process
that is pinned to one core. Baselines:

- ``otlp``: OpenTelemetry's exporter with SDK log records that are built in advance;
- ``file``: ``json.dumps`` and ``file.write``, and msgspec alone.

The ratio compares processor time of all threads of the process, because wall-clock time depends on other load. Both
sides of a pair run alternately, and the result is the median ratio of the rounds. The receivers are real gRPC and HTTP
servers in their own processes, which only count events. After ``make collector``, the OpenTelemetry Collector is
measured, too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._sinks import COLLECTOR, collector, sink
from spark_events import Event, EventBuilder, Reporter
from spark_events.event import encode_event
from spark_events.reporters.file import FileConfig, FileReporter
from spark_events.reporters.otlp.otlp_reporter import OtlpReporter
from spark_events.reporters.otlp.target import OtlpConfig

_BATCH = 512
_ROUNDS = 7
_ROUND_SECONDS = 0.7


def events() -> list[Event]:
    """Build events of committed micro-batches with 17 attributes each."""
    attributes: dict[str, Any] = {
        "spark.app.id": "local-1795263269000",
        "spark.app.name": "clickstream",
        "spark.user": "ada",
        "spark.version": "4.3.0",
        "host.name": "driver-1",
        "spark.streaming.query.id": "8f7c1b9e-9a53-4a55-a1f5-0c6c3f6f4a0e",
        "spark.streaming.query.run_id": "b1f7f2a4-6b75-47cf-8b0e-5b1f3d6f3b52",
        "spark.streaming.query.name": "clicks-per-minute",
        "spark.batch.rows_input": 1200,
        "spark.batch.count": 1,
        "spark.batch.duration.add_batch_ms": 30,
        "spark.batch.duration.trigger_execution_ms": 900,
        "spark.watermark.time": "2026-01-31T10:00:20.000Z",
        "spark.batch.sources": '[{"description":"KafkaV2[Subscribe[clicks]]","rows":1200}]',
        "spark.state.rows_total": 41,
    }
    made = []
    for number in range(_BATCH):
        builder = EventBuilder("spark.streaming.query", "BatchCommitEvent")
        builder.set_body(f"Query 'clicks-per-minute' committed batch {number} in 900 ms: 1,200 rows")
        made.append(builder.set_attributes({**attributes, "spark.batch.id": number}).build())
    return made


Deliver = Callable[[], None]


class Rate(NamedTuple):
    """Events per second of processor time (all threads) and of wall-clock time."""

    cpu: float
    clock: float


def rate(deliver: Deliver) -> Rate:
    """Measure one round."""
    count, start, cpu = 0, time.perf_counter(), time.process_time()
    while (took := time.perf_counter() - start) < _ROUND_SECONDS:
        deliver()
        count += _BATCH
    return Rate(count / (time.process_time() - cpu), count / took)


def show(what: str, ours: Deliver, bare: dict[str, Deliver], clean: Callable[[], None] = lambda: None) -> None:
    """Measure both sides in alternating rounds; print medians and median ratio. Call ``clean`` after each round."""

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
            f"{what}: {mine.cpu:,.0f} events/s of one core ({1e6 / mine.cpu:.1f} µs each), {mine.clock:,.0f} of"
            f" wall-clock time; {name}: {bare_cpu:,.0f} ({1e6 / bare_cpu:.1f} µs); {ratio:.2f} times as fast",
            flush=True,
        )


@contextmanager
def delivering(reporter: Reporter, batch: Sequence[Event]) -> Iterator[Deliver]:
    """Open a reporter on its own event loop, as its thread does."""
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
            # Discard data that is not yet on disk. Otherwise, writing this data would slow down the next round.
            for one in Path(folder).iterdir():
                os.truncate(one, 0)

        endless = FileConfig(str(path))
        put_aside = dataclasses.replace(endless, max_size=64 << 20, keep=1)
        for what, config in (("file", endless), ("file, put aside at 64m", put_aside)):
            with delivering(FileReporter(config), batch) as ours:
                show(what, ours, {"json and write": with_json, "msgspec and write": with_msgspec}, clean)


# --- otlp -----------------------------------------------------------------------------------------


def exporter_of(protocol: str, endpoint: str, batch: list[Event]) -> tuple[Deliver, Callable[[], None]]:
    """Return two functions: one delivers the same records with OpenTelemetry's exporter, one shuts it down."""
    from opentelemetry._logs import LogRecord, SeverityNumber
    from opentelemetry.sdk._logs import ReadableLogRecord
    from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    exporter: LogRecordExporter
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as ByGrpc

        exporter = ByGrpc(endpoint=endpoint)
    else:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as ByHttp

        exporter = ByHttp(endpoint=endpoint + "/v1/logs")
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


def measure_otlp(batch: list[Event]) -> None:
    with ExitStack() as stack:
        protocols = ("grpc", "http/protobuf")
        targets = [("a bare sink", {protocol: stack.enter_context(sink(protocol)) for protocol in protocols})]
        if COLLECTOR.exists():
            targets.append(("the collector", stack.enter_context(collector())))
        else:
            print("OpenTelemetry Collector not found, skipping it; run `make collector` to build it")
        for to, endpoints in targets:
            for protocol in protocols:
                settings = OtlpConfig(protocol=protocol, endpoint=endpoints[protocol])
                bare, end = exporter_of(protocol, endpoints[protocol], batch)
                with delivering(OtlpReporter(settings), batch) as ours:
                    show(f"otlp by {protocol} to {to}", ours, {"the bare exporter": bare})
                end()


def run() -> None:
    """Print events per second on one core and the ratios. The targets are 20,000 for otlp and 150,000 for file."""
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
