"""Tests of ``spark_events.read``."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fakes import event, numbers

import spark_events
from spark_events.event import encode_event, encode_lines
from spark_events.reporters.file import FileConfig, FileReporter

#: An array that is nested too deeply for the decoder.
NESTED = b'{"attributes":' + b"[" * 10_000 + b"]" * 10_000 + b"}"


def test_written_events_are_read(tmp_path: Path) -> None:
    """`read` returns the events that the file reporter wrote, including those in compressed files."""
    path, written = tmp_path / "events.jsonl", [event(n, "WARN", rows=n) for n in range(3)]
    reporter = FileReporter(FileConfig(str(path)))
    reporter.open()
    reporter.report(written)
    reporter.close()
    assert list(spark_events.read(path)) == written
    compressed = tmp_path / "events.jsonl.gz"
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    assert list(spark_events.read(str(compressed))) == written


def test_rotated_files_come_first(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    reporter = FileReporter(FileConfig(str(path), max_size=256, keep=10))
    reporter.open()
    for number in range(4):
        reporter.report([event(number)])
    reporter.close()
    assert numbers(list(spark_events.read(path))) == [3]
    assert numbers(list(spark_events.read(path, rotated=True))) == [0, 1, 2, 3]


def test_lines_that_are_not_events_are_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"{}\n" + encode_lines([event(1)]) + b"\xff\n" + NESTED + b"\n" + encode_event(event(2)))
    assert numbers(list(spark_events.read(path))) == [1, 2]
    assert f"{path}: skipped 3 lines that are not events" in caplog.text


def test_a_damaged_file_yields_its_readable_events(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl.gz"
    path.write_bytes(gzip.compress(encode_lines([event(1), event(2)])) + b"more")
    events = spark_events.read(path)
    assert numbers([next(events), next(events)]) == [1, 2]
    with pytest.raises(spark_events.SparkEventsError, match="the rest of the file cannot be decompressed"):
        next(events)
    with pytest.raises(FileNotFoundError):
        list(spark_events.read(tmp_path / "missing"))


def test_standard_input_is_read() -> None:
    code = "import spark_events; print([event.body for event in spark_events.read('-')])"
    lines = encode_lines([event(1), event(2)])
    done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, check=True)
    assert done.stdout == b"['1', '2']\n"


def test_one_event_is_decoded() -> None:
    """``decode_event`` decodes the value of a Kafka message or the body of a webhook request."""
    one = event(7, rows=1)
    assert spark_events.decode_event(encode_event(one)) == one


def test_a_deeply_nested_value_is_not_an_event() -> None:
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        spark_events.decode_event(NESTED)
