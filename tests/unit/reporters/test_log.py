"""The ``log`` reporter: one line an event, on standard error, for people."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from fakes import event, sidecar_environment

from spark_events import EventBuilder
from spark_events.event import Event
from spark_events.reporters.log import format_event


def saying(body: str) -> Event:
    return EventBuilder("tests", "Test").set_body(body).set_observed_ts_millis(1_700_000_000_000).build()


def test_a_line_looks_like_one_of_spark_s() -> None:
    """Time, severity, name, sentence."""
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARN Test: 7", format_event(event(7, "WARN")))


@pytest.mark.parametrize(
    "body",
    ["two\nlines", "two\r\nlines", "two\u2028lines", "two\x85lines", "two\x1b\x07lines", "two\x00lines", "two\tlines"],
)
def test_an_event_is_one_line_and_no_command_to_a_terminal(body: str) -> None:
    """Whatever a message holds, an event is one line of text: grep finds it whole."""
    line = format_event(saying(body))
    assert line.endswith("Test: two lines")
    assert len(line.splitlines()) == 1


def test_text_that_utf8_cannot_hold_does_not_stop_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    """A lone surrogate in an event that was not made by the builder is shown as a question mark."""
    from spark_events.reporters.log import LogReporter

    spoilt = Event(**{**{f: getattr(event(1), f) for f in Event.__struct_fields__}, "body": "a\ud800b é"})
    LogReporter(None).report([spoilt, event(2)])  # type: ignore[arg-type]
    lines = capfd.readouterr().err.splitlines()
    assert [line.partition("Test: ")[2] for line in lines] == ["a?b é", "2"]


def test_a_time_beyond_the_calendar_is_shown_as_a_number() -> None:
    """An event whose time no calendar has is still an event."""
    odd = EventBuilder("tests", "Test").set_observed_ts_millis(2**63 - 1).build()
    assert format_event(odd) == f"{2**63 - 1} INFO Test: Test"


def test_lines_go_to_standard_error_also_when_that_is_replaced() -> None:
    """A library that swaps sys.stderr does not swallow events."""
    program = (
        "import io, sys; sys.stderr = io.StringIO()\n"
        "from fakes import event\nfrom spark_events.reporters.log import LogReporter, NoOptions\n"
        "LogReporter(NoOptions()).report([event(1), event(2)])"
    )
    done = subprocess.run([sys.executable, "-c", program], env=sidecar_environment(), capture_output=True, check=True)
    assert [line[-1:] for line in done.stderr.splitlines()] == [b"1", b"2"]
    assert done.stdout == b""
