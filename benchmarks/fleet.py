"""Measure `replay_all` on a local cluster against one process, and `report --fleet` for 10 million events."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

_FIXTURE = Path(__file__).parents[1] / "tests" / "unit" / "records" / "fixtures" / "batch_udf-4.3.jsonl"
_LOGS = 2_000
_NAMES, _RUNS, _EVENTS = 10_000, 20_000, 10_000_000
_END = 1_795_000_000_000
_MEASURED = """
import re, resource, sys, time
from pathlib import Path
from spark_events.cli import main
began = time.perf_counter()
code = main(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_SELF)
peak = re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]
print(f"{time.perf_counter() - began:.1f} {used.ru_utime + used.ru_stime:.1f} {int(peak) / 1024:.0f}", file=sys.stderr)
sys.exit(code)
"""
_REPLAY = """
import sys, time
began = time.perf_counter()
from pyspark.sql import SparkSession
from spark_events import replay_all
spark = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.range(2, numPartitions=2).mapInArrow(lambda batches: batches, "id bigint").count()
started = time.perf_counter()
events = replay_all(spark, sys.argv[1])
events.write.parquet(sys.argv[2])
print(started - began, time.perf_counter() - started)
"""


def _replay(folder: Path) -> None:
    logs = folder / "logs"
    logs.mkdir()
    text = _FIXTURE.read_text(encoding="utf-8")
    for number in range(_LOGS):
        identity = f"local-{1795262880000 + number}"
        (logs / identity).write_text(text.replace("local-1795262884130", identity), encoding="utf-8")
    lines = _LOGS * text.count("\n")
    command = [sys.executable, "-c", _MEASURED, "replay", str(logs), "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    alone = float(done.stderr.split()[-3])
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", _REPLAY, str(logs), str(folder / "replayed")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    startup, cluster = map(float, done.stdout.split()[-2:])
    print(f"{_LOGS:,} logs, {lines:,} lines: one process {alone:.1f} s ({_LOGS / alone:,.0f} logs/s)")
    print(
        f"replay_all on two executors with a Parquet folder as target: startup of Spark {startup:.1f} s, then"
        f" {cluster:.1f} s ({_LOGS / cluster:,.0f} logs/s), {cluster / alone:.1f} times one process"
    )


_GENERATED = """
COPY (
  SELECT md5(n::VARCHAR) AS event_id, place AS sequence, ts AS observed_ts_millis, epoch_ms(ts) AS observed_at, name,
    'spark.application' AS class_scope,
    CASE name WHEN 'JobFailureEvent' THEN 'ERROR' ELSE 'INFO' END AS severity,
    CASE name WHEN 'JobFailureEvent' THEN 17 ELSE 9 END::SMALLINT AS severity_number,
    name || ' of run ' || run AS body, 'application_' || run AS app_id, NULL::VARCHAR AS app_attempt_id,
    'etl-' || (run % {names}) AS app_name, NULL::VARCHAR AS query_id, NULL::VARCHAR AS query_run_id,
    NULL::VARCHAR AS query_name, CASE WHEN name <> 'BatchCommitEvent' THEN 'application' END AS entity,
    CASE WHEN name = 'JobStatusChangeEvent' THEN CASE place WHEN 0 THEN 'RUNNING' ELSE outcome END END AS status,
    NULL::VARCHAR AS error_type, place AS batch_id, 1::BIGINT AS batches, 1000::BIGINT AS input_rows,
    900::BIGINT AS duration_ms,
    '{{"spark.user":"etl","spark.version":"4.3.0","spark.tag.team":"team-' || run % 50 || '"' || CASE name
      WHEN 'ApplicationSummaryEvent' THEN ',"spark.summary.core_hours":' || (hash(run) % 1000) / 10.0
        || ',"spark.summary.retried_ms":' || hash(run) % 3600000
      WHEN 'JobFailureEvent' THEN ',"incident.role":"alarm","failure.root_cause":"x","failure.class":"'
        || ['USER_CODE', 'EXTERNAL_SYSTEM', 'EXECUTOR_OUT_OF_MEMORY'][1 + (hash(run) % 3)::INT] || '"'
      WHEN 'BatchCommitEvent' THEN ',"spark.batch.id":' || place || ',"spark.batch.sources":"'
        || repeat(md5((n + 1)::VARCHAR), 10) || '"'
      ELSE '' END || '}}' AS attributes
  FROM (
    SELECT *, {end} - 1209600000 + run * 1209600000 // {runs} + place * 10000 AS ts, CASE
        WHEN place IN (0, {each} - 1) THEN 'JobStatusChangeEvent'
        WHEN place = {each} - 2 THEN 'ApplicationSummaryEvent'
        WHEN place = {each} - 3 AND outcome = 'FAILED' THEN 'JobFailureEvent' ELSE 'BatchCommitEvent' END AS name
    FROM (
      SELECT range AS n, range // {each} AS run, range % {each} AS place,
        CASE WHEN hash(range // {each}) % 10 = 0 THEN 'FAILED' ELSE 'FINISHED' END AS outcome
      FROM range({first}, {last})
    )
  )
  ORDER BY name, observed_ts_millis
) TO '{file}' (COMPRESSION zstd)
"""


def _table(folder: Path) -> None:
    """Write events of two weeks in ten files, as `replay_all` does: most events are commits."""
    folder.mkdir()
    for part in range(10):
        first, last = part * _EVENTS // 10, (part + 1) * _EVENTS // 10
        numbers = {"names": _NAMES, "runs": _RUNS, "each": _EVENTS // _RUNS, "end": _END, "first": first, "last": last}
        duckdb.sql(_GENERATED.format(**numbers, file=folder / f"part-{part}.parquet"))


def _overview(folder: Path) -> None:
    table = folder / "table"
    _table(table)
    size = sum(file.stat().st_size for file in table.iterdir()) / 1e6
    command = [sys.executable, "-c", _MEASURED, "report", str(table), "--fleet", "--until", "2026-11-18T00:00"]
    for output in ([], ["--html", str(folder / "fleet.html")]):
        done = subprocess.run([*command, *output], capture_output=True, text=True, check=True)
        took, processor, memory = done.stderr.splitlines()[-1].split()
        print(
            f"report --fleet{' --html' if output else ''}, {_EVENTS:,} events of {_NAMES:,} applications"
            f" ({size:,.0f} MB of Parquet): {took} s, processor time {processor} s, peak memory {memory} MB"
            " (aim: 30 s, 1,000 MB)"
        )


def run() -> None:
    """Print the throughput of the Spark job, and the time and memory of the overview."""
    with tempfile.TemporaryDirectory() as scratch:
        _overview(Path(scratch))
        _replay(Path(scratch))
