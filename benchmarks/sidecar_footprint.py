"""Measure the resources of the sidecar: memory, time until it is ready, and processor time while it is idle.

The sidecar has a ``file`` and a ``log`` reporter and receives a driver's messages. Memory is the resident size
including the interpreter's shared pages. The baseline is a Python process with an idle thread and an event loop.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import psutil

from spark_events.records.types import PROTOCOL

_STARTS = 5
_EVENTS = 20_000
_QUERIES, _BATCHES = 200, 50
_IDLE_SECONDS = float(os.environ.get("SIDECAR_IDLE_SECONDS", "30"))
_SIDECAR = "from spark_events.sidecar.main import main; main()"
_BARE = """
import asyncio, json, sys, threading
print(json.dumps({"kind": "ready"}), flush=True)
threading.Thread(target=lambda: asyncio.new_event_loop().run_forever(), daemon=True).start()
while sys.stdin.buffer.readline():
    pass
"""


class _Process:
    """Python process at the other end of the pipe: the sidecar or the baseline."""

    def __init__(self, program: str, first: bytes, errors: Path) -> None:
        started = time.monotonic()
        with errors.open("ab") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        self.send([first])
        self.await_answer("ready")
        self.ready_after = time.monotonic() - started
        self._seen = psutil.Process(self._process.pid)

    def send(self, lines: Sequence[bytes]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"".join(line + b"\n" for line in lines))
        self._process.stdin.flush()

    def await_answer(self, kind: str, **fields: Any) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = msgspec.json.decode(line)
            if answer["kind"] == kind and answer.items() >= fields.items():
                return
        raise AssertionError(f"the process ended without sending {kind} {fields}")

    @property
    def megabytes(self) -> float:
        return float(self._seen.memory_info().rss) / 1e6

    @property
    def processor_seconds(self) -> float:
        times = self._seen.cpu_times()
        return float(times.user + times.system)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def _hello(folder: Path, more: dict[str, str] | None = None) -> bytes:
    settings = {
        **(more or {}),
        "events.dispatcher.type": "async-queued",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(folder / "events.jsonl"),
        "events.reporter.console.type": "log",
    }
    given = [{"key": key, "value": value, "origin": "benchmark"} for key, value in settings.items()]
    return msgspec.json.encode({"kind": "hello", "protocol": PROTOCOL, "settings": given})


def _jobs(count: int) -> Iterator[bytes]:
    for number in range(count):
        kind = ("job_start", "job_end")[number % 2]
        yield msgspec.json.encode({"kind": kind, "seq": number + 1, "at": 1, "job_id": number // 2, "time": 1})


def _many_queries() -> Iterator[bytes]:
    """Yield the records of 200 queries with two sources each. Each query commits 50 batches."""
    now = time.time_ns() // 1_000_000
    stamp = datetime.fromtimestamp(now / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    start = {"app_id": "app-1", "app_name": "many", "time": now, "user": "u", "spark_version": "4.0.0", "host": "h"}
    records: list[dict[str, Any]] = [{"kind": "application_start", **start}]
    names = [{"id": f"q{number}", "name": f"query-{number}"} for number in range(_QUERIES)]
    records += [{"kind": "query_started", "run_id": f"r{q['id']}", "timestamp": stamp, **q} for q in names]
    source = {"description": "KafkaV2[Subscribe[clicks]]", "numInputRows": 5, "inputRowsPerSecond": 5.0}
    offsets = {name: {"clicks": {"0": 10, "1": 12}} for name in ("startOffset", "endOffset", "latestOffset")}
    for batch in range(_BATCHES):
        for query in names:
            progress = {
                **query,
                "runId": f"r{query['id']}",
                "timestamp": stamp,
                "batchId": batch,
                "numInputRows": 10,
                "durationMs": {"addBatch": 30, "triggerExecution": 100},
                "eventTime": {"watermark": stamp},
                "stateOperators": [],
                "sources": [{**source, **offsets}] * 2,
                "sink": {"description": "noop", "numOutputRows": -1},
            }
            records.append({"kind": "query_progress", "progress": progress})
    for number, record in enumerate(records, 1):
        yield msgspec.json.encode({"seq": number, "at": now, **record})


def _queries(folder: Path) -> None:
    rules = {f"events.deadline.{rule}": "1h" for rule in ("batch", "progress", "job", "application")}
    rules |= {"events.deadline.lag": "1000", "events.heartbeat.interval": "10s"}
    ours = _Process(_SIDECAR, _hello(folder, rules), folder / "stderr")
    before, lines = ours.processor_seconds, list(_many_queries())
    for start in range(0, len(lines), 500):
        ours.send(lines[start : start + 500])
        ours.await_answer("ack", seq=min(start + 500, len(lines)))
    taken = ours.processor_seconds - before
    print(
        f"{_QUERIES} queries with all deadlines: {ours.megabytes:.1f} MB after {len(lines):,} records,"
        f" {taken / len(lines) * 1e6:.0f} us of processor time each"
    )
    ours.end()


def run() -> None:
    """Print memory, start time and idle share. The targets are 60 MB, 1 s and 0.5 %."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"load before: {os.getloadavg()[0]:.2f}, on {os.cpu_count()} processors")
        _starts(folder)
        bare = _Process(_BARE, b"", folder / "stderr")
        ours = _Process(_SIDECAR, _hello(folder), folder / "stderr")
        print(f"memory: {ours.megabytes:.1f} MB when ready (a bare Python with asyncio: {bare.megabytes:.1f} MB)")
        lines = list(_jobs(_EVENTS))
        for start in range(0, _EVENTS, 500):
            # Send at most as many events as the mailbox holds, so that no event is shed.
            ours.send(lines[start : start + 500])
            ours.await_answer("ack", seq=start + 500)
        print(f"memory: {ours.megabytes:.1f} MB after {_EVENTS:,} events")
        before, bare_before = ours.processor_seconds, bare.processor_seconds
        time.sleep(_IDLE_SECONDS)
        share = (ours.processor_seconds - before) / _IDLE_SECONDS
        bare_share = (bare.processor_seconds - bare_before) / _IDLE_SECONDS
        print(f"idle for {_IDLE_SECONDS:.0f} s: {share:.2%} of a processor (the bare Python: {bare_share:.2%})")
        ours.end()
        bare.end()
        _queries(folder)


def _starts(folder: Path) -> None:
    """Start both programs alternately.

    The first start of each program fills the system's caches and is not measured.
    """
    times: dict[str, list[float]] = {_SIDECAR: [], _BARE: []}
    for _ in range(1 + _STARTS):
        for program, taken in times.items():
            one = _Process(program, _hello(folder), folder / "stderr")
            taken.append(one.ready_after)
            one.end()
    ours, bare = (taken[1:] for taken in times.values())
    print(
        f"ready after {statistics.median(ours):.2f} s ({min(ours):.2f} to {max(ours):.2f} in {_STARTS} starts;"
        f" a bare Python with asyncio: {statistics.median(bare):.2f} s)"
    )


if __name__ == "__main__":
    run()
