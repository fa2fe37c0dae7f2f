"""Tests that each kind of failure opens one alert and closes it, from records to all services."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import (
    application_end,
    application_start,
    decoded,
    eventually,
    query_progress,
    query_started,
    query_terminated,
)
from unit.translate.test_incidents import SINK, SITUATIONS, STREAMING

from reporters.peers.alertmanager import Alertmanager, incidents
from reporters.peers.webhook import Receiver
from spark_events import Event
from spark_events.config import Settings
from spark_events.dispatch.delivery import Hooks
from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.pipeline import build
from spark_events.reporters.alerts.card import title_of
from spark_events.stream.callbacks import delivery_of
from spark_events.stream.event_history import EventMatcher
from spark_events.translate.translator import Translator


@pytest.fixture(scope="module")
def alertmanager() -> Iterator[Alertmanager]:
    with Alertmanager() as started:
        yield started


def translated(*records: dict[str, Any], name: str = "shop", run: str = "1") -> list[Event]:
    """Return the events of one run of an application, one per millisecond, starting now."""
    translator = Translator()
    story = [application_start(app_name=name, app_id=f"local-{run}"), *records]
    events = [one for n, record in enumerate(story, 1) for one in translator.translate(decoded({"seq": n, **record}))]
    first = time.time_ns() // 1_000_000 - len(events)
    return [msgspec.structs.replace(one, observed_ts_millis=first + n) for n, one in enumerate(events)]


class AllAlertReporters:
    """Run of an application with callbacks and reporters for all kinds of alerts, as a context manager."""

    def __init__(self, receivers: dict[str, Receiver], alertmanager: Alertmanager, folder: Path, **more: str) -> None:
        settings: dict[str, str] = {}
        for format in ("pagerduty", "slack", "teams", "alertmanager"):
            prefix = f"events.reporter.{format}"
            url = alertmanager.url if format == "alertmanager" else receivers[format].url
            keys = {
                "type": "webhook",
                "format": format,
                "url": url,
                "alerts.directory": str(folder),
                "batch.linger": "0ms",
                **more,
            }
            settings |= {f"{prefix}.{key}": value for key, value in keys.items()}
        settings["events.reporter.pagerduty.routing-key"] = "R0UT1NG"
        self.alarms: list[Event] = []
        self.recoveries: list[Event] = []
        callbacks = [
            ("alarm", self.alarms.append, EventMatcher.of(("JobFailureEvent",), min_severity="ERROR")),
            ("recovery", self._recover, EventMatcher.of(("BatchCommitEvent", "JobStatusChangeEvent"))),
        ]
        deliveries = list(build(Settings.of(settings)).deliveries)
        deliveries += [delivery_of(*one, 60.0, 1000, lambda: None)(Hooks()) for one in callbacks]
        self._deliveries = deliveries
        self._dispatcher = Dispatcher(deliveries, 5.0, lambda: None)

    def _recover(self, event: Event) -> None:
        if event.attributes.get("incident.role") == "recovery":
            self.recoveries.append(event)

    def __enter__(self) -> AllAlertReporters:
        self._dispatcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._dispatcher.stop(time.monotonic() + 10)

    def report(self, events: Sequence[Event]) -> None:
        self._dispatcher.dispatch([Entry(0, one) for one in events], 0)
        for delivery in self._deliveries:
            assert delivery.wait_until_settled(20), delivery.counters()
            assert delivery.counters().failures == 0


@pytest.fixture
def receivers() -> Iterator[dict[str, Receiver]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(Receiver()) for name in ("pagerduty", "slack", "teams")}


def chat(receivers: dict[str, Receiver]) -> list[list[str]]:
    """Return the titles of the messages in Slack and Teams."""
    slack = [body["text"] for body in receivers["slack"].bodies()]
    cards = [body["attachments"][0]["content"]["body"][0]["text"] for body in receivers["teams"].bodies()]
    return [slack, cards]


@pytest.mark.parametrize("kind", SITUATIONS)
def test_a_failure_is_one_alert_with_its_cause_and_its_recovery(
    kind: str, receivers: dict[str, Receiver], alertmanager: Alertmanager, tmp_path: Path
) -> None:
    """A failure opens one alert, with its cause, at all services and in a callback; the recovery closes the alert.

    A failure that the application survives opens no alert.
    """
    records, body = SITUATIONS[kind]
    name = f"shop-{kind}"
    body = None if body is None else body.replace("shop:", f"{name}:")
    with AllAlertReporters(receivers, alertmanager, tmp_path) as run:
        run.report(translated(*records, name=name))
        assert [one.body for one in run.alarms] == ([] if body is None else [body])
        expected = [title_of(one) for one in run.alarms]
    assert [(one.summary, one.is_open) for one in incidents(receivers["pagerduty"].bodies())] == [
        (one, True) for one in expected
    ]
    for titles in chat(receivers):
        assert titles == [f"ERROR: {one}" for one in expected]
    assert [alert["annotations"]["summary"] for alert in alertmanager.active(name)] == expected
    eventually(lambda: alertmanager.notifications(name) == [("firing", one) for one in expected])
    # The next run is another process, which learns about the failure only from the files on disk.
    works = [query_started("r9", name="book-payments"), query_progress(1, "r9", name="book-payments")]
    with AllAlertReporters(receivers, alertmanager, tmp_path) as run:
        good = [*(works if STREAMING[0] in records else []), application_end()]
        run.report(translated(*good, name=name, run="2"))
        assert [one.body for one in run.alarms] == []
        assert len(run.recoveries) >= 1
    assert [one.is_open for one in incidents(receivers["pagerduty"].bodies())] == [False] * len(expected)
    for titles in chat(receivers):
        assert [title.partition(":")[0] for title in titles] == ["ERROR", "Recovered"] * len(expected)
    assert alertmanager.active(name) == []
    statuses = ["firing", "resolved"] * len(expected)
    eventually(lambda: [status for status, _ in alertmanager.notifications(name)] == statuses)


@pytest.mark.parametrize("cooldown", ["10min", "0ms"])
def test_a_query_that_fails_three_times_and_commits_is_one_incident(
    cooldown: str, receivers: dict[str, Receiver], alertmanager: Alertmanager, tmp_path: Path
) -> None:
    """A query that fails three times and then commits is one incident, which opens once and closes once.

    Within the cooldown, the reporter sends the alert once. The recovery contains the number of failures.
    """
    name = f"clickstream-{cooldown}"
    records = [query_started(name="book"), query_progress(0, name="book")]
    for n in range(1, 4):
        records += [query_terminated(f"r{n}", exception=SINK), query_started(f"r{n + 1}", name="book")]
    with AllAlertReporters(receivers, alertmanager, tmp_path, cooldown=cooldown) as run:
        events = translated(*records, name=name)
        run.report(events)
        assert len(run.alarms) == 3
        assert [one.is_open for one in incidents(receivers["pagerduty"].bodies())] == [True]
        eventually(lambda: [status for status, _ in alertmanager.notifications(name)] == ["firing"])
        run.report(translated(*records, query_progress(1, "r4", name="book"), name=name)[len(events) :])
    title = f"IOException: No space left on device – {name}: query 'book' failed at batch 1"
    (incident,) = incidents(receivers["pagerduty"].bodies())
    assert incident == (f"spark-events:{run.recoveries[0].attributes['incident.key']}", title, False)
    triggers = [one for one in receivers["pagerduty"].bodies() if one["event_action"] == "trigger"]
    assert len(triggers) == (1 if cooldown == "10min" else 3)
    recovery = f"{name}: query 'book' committed batch 1 in 100 ms: 5 rows"
    eventually(lambda: alertmanager.notifications(name) == [("firing", title), ("resolved", recovery)])
    for titles in chat(receivers):
        assert titles == [f"ERROR: {title}"] * len(triggers) + [f"Recovered: {recovery}"]
    (section, *_) = receivers["slack"].bodies()[-1]["attachments"][0]["blocks"]
    assert section["fields"][0]["text"].startswith("*Failures*\n3")
