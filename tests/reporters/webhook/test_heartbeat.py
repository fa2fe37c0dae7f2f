"""Tests of the ``heartbeat`` reporter with a real receiver."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import (
    START,
    FakeDriver,
    application_end,
    application_start,
    decoded,
    event,
    eventually,
    goodbye,
    query_started,
)

from reporters.peers.alertmanager import Alertmanager
from reporters.peers.webhook import Answer, Receiver, Request
from reporters.running import IMPATIENT, Running
from spark_events import Event
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

MINUTE = 60_000


def life(*ends: dict[str, Any], beats: int = 1) -> list[Event]:
    """Return the events of an application: start, a query, heartbeats and end of the application."""
    translator = Translator(TranslateConfig(heartbeat_interval=60.0))
    events = [one for record in (application_start(), query_started()) for one in translator.translate(decoded(record))]
    for beat in range(beats):
        events += translator.tick(START + beat * MINUTE)
    return [*events, *(one for end in ends for one in translator.translate(decoded(end)))]


def end_of(alert: dict[str, Any]) -> float:
    return datetime.fromisoformat(alert["endsAt"].replace("Z", "+00:00")).timestamp()


def pinged(events: list[Event], **settings: str) -> list[Request]:
    with Receiver() as receiver, Running("heartbeat", {"url": receiver.url, **IMPATIENT, **settings}) as running:
        running.deliver(events)
        assert running.counters.delivered == running.counters.accepted
        return list(receiver.taken)


@pytest.mark.parametrize(
    ("end", "suffix"),
    [
        (application_end("STOPPED"), "/hook"),
        (application_end("PROGRAM_FAILED"), "/hook/fail"),
        (application_end("SIGTERM"), "/hook/log"),
        (application_end("GATEWAY_CLOSED"), "/hook/log"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["ending"],
)
def test_the_urls_of_healthchecks(end: dict[str, Any], suffix: str) -> None:
    """Healthchecks receives pings with one run id for start, heartbeats and end. Other events cause no ping."""
    pings = pinged(life(end))
    assert [ping.path.partition("?")[0] for ping in pings] == ["/hook/start", "/hook", suffix]
    (query,) = {ping.path.partition("?")[2] for ping in pings}
    assert query.startswith("token=t0psecret&rid=")
    assert pings[0].body == b"Application 'shop' started"


def test_metrics_for_a_pushgateway() -> None:
    """A Pushgateway receives Prometheus' text format, in a group with the encoded name of the application."""
    start, alive, failure = pinged(life(application_end("PROGRAM_FAILED")), format="pushgateway")
    assert start.path == "/hook/metrics/job/spark-events/application@base64/c2hvcA==?token=t0psecret"
    lines = alive.body.decode().splitlines()
    assert {"spark_app_running 1", "spark_app_running_queries 1"} <= set(lines)
    assert f"spark_app_last_seen_timestamp_seconds {START / 1000}" in lines
    assert all(line.startswith("# TYPE spark_app_") and line.endswith(" gauge") for line in lines[::2])
    assert b"spark_app_running 0\n" in failure.body
    assert b"spark_app_last_failure_timestamp_seconds" in failure.body


def test_a_watchdog_for_alertmanager() -> None:
    """Each heartbeat opens an alert at Alertmanager for three intervals. A failure opens a second alert."""
    before = time.time()
    pings = pinged(life(application_end("PROGRAM_FAILED")), format="alertmanager")
    start, alive, failure = (ping.json for ping in pings)
    assert [one["labels"]["alertname"] for one in failure] == ["SparkApplicationAlive", "SparkApplicationFailed"]
    assert "endsAt" not in start[0]
    # The answers of the receiver contain its clock, in whole seconds.
    assert before + 179 <= end_of(alive[0]) <= time.time() + 181
    assert {"endsAt" in one for one in failure} == {True, False}


@pytest.mark.parametrize("ahead", [-3_600_000, 0, 3_600_000])
def test_the_clock_of_the_driver_does_not_matter_to_alertmanager(ahead: int) -> None:
    """A real Alertmanager ends the watchdog alert three intervals after a heartbeat, whatever the driver's clock."""
    now = time.time_ns() // 1_000_000 + ahead
    events = [msgspec.structs.replace(one, observed_ts_millis=now) for one in life(application_end("STOPPED"))]
    with (
        Alertmanager() as monitor,
        Running("heartbeat", {"url": monitor.url, **IMPATIENT, "format": "alertmanager"}) as running,
    ):
        running.deliver(events[:-1])
        (alert,) = monitor.active("shop")
        assert abs(end_of(alert) - time.time() - 180) < 60
        running.deliver(events[-1:])
        eventually(lambda: monitor.active("shop") == [], what="the end of the alert")
        assert running.counters.failures == 0


def test_waiting_heartbeats_cause_one_ping() -> None:
    """After an outage of the monitor, only the last heartbeat is sent, and no ping is repeated."""
    script = [Answer(503), Answer(503)]
    with Receiver(script) as receiver, Running("heartbeat", {"url": receiver.url, **IMPATIENT}) as running:
        running.deliver(life(application_end("STOPPED"), beats=5))
        suffixes = [ping.path.partition("?")[0] for ping in receiver.taken]
    assert suffixes == ["/hook/start", "/hook", "/hook"]


def test_every_refused_ping_is_counted() -> None:
    """Refused pings are counted as rejected, also when a later ping of the same batch has to be repeated."""
    script = [Answer(400), Answer(400), Answer(503), Answer()]
    with Receiver(script) as receiver, Running("heartbeat", {"url": receiver.url, **IMPATIENT}) as running:
        running.deliver(life(application_end("STOPPED")))
        assert running.counters.dropped == {"rejected": 2}


def test_events_without_a_signal_are_not_buffered() -> None:
    """During an outage of the monitor, events for which the reporter sends no ping are neither buffered nor dropped."""
    with (
        Receiver(decide=lambda _: Answer(503)) as receiver,
        Running("heartbeat", {"url": receiver.url, **IMPATIENT}) as running,
    ):
        running.put(life())
        running.await_failures()
        running.put([event(n) for n in range(100)])
        assert (running.counters.accepted, running.counters.held) == (2, 2)


def test_a_filter_of_the_user_replaces_the_default() -> None:
    """With its own ``filter.includes``, the reporter receives the selected events, and sends no ping for others."""
    assert pinged([event(n) for n in range(3)], **{"filter.includes": "*:*"}) == []


def test_a_monitor_that_does_not_answer_delays_nothing(tmp_path: Path) -> None:
    """A monitor that does not answer delays no other reporter, and delays the application's end by about 2 s."""
    other = tmp_path / "events.jsonl"
    with Receiver(decide=lambda _: Answer(hang=True)) as receiver:
        settings = {
            "events.heartbeat.interval": "100ms",
            "events.reporter.monitor.type": "heartbeat",
            "events.reporter.monitor.url": receiver.url,
            "events.reporter.other.type": "file",
            "events.reporter.other.path": str(other),
        }
        with FakeDriver(tmp_path / "errors", settings) as driver:
            driver.await_answer("ready")
            last = driver.send_records(application_start(), query_started(), application_end())
            driver.await_answer("read", seq=last)
            began = time.monotonic()
            driver.send(goodbye(30_000))
            assert driver.await_exit(30) == 0
            took = time.monotonic() - began
    assert len(other.read_bytes().splitlines()) == 4
    # This limit is far shorter than 30 s, the longest time for which the driver would wait.
    assert took < 12
