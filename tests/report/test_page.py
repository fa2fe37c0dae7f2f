"""Tests of the report's page in a real Chromium, which `make browser` downloads."""

from __future__ import annotations

import dataclasses
import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from report.stories import HOUR, MINUTE, SECOND, START, Story, busy_day
from report.test_model import quantile, report_of
from report.test_why import nightly
from report.troubled_stories import (
    NOW,
    hostile_names,
    regular_commits,
    three_days_without_an_event,
    unknown_end_after_a_failed_job,
)
from spark_events import Event
from spark_events.report.page import page_of
from spark_events.report.report_model import EventReport
from spark_events.report.serve import ReportServer

Open = Callable[..., Any]
#: Colour of text in the light theme of page.css.
LIGHT_TEXT = "rgb(27, 34, 48)"


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens the page of a report.

    The test fails if the browser's console contains an error.
    """
    problems: list[str] = []
    contexts = []

    def open_page(report: EventReport | str, width: int = 1280, height: int = 900, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(f"a script opened a dialog: {dialog.message}"))
        if isinstance(report, str):
            page.goto(report)
        else:
            path = tmp_path / "page.html"
            path.write_text(page_of(report), encoding="utf-8")
            page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture(scope="module")
def day() -> tuple[Sequence[Event], EventReport]:
    events = busy_day().events
    return events, report_of(events, draw=True, sla_ms=60_000)


def cells(page: Any, key: str) -> dict[str, float | str]:
    row = page.locator(f'#numbers tr[data-key="{key}"]')
    pairs = row.locator("td[data-value]").evaluate_all("all => all.map(td => [td.dataset.field, td.dataset.value])")
    return {name: value if name == "outcome" else float(value) for name, value in pairs}


def test_a_lane_counts_the_runs_that_succeeded(opened: Open) -> None:
    page = opened(report_of(unknown_end_after_a_failed_job().events, draw=True, now=NOW))
    assert "2/3 ok" in page.locator("#lanes").text_content()


@pytest.mark.parametrize("width", [1440, 390])
def test_old_data_is_grey_after_its_newest_event(width: int, opened: Open) -> None:
    page = opened(report_of(three_days_without_an_event().events, draw=True, now=NOW), width)
    assert "what happened since then is unknown" in page.locator("#period").text_content()
    assert page.locator("#axis .tail").text_content() == "no events"
    assert "no data" in page.locator("#legend").text_content()
    lanes = page.locator("#lanes svg[role=group]").first.bounding_box()
    for grey in page.locator("#lanes .s-no-data").all():
        box = grey.bounding_box()
        assert box["width"] >= 5
        assert box["x"] + box["width"] <= lanes["x"] + lanes["width"] + 1
    labels = [one.bounding_box() for one in page.locator("#axis text").all()]
    ends = sorted((one["x"], one["x"] + one["width"]) for one in labels)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    if width == 1440:
        # The keys that show the whole period show the grey part too.
        page.locator("#plots").press("+")
        page.locator("#plots").press("0")
        assert page.locator("#axis .tail").count() == 1
        assert page.locator("#reset").is_disabled()


def test_the_line_of_executors_ends_where_the_lane_becomes_grey(opened: Open) -> None:
    """Of a source that is an hour old, nobody knows how many executors run now."""
    story = Story()
    app = story.application("batch", "app-1")
    app.status("RUNNING", NOW - 3 * HOUR)
    app.executor("1", "ADDED", NOW - 2 * HOUR)
    app.event("EventsDroppedEvent", NOW - HOUR)
    page = opened(report_of(story.events, draw=True, now=NOW))
    grey = page.locator("#lanes .s-no-data").first.bounding_box()
    line = page.locator("#charts .median").last.bounding_box()
    assert abs(line["x"] + line["width"] - grey["x"]) < 3


@pytest.mark.parametrize("minutes", [1, 5])
def test_a_regular_stream_is_a_line(opened: Open, minutes: int) -> None:
    """Batches at regular intervals are one line, also if their interval is longer than a bucket of the chart."""
    page = opened(report_of(regular_commits(minutes).events, draw=True, now=NOW))
    assert page.locator("#charts .chart").count() == 2
    assert page.locator("#charts path.median").count() == 2


def test_numbers_equal_the_numbers_of_the_events(opened: Open, day: tuple[Sequence[Event], EventReport]) -> None:
    """The numbers on the page equal a simple computation over the events."""
    events, report = day
    page = opened(report)
    took: dict[str, list[float]] = defaultdict(list)
    failures: dict[str, int] = defaultdict(int)
    committed: dict[str, int] = {}
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    begun: dict[str, int] = {}
    ends = {event.attributes["spark.app.id"]: event.observed_ts_millis for event in events if is_end(event)}
    until = max(event.observed_ts_millis for event in events)
    for event in events:
        name = event.attributes.get("spark.streaming.query.name")
        query = None if name is None else f"clickstream/{name}"
        if event.name == "BatchCommitEvent":
            took[f"q:{query}"].append(event.attributes["spark.batch.duration.trigger_execution_ms"])  # type: ignore[arg-type]
            committed[f"q:{query}"] = event.observed_ts_millis
        if event.name == "JobFailureEvent":
            failures[f"a:{event.attributes['spark.app.name']}"] += 1
            failures[f"q:{query}"] += query is not None
        if query is not None and event.attributes.get("spark.entity") == "query":
            if event.attributes.get("spark.status.new") == "RUNNING":
                begun[f"q:{query}"] = event.observed_ts_millis
                end = ends.get(event.attributes["spark.app.id"], until)
                spans[f"q:{query}"].append((event.observed_ts_millis, end))
            elif event.attributes.get("spark.status.new") == "FAILED":
                spans[f"q:{query}"][-1] = (begun[f"q:{query}"], event.observed_ts_millis)
    # The events are old, so each query that has not ended is silent from its last commit on, which is no uptime.
    for key, last in committed.items():
        start, end = spans[key][-1]
        spans[key][-1] = (start, min(end, last))
    assert len(took) == 3
    for key, durations in took.items():
        shown = cells(page, key)
        for field, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
            assert shown[field] == pytest.approx(quantile(durations, part)), (key, field)
        assert shown["commits"] == len(durations)
        assert shown["over_sla"] == sum(each > 60_000 for each in durations)
        assert shown["incidents"] == next(one.incidents for one in report.subjects if one.key == key)
        assert (shown["incidents"] > 0) == (failures[key] > 0)
        up = sum(end - start for start, end in spans[key])
        down = sum(after - end for (_, end), (after, _) in zip(spans[key], spans[key][1:], strict=False))
        assert shown["uptime_percent"] == pytest.approx(100 * up / (up + down))
        assert shown["downtime_ms"] == down
    (shown_incidents,) = (one.incidents for one in report.applications if one.key == "a:clickstream")
    assert cells(page, "a:clickstream")["incidents"] == shown_incidents < failures["a:clickstream"]
    drawn = page.locator("#lanes .marker").evaluate_all("all => all.map(one => Number(one.dataset.count))")
    assert sum(drawn) == sum(event.name == "JobFailureEvent" for event in events)
    grouped = page.locator("#failures details").evaluate_all("all => all.map(one => Number(one.dataset.count))")
    assert sum(grouped) == sum(drawn)


def test_slow_stages_and_costs_equal_those_of_the_events(
    opened: Open, day: tuple[Sequence[Event], EventReport]
) -> None:
    """The page lists the slow stages, the longest lost time first, and the core-hours and costs."""
    events, report = day
    page = opened(report)
    slow = [event.attributes for event in events if "problem.skew" in event.attributes]
    slow.sort(key=lambda attributes: -int(attributes["spark.stage.lost_ms"]))
    lost = page.locator("#slow td[data-field=lost_ms]").evaluate_all("all => all.map(td => Number(td.dataset.value))")
    assert lost == [attributes["spark.stage.lost_ms"] for attributes in slow]
    problems = page.locator("#slow tbody tr td:last-child").all_text_contents()
    expected = [f"skew: {one['problem.skew']}; spill: {one['problem.spill']}" for one in slow]
    assert problems == expected
    shown = cells(page, "a:nightly-report")
    assert [shown[name] for name in ("core_hours", "core_hours_used", "core_hours_idle", "cost")] == [
        15,
        10.5,
        4.5,
        1.5,
    ]
    page.locator("#search").fill("no such stage")
    assert page.locator("#slow tbody tr").count() == 0
    assert page.locator("#slow").text_content() == "No stage matches the search."


def test_a_page_without_slow_stages_has_no_section_for_them(opened: Open) -> None:
    """Control: without slow stages and costs, the page shows neither the section nor the columns."""
    story = Story()
    story.application("a", "app-1").status("RUNNING", START)
    page = opened(report_of(story.events, draw=True))
    assert page.locator("#slow-section").is_hidden()
    assert page.locator("#numbers td[data-field=cost]").count() == 0


def is_end(event: Event) -> bool:
    status = event.attributes.get("spark.status.new")
    return event.attributes.get("spark.entity") == "application" and status in ("FAILED", "FINISHED")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360)])
def test_accessibility(opened: Open, day: tuple[Sequence[Event], EventReport], scheme: str, width: int) -> None:
    """axe finds no violation on the page or in the dialog of a failure, and no element is wider than the window."""
    axe = Axe()
    page = opened(day[1], width, 740, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for opens_dialog in (False, True):
        if opens_dialog:
            page.locator("#lanes .marker").first.click()
        found = axe.run(page).response["violations"]
        assert [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found] == []


def test_themes(opened: Open, day: tuple[Sequence[Event], EventReport]) -> None:
    """The page has the theme of the system, also after a change of the system's theme."""
    page = opened(day[1], color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") != LIGHT_TEXT
    page.emulate_media(color_scheme="light")
    assert page.evaluate("getComputedStyle(document.body).color") == LIGHT_TEXT


def test_keyboard(opened: Open, day: tuple[Sequence[Event], EventReport]) -> None:
    """Every function of the page can be used with the keyboard."""
    page = opened(day[1])
    window, plots = page.locator("#window"), page.locator("#plots")
    plots.focus()
    assert window.text_content() == ""
    page.keyboard.press("+")
    zoomed = window.text_content()
    assert "UTC" not in zoomed
    assert " to " in zoomed
    page.keyboard.press("ArrowRight")
    assert window.text_content() != zoomed
    page.keyboard.press("0")
    assert window.text_content() == ""
    page.locator('.lane[data-key="q:clickstream/clicks-per-minute"] .marker').first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.classList.contains('marker')")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Failures of query clicks-per-minute")
    for text in ("FetchFailedException: Failed to connect to h1", "FETCH_FAILURE", "at a.B.c(B.java:1)"):
        assert text in dialog.text_content()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.keyboard.press("/")
    page.keyboard.type("nightly")
    assert page.locator("#lanes .lane").count() == page.locator("#numbers tbody tr").count() == 1
    assert page.locator("#failures details").count() == 1


def test_brush(opened: Open, day: tuple[Sequence[Event], EventReport]) -> None:
    """Dragging over a plot zooms all plots, and the reset button shows the whole period again."""
    page = opened(day[1])
    page.locator("#h-timeline").scroll_into_view_if_needed()
    box = page.locator("#charts").bounding_box()
    before = page.locator("#lanes .marker").count()
    page.mouse.move(box["x"] + 500, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 620, box["y"] + 60, steps=4)
    assert page.locator("#brush").is_visible()
    page.mouse.up()
    assert " to " in page.locator("#window").text_content()
    assert page.locator("#lanes .marker").count() < before
    page.locator("#reset").click()
    assert page.locator("#lanes .marker").count() == before


def test_text_of_events_is_never_executed(opened: Open) -> None:
    """HTML and scripts in names, messages and stack traces of events are displayed as text and never executed."""
    evil = "</script><img src=x onerror=alert(1)>'\"&amp;<!--\u2028"
    story = Story()
    app = story.application(evil, "app-1")
    query = app.query(evil, "run-1", "javascript:alert(1)")
    query.status("RUNNING", START)
    query.commit(START + SECOND, 1)
    query.failure(START + MINUTE, "query", evil, **{"exception.stacktrace": evil, "failure.location": evil})
    query.status("FAILED", START + MINUTE)
    page = opened(report_of(story.events, draw=True))
    page.locator("#lanes .marker").first.click()
    assert page.locator("img, #lanes script").count() == 0
    assert page.locator("dialog pre").text_content() == evil
    assert "</script><img src=x onerror=alert(1)>" in page.locator("#problems").text_content()


def test_zones(opened: Open, day: tuple[Sequence[Event], EventReport]) -> None:
    """Times are in UTC or in the reader's time zone, and the page displays the name of the zone."""
    page = opened(day[1], timezone_id="America/New_York")
    assert "2026-11-18 11:06:40 to 2026-11-19 07:05:14 UTC" in page.locator("#period").text_content()
    page.get_by_role("button", name="Times: UTC").click()
    assert "2026-11-18 06:06:40 to 2026-11-19 02:05:14 America/New_York" in page.locator("#period").text_content()
    assert "failed since 2026-11-18 20:16:40" in page.locator("#problems").text_content()


def axis(page: Any) -> list[tuple[str, float]]:
    """Return the texts and positions of the axis, without the name of the zone."""
    found = page.locator("#axis text").evaluate_all("all => all.map(one => [one.textContent, +one.getAttribute('x')])")
    return [(text, x) for text, x in found if x > 0]


@pytest.mark.parametrize(("changes", "hours"), [(datetime(2026, 10, 25), 25), (datetime(2026, 3, 29), 23)])
def test_the_axis_follows_changes_of_the_clock(opened: Open, changes: datetime, hours: int) -> None:
    """In a local zone, each day begins at its midnight, also after a change to or from daylight saving time."""

    def local_axis(since: timedelta, until: timedelta) -> list[tuple[str, float]]:
        story, midnight = Story(), changes.replace(tzinfo=timezone.utc)
        for status, at in (("RUNNING", midnight + since), ("FINISHED", midnight + until)):
            story.application("a", "app-1").status(status, int(at.timestamp() * 1000))
        page = opened(report_of(story.events, draw=True), timezone_id="Europe/Berlin")
        page.get_by_role("button", name="Times: UTC").click()
        return axis(page)

    days = local_axis(timedelta(days=-3), timedelta(days=3, hours=9))
    assert [text for text, _ in days] == [f"{changes + timedelta(days=day):%Y-%m-%d}" for day in range(-2, 4)]
    widths = [right - left for (_, left), (_, right) in itertools.pairwise(days)]
    assert widths == pytest.approx([widths[0] * length / 24 for length in (24, 24, hours, 24, 24)])
    clock = local_axis(timedelta(hours=-4), timedelta(hours=20))
    assert {text for text, _ in clock} <= {f"{changes:%m-%d}"} | {f"{hour:02}:00" for hour in range(0, 24, 3)}
    assert len(clock) > 6


def test_headings_have_the_true_numbers(opened: Open) -> None:
    """The headings of the details count all entries, also those that only the JSON contains."""
    story = Story()
    app = story.application("a", "app-1")
    late: dict[str, Any] = {"spark.deadline.subject": "batch", "spark.deadline.rule": "batch"}
    for run in range(301):
        query = app.query("q", f"run-{run}")
        query.status("RUNNING", START + run * MINUTE)
        query.commit(START + run * MINUTE + SECOND, 90_000)
        query.event("DeadlineStatusChangeEvent", START + run * MINUTE + 2, **{**late, "spark.status.new": "OVERDUE"})
        about: dict[str, Any] = {"spark.watermark.subject": "partition", "spark.source.partition": f"p-{run}"}
        query.event("WatermarkStatusChangeEvent", START + run * MINUTE + 3, **{**about, "spark.status.new": "IDLE"})
        query.status("FAILED", START + run * MINUTE + 2 * SECOND)
    report = report_of(story.events, draw=True, sla_ms=1_000)
    page = opened(dataclasses.replace(report, notes=tuple(f"note {number}" for number in range(203))))
    headings = page.locator("#details summary").all_text_contents()
    assert headings == ["Downtime (300)", "Commits over the SLA (301)", "Overdue (301)", "Idle (301)", "Runs (302)"]
    hints = page.locator("#details .hint").all_text_contents()
    more = [100, 101, 101, 101, 302 - 51]
    assert hints == [f"{number} more: spark-events report --json" for number in more]
    assert page.locator("#notes li").last.text_content() == "3 more notes: spark-events report --json"
    page.locator("#search").fill("run-300")
    assert page.locator("#details summary").all_text_contents() == ["Runs (1 of the 51 on this page)"]
    assert page.locator("#details .hint").count() == 0


def test_print(opened: Open, day: tuple[Sequence[Event], EventReport]) -> None:
    """A printed page uses the light theme and includes collapsed sections."""
    page = opened(day[1], color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator("details:not([open])").count() > 0
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == LIGHT_TEXT
    assert page.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("width", [718, 1024])
def test_a_printed_table_has_all_its_columns(
    opened: Open, day: tuple[Sequence[Event], EventReport], width: int
) -> None:
    """718 pixels are the width of A4 without its margins."""
    page = opened(day[1], width, 740)
    page.emulate_media(media="print")
    widths = page.evaluate("[...document.querySelectorAll('.scroll')].map((one) => [one.scrollWidth, one.clientWidth])")
    assert len(widths) > 3
    assert [one for one in widths if one[0] > one[1]] == []


def test_live(opened: Open) -> None:
    """A page from the server displays new events without a reload."""
    story = Story()
    app = story.application("a", "app-1")
    app.status("RUNNING", START)
    server = ReportServer(lambda: report_of(story.events, now=START + 2 * MINUTE, draw=True), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = opened(server.url)
        outcome = page.locator("#numbers [data-field=outcome]")
        assert outcome.text_content() == "RUNNING"
        app.status("FAILED", START + MINUTE)
        server._valid_until = 0.0
        # Poll in the test: the page's policy forbids the `eval` that wait_for_function needs.
        expect(outcome).to_have_text("FAILED", timeout=60_000)
    finally:
        server.shutdown()
        server.server_close()


def test_the_page_of_a_large_report_is_small(opened: Open) -> None:
    """The page of a report with many failures, runs and commits is at most a few megabytes and renders quickly."""
    story = Story()
    for number in range(150):
        app = story.application(f"app-{number:03d}", f"id-{number}")
        for run in range(20):
            query = app.query(f"query-{number}", f"run-{number}-{run}")
            query.status("RUNNING", START + run * MINUTE)
            query.commit(START + run * MINUTE + SECOND, 90_000)
            query.failure(START + run * MINUTE + 2 * SECOND, "query", f"ValueError: {number} {run % 7}")
            query.status("FAILED", START + run * MINUTE + 2 * SECOND)
    report = report_of(story.events, draw=True, sla_ms=1_000)
    assert len(page_of(report)) < 6_000_000
    page = opened(report)
    shown = page.locator("#lanes .marker").evaluate_all("all => all.map(one => Number(one.dataset.count))")
    embedded = json.loads(page.locator("#data").text_content())["drawing"]["markers"]
    drawn = set(page.locator(".lane").evaluate_all("all => all.map(one => one.dataset.key)"))
    assert sum(shown) == sum(one["count"] for one in embedded if one["subject"] in drawn)
    assert sum(one["count"] for one in embedded) == report.failure_count == 3_000


def large(queries: int, failing: int, causes: int = 3) -> Story:
    """Return an application whose first queries have just failed, each with one of several causes."""
    story = Story()
    app = story.application("shop", "app-1")
    app.status("RUNNING", START)
    for number in range(queries):
        query = app.query(f"query-{number:03d}", f"run-{number}")
        query.status("RUNNING", START)
        for minute in range(1, 4):
            query.commit(START + minute * MINUTE, 100)
        if number < failing:
            query.failure(START + 4 * MINUTE, "query", f"ValueError: cause {number % causes}")
            query.status("FAILED", START + 4 * MINUTE)
    return story


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_five_hundred_queries_fit_on_a_page(opened: Open, width: int) -> None:
    """Failing queries come first, healthy ones are collapsed, and a phone's page has less than 10,000 pixels."""
    report = report_of(large(500, 71).events, now=START + 5 * MINUTE, draw=True)
    page = opened(report, width=width)
    assert page.title() == "(3) Spark events report"
    assert page.locator("#problems .problem").count() == 3
    assert "24 queries of 'shop' are down since" in page.locator("#problems").text_content()
    assert page.locator("#healthy summary").text_content() == "429 healthy"
    assert page.locator("#healthy .lane").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == 390:
        assert page.evaluate("document.documentElement.scrollHeight") < 10_000
    page.locator("#healthy summary").click()
    expect(page.locator("#healthy .lane").first).to_be_visible()


@pytest.mark.parametrize(("width", "cards"), [(1440, 71), (390, 5)])
def test_as_many_causes_as_failed_queries_fit_on_a_page(opened: Open, width: int, cards: int) -> None:
    """A phone shows the first cards and a button for the others; the address of a hidden card shows it."""
    report = report_of(large(500, 71, causes=71).events, now=START + 5 * MINUTE, draw=True)
    page = opened(report, width=width)
    shown = page.locator("#problems .problem")
    assert (page.title(), shown.count()) == ("(71) Spark events report", cards)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width != 390:
        return
    assert page.evaluate("document.documentElement.scrollHeight") < 10_000
    assert Axe().run(page).violations_count == 0
    page.get_by_role("button", name="66 more").click()
    expect(shown).to_have_count(71)
    expect(shown.nth(5).locator("button").first).to_be_focused()
    again = opened(report, width=width)
    again.evaluate("id => { location.hash = `incident=${id}`; }", report.problems[-1].id)
    expect(again.locator(".problem.chosen")).to_be_visible()


def test_a_card_is_copied_as_text(opened: Open) -> None:
    """The text is that of the terminal, with the committed offsets, which the card shows too."""
    story = nightly()
    offsets = '{"orders":{"0":4100,"1":4213}}'
    app = story.application("shop", "app-9")
    query = app.query("book", "run-9")
    app.status("RUNNING", START + HOUR)
    query.status("RUNNING", START + HOUR)
    query.commit(START + 2 * HOUR, 900)
    about: dict[str, Any] = {"spark.streaming.query.committed_offsets": offsets, "spark.batch.id": 1}
    query.failure(START + 3 * HOUR, "query", **about)
    query.status("FAILED", START + 3 * HOUR)
    report = report_of(story.events, now=START + 30 * HOUR, draw=True)
    (problem,) = (one for one in report.problems if one.name == "book")
    page = opened(report, permissions=["clipboard-read", "clipboard-write"])
    card = page.locator(".problem").filter(has_text="Query 'book'")
    expect(card).to_contain_text(offsets)
    copy = card.get_by_role("button", name="Copy as text")
    copy.click()
    expect(card.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == problem.text
    assert f"offsets {offsets}" in problem.text
    expect(copy).to_be_visible()


def test_a_long_name_is_cut_and_escaped_in_its_lane(opened: Open) -> None:
    """Nothing of it is hidden or turned round, and the whole line stays within its column."""
    page = opened(report_of(hostile_names().events, now=NOW, draw=True), width=1024)
    names = page.locator("#lanes .lane > div").first.locator("button, .name").all()
    assert len(names) == 1
    for name in names:
        text = name.text_content()
        assert len(text) == 120
        assert text.startswith("\\u202egnp.exe\\u202c \\x1b[31mred")
        assert text.endswith("…")
        assert not set("\u202e\u202c\x1b\n") & set(text)
        assert len(name.get_attribute("title")) > 120
    assert page.evaluate("document.documentElement.scrollWidth") <= 1024


def test_a_card_has_an_address_and_links(opened: Open, tmp_path: Path) -> None:
    """The address of a card shows it; its links are the runbook and the history server, not the UI of the dead."""
    report = report_of(nightly().events, now=START + 30 * HOUR, draw=True)
    page = opened(report)
    card = page.locator(".problem")
    assert [link.text_content() for link in card.locator("a").all()] == ["runbook", "history server", "Link to this"]
    card.get_by_text("Link to this").click()
    expect(card).to_have_class("problem error chosen")
    assert page.url.endswith(f"#incident={report.problems[0].id}")
    assert card.locator("code").text_content().startswith("spark-events why ")
    assert Axe().run(page).violations_count == 0
