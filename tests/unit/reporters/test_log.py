"""Tests of the ``log`` reporter, which writes one readable line per event to standard error."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import FakeDriver, application_start, decoded, event, goodbye, sidecar_environment

from spark_events import EventBuilder, PermanentError
from spark_events.event import Event, decode_event
from spark_events.reporters.log_reporter import DRIVER_LOGGER, LogConfig, LogReporter, format_event
from spark_events.translate.translator import Translator
from unit.translate.test_incidents import SITUATIONS


def saying(body: str) -> Event:
    return EventBuilder("tests", "Test").set_body(body).set_observed_ts_millis(1_700_000_000_000).build()


def test_a_line_resembles_spark_s_lines() -> None:
    """A line contains time, severity, name and body, in the style of Spark's lines, with aligned names."""
    for severity in ("WARN ", "ERROR"):
        line = format_event(event(7, severity.strip()))
        assert re.fullmatch(rf"\d\d/\d\d/\d\d \d\d:\d\d:\d\d {severity} Test: 7", line)


@pytest.mark.parametrize(
    "body",
    ["two\nlines", "two\r\nlines", "two\u2028lines", "two\x85lines", "two\x0b\x0clines", "two\tlines"],
)
def test_an_event_is_one_line(body: str) -> None:
    """Each event is one line: line breaks are escaped, so grep finds the whole event."""
    line = format_event(saying(body))
    assert line.endswith("Test: two lines")
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("a\x00b\x9b", r"a\x00b\x9b"),
        ("paid \u202e001", r"paid \u202e001"),
        ("\u2066if\u2069 \u200f\u061c", r"\u2066if\u2069 \u200f\u061c"),
        ("ad\u200bmin\ufeff\U000e0041", r"ad\u200bmin\ufeff\U000e0041"),
        ("שלום 👩\u200d💻 می\u200cخواهم", "שלום 👩\u200d💻 می\u200cخواهم"),
    ],
)
def test_control_and_bidirectional_characters_are_escaped(body: str, shown: str) -> None:
    """Control characters and bidirectional characters are escaped. Text in any language and emoji do not change."""
    assert format_event(saying(body)).endswith(f"Test: {shown}")


def test_a_lone_surrogate_is_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    """If an event bypasses the builder's checks, a question mark replaces each lone surrogate."""
    spoilt = Event(**{**{f: getattr(event(1), f) for f in Event.__struct_fields__}, "body": "a\ud800b é"})
    LogReporter(LogConfig()).report([spoilt, event(2)])
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition("Test: ")[2] for line in lines] == ["a?b é", "2"]


def test_a_time_beyond_the_calendar_is_printed_as_a_number() -> None:
    odd = EventBuilder("tests", "Test").set_observed_ts_millis(2**63 - 1).build()
    assert format_event(odd) == f"{2**63 - 1} INFO  Test: Test"


def test_a_non_blocking_standard_error_gets_each_line_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a non-blocking standard error, each line is written once. An interrupted attempt resumes at the same byte."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    events = [saying(f"{number} {'x' * 1_000}") for number in range(300)]
    got: list[bytes] = []

    async def deliver(reporter: LogReporter) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            rest = reporter.report(events)
            assert rest is not None
            await asyncio.wait_for(rest, 0.05)
        reader = threading.Thread(target=lambda: got.extend(iter(lambda: os.read(reads, 5_000), b"")))
        reader.start()
        if (rest := reporter.report([*events])) is not None:
            await rest
        os.close(writes)
        reader.join()

    with open(writes, "wb", buffering=0, closefd=False) as standard_error:
        monkeypatch.setattr(sys, "__stderr__", standard_error)
        asyncio.run(deliver(LogReporter(LogConfig())))
    os.close(reads)
    lines = b"".join(got).decode().splitlines()
    assert [line.partition("Test: ")[2] for line in lines] == [one.body for one in events]


def test_lines_go_to_the_original_standard_error() -> None:
    """Events are written to the original standard error, even if a library replaces sys.stderr."""
    program = (
        "import io, sys; sys.stderr = io.StringIO()\n"
        "from fakes import event\nfrom spark_events.reporters.log_reporter import LogConfig, LogReporter\n"
        "LogReporter(LogConfig()).report([event(1), event(2)])"
    )
    done = subprocess.run([sys.executable, "-c", program], env=sidecar_environment(), capture_output=True, check=True)
    assert [line[-1:] for line in done.stderr.splitlines()] == [b"1", b"2"]
    assert done.stdout == b""


def spoilt_event() -> Event:
    fields = {name: getattr(event(1), name) for name in Event.__struct_fields__}
    return Event(**{**fields, "body": "a\ud800b\nc"})


def test_json_has_the_whole_event_on_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    """With format json, each line is valid JSON, which contains the event and begins with the tag for ``grep``."""
    original = event(1, "ERROR", text='two\nlines\x00"😀', rows=3)
    LogReporter(LogConfig(format="json")).report([original, spoilt_event()])
    first, second = capfd.readouterr().err.splitlines()
    assert decode_event(first.encode()) == original
    assert list(json.loads(first)) == ["tag", *msgspec.to_builtins(original)]
    assert first.startswith('{"tag":"[spark-events]","name":')
    assert json.loads(second)["body"] == "a?b\nc"


TERMINAL = """
from fakes import event
from spark_events.reporters.log_reporter import LogConfig, LogReporter
LogReporter(LogConfig()).report([event(1, "ERROR"), event(2)])
LogReporter(LogConfig(format="json")).report([event(3, "ERROR")])
"""


@pytest.mark.parametrize(
    ("variables", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_gets_colour_for_warnings_and_errors(variables: dict[str, str], is_coloured: bool) -> None:
    """On a terminal, only warnings and errors are coloured. JSON is never coloured. NO_COLOR disables colours."""
    terminal, side = pty.openpty()
    environment = {**sidecar_environment(), "TERM": "xterm", "NO_COLOR": "", **variables}
    subprocess.run([sys.executable, "-c", TERMINAL], env=environment, stderr=side, check=True)
    os.close(side)
    shown = b""
    while shown.count(b"\n") < 3:
        shown += os.read(terminal, 65_536)
    os.close(terminal)
    error, info, machine = shown.decode().splitlines()
    assert ("\x1b[31mERROR\x1b[0m Test: 1" in error) is is_coloured
    assert "\x1b" not in info + machine


def test_the_driver_s_log_gets_events_with_their_severity(caplog: pytest.LogCaptureFixture) -> None:
    """With destination log4j, the reporter sends events through Python's logging to the driver, which logs them."""
    reporter = LogReporter(LogConfig(destination="log4j"))
    reporter.open()
    reporter.report([event(1, "DEBUG"), event(2, "FATAL"), spoilt_event()])
    records = [record for record in caplog.records if record.name == DRIVER_LOGGER]
    assert [(one.levelno, one.getMessage()) for one in records] == [
        (logging.DEBUG, "[spark-events] Test: 1"),
        (logging.CRITICAL, "[spark-events] Test: 2"),
        (logging.INFO, "[spark-events] Test: a?b c"),
    ]


def test_the_driver_s_log_needs_a_driver() -> None:
    """Without a driver, as in a replay, the reporter raises an error instead of losing events."""
    program = (
        "from spark_events.reporters.log_reporter import LogConfig, LogReporter\n"
        "LogReporter(LogConfig(destination='log4j')).open()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{PermanentError.__name__}: destination=log4j needs a driver's log, which" in done.stderr


@pytest.mark.parametrize("format_name", ["text", "json"])
def test_the_sidecar_sends_events_to_the_driver_s_log(tmp_path: Path, format_name: str) -> None:
    """The sidecar sends events for the driver's log as answers to the driver. Standard error stays empty."""
    settings = {
        "events.reporter.driver.type": "log",
        "events.reporter.driver.destination": "log4j",
        "events.reporter.driver.format": format_name,
    }
    with FakeDriver(tmp_path / "errors", settings) as driver:
        driver.send_records(application_start())
        answer = driver.await_answer("event", level="INFO")
        driver.send(goodbye())
        assert driver.await_exit() == 0
    if format_name == "text":
        assert answer["message"] == "[spark-events] JobStatusChangeEvent: Application 'shop' started"
    else:
        assert json.loads(answer["message"])["name"] == "JobStatusChangeEvent"
    assert (tmp_path / "errors").read_text() == ""


@pytest.mark.parametrize(
    ("severity", "about", "is_shown"),
    [
        ("ERROR", {"incident.role": "alarm"}, True),
        ("INFO", {"incident.role": "recovery"}, True),
        ("WARN", {"incident.role": "member"}, True),
        ("INFO", {"incident.role": "member"}, False),
        ("INFO", {"incident.role": "consequence"}, False),
        ("WARN", {"incident.role": "member", "spark.streaming.query.run_id": "r"}, False),
        ("INFO", {}, True),
    ],
)
def test_a_failure_is_one_line(severity: str, about: dict[str, Any], is_shown: bool) -> None:
    """What the alarm of a query or application tells is not repeated by its stages, jobs and changes of status."""
    lines = printed([event(1, severity, **about), event(2)])
    assert len(lines) == 1 + is_shown
    assert all(line.startswith("[spark-events] ") for line in lines)


def printed(events: Sequence[Event]) -> list[str]:
    read, write = os.pipe()
    reporter = LogReporter(LogConfig())
    reporter._fd = write
    reporter.report(events)
    os.close(write)
    with open(read, "rb") as output:
        return output.read().decode().splitlines()


@pytest.mark.parametrize("kind", SITUATIONS)
def test_a_cause_stands_once_above_info_in_the_line_of_the_alarm(kind: str) -> None:
    """A failure that the application survives has no line above INFO, unless Spark lost an executor."""
    records, alarm = SITUATIONS[kind]
    translator = Translator()
    story = [application_start(), *records]
    events = [one for n, record in enumerate(story, 1) for one in translator.translate(decoded({"seq": n, **record}))]
    levels = ("WARN", "ERROR", "FATAL")
    lines = [line for line in printed(events) if line.split()[3] in levels and "executor 2 was lost" not in line]
    assert [line.partition("JobFailureEvent: ")[2] for line in lines] == ([] if alarm is None else [alarm])
