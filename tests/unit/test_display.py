"""Tests of the text form and the HTML form of events with arbitrary texts."""

from __future__ import annotations

import html.parser

import pytest

from spark_events import Event, EventBuilder

EVIL = "<script>alert('x')</script>&amp;\n\x1b[31m\u202e\ud800 \"quoted\""


def build(body: str, severity: str = "ERROR") -> Event:
    return (
        EventBuilder("shop.<b>", "Opened").set_body(body).set_severity(severity)
        .set_observed_ts_millis(1_770_000_000_000).set_attribute("<i>key", EVIL).set_attribute("people", 3).build()
    )  # fmt: skip


class Tags(html.parser.HTMLParser):
    """HTML parser that records the tags, verifies that every tag is closed, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_line_has_time_severity_name_and_body() -> None:
    """A line contains time, severity, name and body, without line breaks and terminal control sequences."""
    shown = repr(build(EVIL))
    assert shown.startswith("<Event 2026-02-0")
    assert " ERROR Opened: <script>" in shown
    assert shown.isprintable()


def test_html_contains_all_fields_and_escapes_text() -> None:
    """The HTML of an event contains all fields and attributes. The text of an event cannot add tags."""
    event = build(EVIL)
    tags = Tags()
    tags.feed(event._repr_html_())
    assert tags.open == []
    assert tags.seen == {"div", "span", "b", "small", "details", "summary", "table", "tr", "th", "td"}
    for part in ("ERROR", "Opened", event.event_id, "shop.<b>", "<i>key", "people", "3", "5 details"):
        assert part in tags.text
    assert tags.text.count("<script>alert('x')</script>&amp;") == 2
    assert tags.text.count(r"\x1b[31m\u202e?") == 2
    tags.text.encode()


@pytest.mark.parametrize("severity", ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"])
def test_every_severity_has_its_colour(severity: str) -> None:
    """The HTML uses one colour for each severity; only ERROR is red."""
    shown = build("x", severity)._repr_html_()
    assert f'font-weight:bold">{severity}</span>' in shown
    assert ("#d03030" in shown) == (severity == "ERROR")


def test_a_time_beyond_the_calendar_is_displayed_as_a_number() -> None:
    event = EventBuilder("a", "b").set_observed_ts_millis(2**62).build()
    assert str(2**62) in repr(event)
    assert str(2**62) in event._repr_html_()
