"""Measure the speed of translating an event log on one core, and the memory for logs of different lengths.

The log consists of real lines (the tests' fixtures, from Spark 4.3): an application with a streaming query whose
micro-batches are repeated with new ids and times. A micro-batch has three SQL executions with their plans, two jobs,
two stages and twelve tasks; the number of lines and bytes is similar to that in the event log of a small stream.
"""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from spark_events.records.event_log.log_files import find_logs
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.translate.event_log import replayed
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

_FIXTURE = Path(__file__).parents[1] / "tests/unit/records/fixtures/foreachbatch-4.3.jsonl"
_LINES = 100_000
_TASKS = 6
_BATCH_MILLIS = 500


def _kind(line: str) -> str:
    match = re.match(r'\{"Event":"(?:[\w.]*[.$])?(\w+)"', line)
    assert match is not None
    return match[1]


def _first(lines: list[str], kind: str, also: str = "") -> str:
    return next(line for line in lines if _kind(line) == kind and also in line)


def _shifted(line: str, number: int) -> str:
    """Return the line, changed to the ids and times of a later micro-batch."""
    shift = number * _BATCH_MILLIS
    line = re.sub(r'"((?:Submission|Completion|Launch|Finish) Time|time)":(1[0-9]{12})', _later(shift), line)
    line = re.sub(r'"(executionId|rootExecutionId)":(\d+)', lambda m: f'"{m[1]}":{number * 3}', line)
    line = re.sub(r'"streaming\.sql\.batchId":"\d+"', f'"streaming.sql.batchId":"{number}"', line)
    line = re.sub(r'"batchId":\d+', f'"batchId":{number}', line)
    return re.sub(
        r'"timestamp":"[^"]*"',
        f'"timestamp":"2026-11-{21 + shift // 86_400_000:02d}T{shift // 3_600_000 % 24:02d}:'
        f'{shift // 60_000 % 60:02d}:{shift // 1000 % 60:02d}.{shift % 1000:03d}Z"',
        line,
    )


def _later(shift: int) -> Callable[[re.Match[str]], str]:
    return lambda match: f'"{match[1]}":{int(match[2]) + shift}'


def _batch(lines: list[str], number: int) -> list[str]:
    """Build one micro-batch: two jobs with one stage of six tasks each."""
    made = [_first(lines, "SparkListenerSQLExecutionStart")] * 3
    for job in (2 * number, 2 * number + 1):
        ids = {"Job ID": job, "Stage ID": job}
        made.append(_numbered(_first(lines, "SparkListenerJobStart"), ids))
        stage = [_first(lines, kind) for kind in ("SparkListenerStageSubmitted", "SparkListenerStageCompleted")]
        stage = [_numbered(line, {**ids, "Number of Tasks": _TASKS}) for line in stage]
        made.append(stage[0])
        for kind in ("SparkListenerTaskStart", "SparkListenerTaskEnd"):
            made += [_numbered(_first(lines, kind), {**ids, "Index": i, "Task ID": i}) for i in range(_TASKS)]
        made += [stage[1], _numbered(_first(lines, "SparkListenerJobEnd", "JobSucceeded"), ids)]
    made += [_first(lines, "SparkListenerDriverAccumUpdates"), *[_first(lines, "SparkListenerSQLExecutionEnd")] * 3]
    made.append(_first(lines, "QueryProgressEvent", "addBatch"))
    return [_shifted(line, number) for line in made]


def _numbered(line: str, numbers: dict[str, int]) -> str:
    for key, value in numbers.items():
        line = re.sub(rf'"{key}":\d+', f'"{key}":{value}', line)
    return line


def write_log(path: Path, lines: int) -> None:
    """Write a log with at least ``lines`` lines."""
    real = _FIXTURE.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(real) if _kind(line) == "QueryStartedEvent") + 1
    written = number = 0
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in real[:start])
        while written < lines:
            batch = _batch(real, number)
            file.writelines(f"{line}\n" for line in batch)
            written += len(batch)
            number += 1
        file.write(real[-1] + "\n")


def measure(path: Path, everything: bool) -> tuple[int, int, int, float]:
    """Replay a log, and return its lines, records and events, and the processor time in seconds."""
    (log,) = find_logs(path)
    reader = EventLogReader(log, print)
    translator = Translator(TranslateConfig(streaming_jobs=everything, streaming_stages=everything))
    start = time.process_time()
    events = records = 0
    for made in replayed(reader, translator):
        records += 1
        events += len(made)
    took = time.process_time() - start
    assert not reader.damaged
    assert not translator.illegal
    assert not translator.defects
    return reader.lines, records, events, took


def run() -> None:
    """Print lines per second, and the memory for a log and for a log that is ten times as long."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        write_log(path, _LINES)
        size = path.stat().st_size
        for everything, what in ((False, "quiet, as by default"), (True, "with the jobs and stages of micro-batches")):
            lines, records, events, took = min((measure(path, everything) for _ in range(3)), key=lambda one: one[3])
            print(
                f"{what}: {lines / took:,.0f} lines/s ({size / took / 1e6:,.0f} MB/s);"
                f" {lines:,} lines of {size / lines:,.0f} bytes, {records:,} records, {events:,} events"
            )
        for length in (_LINES // 10, _LINES):
            write_log(path, length)
            print(f"memory for {length:,} lines: {_peak_memory(path):,.1f} MB")


def _peak_memory(path: Path) -> float:
    """Return the peak memory, in megabytes, of a process that only replays a log."""
    program = "import sys; from benchmarks.translation import report_memory; report_memory(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, check=True, text=True)
    return float(done.stdout)


def report_memory(path: str) -> None:
    """Replay a log, and print the peak memory of this process in megabytes."""
    measure(Path(path), everything=False)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    run()
