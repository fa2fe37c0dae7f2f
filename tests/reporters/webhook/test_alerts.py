"""Tests that alerts open once and close once, with a real Alertmanager and recorded endpoints."""

from __future__ import annotations

import json
import os
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
    event,
    eventually,
    query_progress,
    query_started,
    query_terminated,
)
from unit.translate.test_incidents import SINK, SITUATIONS, STREAMING

from reporters.awkward import AWKWARD, awkward_event
from reporters.peers.alertmanager import Alertmanager, incidents
from reporters.peers.webhook import Answer, Receiver
from reporters.running import IMPATIENT, Running
from spark_events import Event, Severity
from spark_events.config import Settings
from spark_events.dispatch.delivery import Hooks
from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.entries import Entry
from spark_events.pipeline import build
from spark_events.reporters.webhook.alerts import Alerts
from spark_events.session.callbacks import delivery_of
from spark_events.session.event_history import EventMatcher
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
    expected = [] if body is None else [body]
    with AllAlertReporters(receivers, alertmanager, tmp_path) as run:
        run.report(translated(*records, name=name))
        assert [one.body for one in run.alarms] == expected
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
    title = f"{name}: query 'book' failed at batch 1: java.io.IOException: No space left on device"
    (incident,) = incidents(receivers["pagerduty"].bodies())
    assert incident == (f"spark-events:{name}/query=book/failure", title, False)
    triggers = [one for one in receivers["pagerduty"].bodies() if one["event_action"] == "trigger"]
    assert len(triggers) == (1 if cooldown == "10min" else 3)
    recovery = f"{name}: query 'book' committed batch 1 in 100 ms: 5 rows"
    eventually(lambda: alertmanager.notifications(name) == [("firing", title), ("resolved", recovery)])
    for titles in chat(receivers):
        assert titles == [f"ERROR: {title}"] * len(triggers) + [f"Recovered: {recovery}"]
    assert "*Failures:* 3" in receivers["slack"].bodies()[-1]["attachments"][0]["text"]


def test_alertmanager_needs_no_memory_and_no_common_clock(alertmanager: Alertmanager, tmp_path: Path) -> None:
    """A machine whose clock is ahead can close the alert of another machine. A recovery alone opens no alert."""
    now = time.time_ns() // 1_000_000
    names = {"incident.key": "ahead/failure", "spark.app.name": "ahead"}
    for folder, at, role in (("a", -5, "alarm"), ("b", 600_000, "recovery"), ("c", 600_001, "recovery")):
        keys = {"url": alertmanager.url, "format": "alertmanager", "alerts.directory": str(tmp_path / folder)}
        with Running("webhook", {**keys, **IMPATIENT}) as running:
            running.deliver([event(now + at - 1_700_000_000_000, Severity.ERROR, **names, **{"incident.role": role})])
            assert running.counters.failures == 0
        wanted = ["firing", "resolved"][: 1 + (role == "recovery")]
        eventually(lambda wanted=wanted: [one for one, _ in alertmanager.notifications("ahead")] == wanted)  # type: ignore[misc]
    assert alertmanager.active("ahead") == []


def alarm(at: int = 0, severity: Severity = Severity.ERROR, **attributes: Any) -> Event:
    about = {"incident.key": "shop/clicks/failure", "incident.role": "alarm", "spark.app.name": "shop"}
    return event(at, severity, **{**about, **attributes})


def sent(format: str, *events: Event, folder: Path, **settings: str) -> list[Any]:
    """Return the bodies of the requests for the given events."""
    keys = {"format": format, "alerts.directory": str(folder), **IMPATIENT, **settings}
    with Receiver() as receiver, Running("webhook", {"url": receiver.url, **keys}) as running:
        running.deliver(events)
        assert running.counters.failures == 0
        return receiver.bodies()


def test_pagerduty_receives_cause_line_and_links(tmp_path: Path) -> None:
    """PagerDuty receives keys and summaries within its limits, and the severities and links of its Events API v2."""
    detail = {
        "failure.root_cause": "ValueError: no",
        "failure.location": "/jobs/a.py:3 in f",
        "error.type": "ValueError",
    }
    links = {
        "incident.runbook_url": "https://wiki/shop",
        "spark.ui.url": "http://h:4040",
        "spark.history.url": "no link",
    }
    key = {"incident.key": "k" * 300, "host.name": "h1", "spark.streaming.query.name": "clicks"}
    long = Event.builder("s", "JobFailureEvent").set_body("x" * 3000).set_severity("FATAL").set_observed_ts_millis(1)
    made = long.set_attributes({**alarm().attributes, **detail, **links, **key}).build()
    one, other = sent(
        "pagerduty",
        made,
        alarm(5, Severity.WARN),
        folder=tmp_path,
        **{"routing-key": "R", "filter.min-severity": "WARN"},
    )
    assert (one["routing_key"], one["event_action"], len(one["dedup_key"])) == ("R", "trigger", 255)
    payload = one["payload"]
    assert (payload["severity"], payload["source"], payload["component"]) == ("critical", "h1", "shop / clicks")
    assert (payload["class"], payload["summary"][:8], len(payload["summary"])) == ("ValueError", "shop: xx", 1024)
    assert payload["custom_details"]["Code"] == "/jobs/a.py:3 in f"
    assert one["links"] == [
        {"href": "https://wiki/shop", "text": "Runbook"},
        {"href": "http://h:4040", "text": "Spark UI"},
    ]
    assert (other["dedup_key"], other["payload"]["severity"]) == ("spark-events:shop/clicks/failure", "warning")
    assert other["payload"]["timestamp"] == "2023-11-14T22:13:20.005Z"


def test_alertmanager_receives_labels_annotations_and_an_end(alertmanager: Alertmanager, tmp_path: Path) -> None:
    """Alertmanager receives equal labels for an alert and the recovery. An alert without a recovery has no end time."""
    url = {"incident.runbook_url": "https://wiki/shop", "spark.ui.url": "http://h:4040"}
    (made,), (own,) = sent("alertmanager", alarm(1, Severity.ERROR, **url), event(2, Severity.ERROR), folder=tmp_path)
    assert made["labels"] == {
        "alertname": "SparkFailure",
        "severity": "critical",
        "incident_key": "shop/clicks/failure",
        "spark_app_name": "shop",
    }
    assert made["annotations"]["runbook_url"] == "https://wiki/shop"
    assert (made["generatorURL"], made["annotations"]["summary"]) == ("http://h:4040", "shop: 1")
    assert (made["startsAt"], made["endsAt"]) == ("2023-11-14T22:13:20.001Z", "2023-11-21T22:13:20.001Z")
    assert (own["labels"]["alertname"], own["labels"]["incident_key"], "endsAt" in own) == (
        "SparkEvent",
        "spark/Test",
        False,
    )


def test_an_alert_is_escalated_within_the_cooldown(tmp_path: Path) -> None:
    """If an alert becomes more severe, such as a deadline at three times its limit, it is sent despite the cooldown."""
    key: dict[str, Any] = {"incident.key": "shop/clicks/deadline-batch", "spark.deadline.location": "Sink.scala:3"}
    warn, error, again = (
        alarm(at, severity, **key) for at, severity in ((1, Severity.WARN), (2, Severity.ERROR), (3, Severity.WARN))
    )
    settings = {"filter.min-severity": "WARN"}
    bodies = sent("alertmanager", warn, error, again, folder=tmp_path, **settings)
    assert [one["labels"]["severity"] for (one,) in bodies] == ["warning", "critical"]
    assert {one["labels"]["alertname"] for (one,) in bodies} == {"SparkDeadline"}
    assert bodies[1][0]["annotations"]["code"] == "Sink.scala:3"


def test_the_cooldown_continues_after_a_restart(tmp_path: Path) -> None:
    """A failing application sends one message per cooldown with the number of failures, even across restarts."""
    minute = 60_000
    with Receiver() as receiver:
        keys = {"url": receiver.url, "format": "slack", "alerts.directory": str(tmp_path)}
        for at, expected in ((0, 1), (3, 1), (6, 1), (12, 2), (8 * 1440, 3)):
            with Running("webhook", keys) as running:
                running.deliver([alarm(at * minute)])
            assert len(receiver.bodies()) == expected
    # After a week without a recovery, the reporter deletes an alert.
    assert [body["attachments"][0]["text"] for body in receiver.bodies()] == ["", "*Failures:* 4 in 12 min", ""]


def test_without_a_directory_only_messages_of_recovery_are_missing(tmp_path: Path) -> None:
    """If the directory cannot be created, alerts are sent, but only the same process can send the recovery."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    recovery = event(9, **{"incident.key": "shop/clicks/failure", "incident.role": "recovery"})
    assert len(sent("slack", alarm(), alarm(1), recovery, folder=blocked / "alerts")) == 2
    assert sent("slack", recovery, folder=blocked / "alerts") == []
    (resolved,) = sent("pagerduty", recovery, folder=blocked / "alerts", **{"routing-key": "R"})
    assert (resolved["event_action"], "payload" in resolved) == ("resolve", False)


def test_a_chat_may_have_all_events(tmp_path: Path) -> None:
    """If a chat receives all events, each alert is a separate message; a recovery without an alert is a plain event."""
    recovery = event(9, **{"incident.key": "shop/clicks/failure", "incident.role": "recovery"})
    events = [event(0), event(1), recovery, alarm(2), event(3, **{"incident.role": "consequence"})]
    bodies = sent("teams", *events, folder=tmp_path, **{"filter.min-severity": "INFO", "batch.linger": "5s"})
    texts = [[block.get("text") for block in body["attachments"][0]["content"]["body"]] for body in bodies]
    assert [text for message in texts for text in message if text] == [
        "INFO: 0",
        "INFO: 1",
        "INFO: 9",
        "ERROR: shop: 2",
        "INFO: 3",
    ]


@pytest.mark.parametrize("format", ["slack", "teams", "pagerduty", "alertmanager"])
def test_every_character_of_an_alert_arrives(format: str, tmp_path: Path) -> None:
    """Alerts keep every character of the event, but strings in an event cannot mention people or create links."""
    text = {"failure.root_cause": f"[x](http://evil) {AWKWARD}", "incident.role": "alarm", "incident.key": "a\ud800/b"}
    routing = {"routing-key": "R"} if format == "pagerduty" else {}
    odd = msgspec.structs.replace(awkward_event(text), severity=Severity.ERROR)
    (body,) = sent(format, odd, folder=tmp_path, **routing)
    assert "emoji:🦊" in json.dumps(body, ensure_ascii=False)
    if format in ("slack", "teams"):
        assert "<!channel>" not in json.dumps(body) or format == "teams"
        assert "[x](http" not in json.dumps(body) or format == "slack"


def test_an_alert_is_stored_when_it_is_accepted(tmp_path: Path) -> None:
    """The reporter stores only accepted alerts: for a rejected alert, it sends no message about the recovery."""
    recovery = event(9, **{"incident.key": "shop/clicks/failure", "incident.role": "recovery"})
    keys = {"format": "slack", "alerts.directory": str(tmp_path), **IMPATIENT}
    with (
        Receiver([Answer(400), Answer(503), Answer(503)]) as receiver,
        Running("webhook", {"url": receiver.url, **keys}) as running,
    ):
        running.deliver([alarm(1)])
        running.deliver([recovery])
        assert receiver.bodies() == []
        running.deliver([alarm(2)])
        assert (running.counters.failures, len(receiver.bodies())) == (3, 1)


def test_alerts_that_cannot_be_stored_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the folder cannot be created, alerts are sent, and one message says what may happen."""
    (tmp_path / "file").touch()
    alerts = Alerts("destination", tmp_path / "file" / "alerts", 60, 3600)
    for number in range(2):
        notice = alerts.notice(event(number * 100_000))
        assert notice is not None
        alerts.sent(notice)
    (message,) = caplog.messages
    assert message.startswith("cannot store open alerts: ")
    assert message.endswith(f"check the files and the permissions of {tmp_path / 'file' / 'alerts'}")


def test_an_alert_that_cannot_be_read_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the file of an alert is damaged, the alert counts as unknown, and one message contains the reason."""
    first = Alerts("destination", tmp_path, 60, 3600)
    notice = first.notice(alarm())
    assert notice is not None
    first.sent(notice)
    (file,) = tmp_path.glob("*.json")
    file.write_bytes(b"{")
    second = Alerts("destination", tmp_path, 60, 3600)
    assert second.notice(alarm(1)) is not None
    assert second.notice(alarm(2)) is not None
    (message,) = caplog.messages
    assert message.startswith("cannot read open alerts: ")


def test_expired_alerts_that_cannot_be_deleted_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the file of an expired alert cannot be deleted, one message contains the reason."""
    file = tmp_path / f"{0:032x}.json"
    file.touch()
    os.utime(file, (0, 0))

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    Alerts("destination", tmp_path, 60, 3600).forget_expired()
    (message,) = caplog.messages
    assert message.startswith(f"cannot delete open alerts: [Errno 13] Permission denied: '{file}'")


def opened(alerts: Alerts, number: int, at: float = 0.0) -> None:
    """Open a separate alert with an event at this time, in seconds since the epoch."""
    one = event(number, **{"incident.key": f"shop/order-{number}/failure", "incident.role": "alarm"})
    notice = alerts.notice(msgspec.structs.replace(one, observed_ts_millis=round((at or time.time()) * 1000)))
    assert notice is not None
    alerts.sent(notice)


def test_only_expired_files_of_alerts_are_deleted(tmp_path: Path) -> None:
    """The reporter deletes neither foreign files in the folder nor alerts of a reporter with a longer expiry."""
    for name in ("dashboard.json", "0123.json", f"{0:032X}a.json"):
        (tmp_path / name).write_text("{}")
    foreign = {file.name for file in tmp_path.iterdir()}
    week_ago = time.time() - 7 * 86_400
    opened(Alerts("patient", tmp_path, 60, 30 * 86_400), 1, week_ago)
    kept = {file.name for file in tmp_path.iterdir()}
    opened(Alerts("hasty", tmp_path, 60, 3_600), 2, week_ago)
    damaged = tmp_path / f"{0:032x}.json"
    damaged.write_bytes(b"{")
    for file in tmp_path.iterdir():
        os.utime(file, (week_ago, week_ago))
    with Receiver() as receiver:
        keys = {"format": "slack", "alerts.directory": str(tmp_path), "alerts.expire-after": "1h"}
        with Running("webhook", {"url": receiver.url, **keys}) as running:
            running.deliver([alarm(3)])
    assert foreign < kept
    assert kept < {file.name for file in tmp_path.iterdir()}
    assert len(list(tmp_path.iterdir())) == len(kept) + 1
    assert not damaged.exists()


def test_alerts_in_memory_are_bounded() -> None:
    """Without a folder, the reporter forgets the oldest alerts; a recent alert is only counted."""
    alerts = Alerts("destination", None, 60, 3_600, most_known=2)
    now = time.time()
    for number in (1, 2, 3):
        opened(alerts, number, now)
    opened(alerts, 1, now)
    recent = event(3, **{"incident.key": "shop/order-3/failure", "incident.role": "alarm"})
    repeated = msgspec.structs.replace(recent, event_id="other", observed_ts_millis=round(now * 1000))
    assert alerts.notice(repeated) is None
