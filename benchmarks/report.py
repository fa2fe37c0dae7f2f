"""Measure time and memory of ``spark-events report --html`` for one million events, in a separate process."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from spark_events import Event, Severity
from spark_events.event import Attributes, encode_lines

_EVENTS = 1_000_000
_QUERIES = 20
_CHUNK = 10_000
_START = 1_795_000_000_000
_MEASURED = """
import resource, sys, time
from spark_events.cli import main
began = time.perf_counter()
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
print(f"{time.perf_counter() - began:.1f} {used.ru_utime + used.ru_stime:.1f} {used.ru_maxrss / 1024:.0f}")
sys.exit(code)
"""


def _iso(millis: int) -> str:
    moment = datetime.fromtimestamp(millis / 1000, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _events() -> Iterator[Event]:
    """Yield commits of several queries, with one failure per thousand commits."""
    pick = random.Random(1)
    for number in range(_EVENTS):
        query, at = number % _QUERIES, _START + 40 * number
        attributes: dict[str, str | int | bool] = {
            "spark.app.id": "application_1795000000000_0001",
            "spark.app.name": "clickstream",
            "spark.user": "spark",
            "spark.version": "4.3.0",
            "host.name": "driver-1",
            "spark.streaming.query.id": f"6f595dfe-64f8-4732-9d1e-01d23ed8{query:04d}",
            "spark.streaming.query.run_id": f"2da8e7fc-efb7-4606-baeb-554baed8{query:04d}",
            "spark.streaming.query.name": f"query-{query}",
        }
        if number % 1_000 == 999:
            cause = f"ValueError: payment {pick.randrange(40)} has no currency"
            attributes |= {"spark.entity": "job", "error.type": "ValueError", "failure.root_cause": cause}
            attributes |= {"exception.stacktrace": f"{cause}\n" + "\tat a.b.C.d(C.java:1)\n" * 80}
            name, severity = "JobFailureEvent", Severity.ERROR
        else:
            took = int(pick.lognormvariate(7, 0.6))
            attributes |= {"spark.batch.id": number // _QUERIES, "spark.batch.count": 1, "spark.batch.no_data": False}
            attributes |= {"spark.batch.rows_input": pick.randint(1, 5_000), "spark.batch.sink": "FileSink[file:/data]"}
            phases = ("add_batch", "query_planning", "wal_commit", "commit_offsets", "latest_offset", "get_batch")
            attributes |= {f"spark.batch.duration.{phase}_ms": took // 7 for phase in phases}
            attributes |= {"spark.batch.duration.trigger_execution_ms": took}
            attributes |= {"spark.watermark.time": _iso(at - 60_000), "spark.batch.event_time_max": _iso(at - 20_000)}
            attributes |= {"spark.batch.sources": '[{"description":"KafkaV2[Subscribe[clicks]]","rows":6}]'}
            name, severity = "BatchCommitEvent", Severity.INFO
        yield Event(
            name=name,
            class_scope="spark.streaming.query",
            body=f"{name} of query 'query-{query}'",
            severity=severity,
            observed_ts_millis=at,
            event_id=f"{pick.getrandbits(128):032x}",
            sequence=number,
            attributes=Attributes(attributes),
        )


def run() -> None:
    """Print the time, processor time and peak memory of a report that writes an HTML page."""
    with tempfile.TemporaryDirectory() as folder:
        source, page = Path(folder, "events.jsonl"), Path(folder, "report.html")
        with source.open("wb") as lines:
            some: list[Event] = []
            for event in _events():
                some.append(event)
                if len(some) == _CHUNK:
                    lines.write(encode_lines(some))
                    some.clear()
        size = source.stat().st_size / 1e6
        command = [sys.executable, "-c", _MEASURED, "report", str(source), "--sla", "5s", "--html", str(page)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        took, processor, memory = done.stdout.split()
        print(f"{_EVENTS:,} events ({size:,.0f} MB of JSON lines) to HTML: {took} s, processor time {processor} s,")
        print(f"peak memory {memory} MB, page {page.stat().st_size / 1e6:.1f} MB (aim: 10 s and 500 MB on two cores)")
