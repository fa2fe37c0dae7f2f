"""Tests of failures within one minute, which a chat receives as one message with a list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes import eventually

from reporters.peers.webhook import Receiver
from reporters.running import Running
from reporters.webhook.sending import NOW, alert, recovery
from spark_events import Event, Severity
from spark_events.config import Settings
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.mailbox import Mailbox
from spark_events.reporters.webhook.webhook_reporter import WebhookReporter


class Sent:
    """Reporter that sends to a real receiver, in a delivery whose clock the test sets."""

    def __init__(
        self, receiver: Receiver, folder: Path, format: str, linger: float | None = None, wait: str | None = None
    ) -> None:
        self.now = 0.0
        self._receiver = receiver
        self._wake: Callable[[], None] = lambda: None
        keys = {"url": receiver.url, "format": format, "alerts.directory": str(folder)}
        keys |= {"routing-key": "R"} if format == "pagerduty" else {}
        keys |= {"group-wait": wait} if wait else {}
        config = Settings.of({f"events.reporter.chat.{key}": value for key, value in keys.items()}).read(
            WebhookReporter.Config, "events.reporter.chat"
        )
        assert config is not None
        self.delivery = Delivery(
            "chat",
            lambda: WebhookReporter(config),
            DeliveryConfig(batch_linger=linger),
            1000,
            store=self._store,
            clock=lambda: self.now,
        )
        self.delivery.start()

    def _store(self, wake: Callable[[], None], _: Any) -> Mailbox:
        self._wake = wake
        return Mailbox(1000)

    def put(self, *events: Event) -> None:
        self.delivery.put([Entry(0, one) for one in events])

    def passes(self, seconds: float) -> None:
        self.now += seconds
        self._wake()

    def messages(self, events: int, later: bool = False) -> list[str]:
        """Wait until so many events are settled, and return the text of each message.

        Args:
            events: the number of events.
            later: whether time passes meanwhile. The wait of a group begins when the reporter's thread has seen it.
        """
        pause = (lambda: self.passes(0.5)) if later else (lambda: None)
        eventually(lambda: self.delivery.counters().delivered >= events, meanwhile=pause)
        return [str(body) for body in self._receiver.bodies()]

    def close(self) -> None:
        self.delivery.request_stop(self.now + 10)
        self.delivery.join()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sent]]:
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())

        def make(*args: Any) -> Sent:
            made = Sent(receiver, tmp_path, *args)
            stack.callback(made.close)
            return made

        yield make


def failure(number: int, severity: Severity = Severity.ERROR) -> Event:
    return alert(NOW + number, f"shop/query=q{number}/failure", severity)


def named(text: str) -> list[int]:
    """Return the numbers of the queries in a message."""
    return [number for number in range(200) if f"query=q{number}/" in text]


@pytest.mark.parametrize("format", ["slack", "teams"])
def test_seventy_one_queries_that_fail_within_a_second_are_one_message(format: str, start: Callable[..., Sent]) -> None:
    """The message is sent after the group wait. The failures of the next minute are one more message."""
    chat = start(format)
    for number in range(71):
        chat.put(failure(number))
        chat.passes(0.01)
    # The waiting failures are not settled, so that a spool or the driver still has them.
    assert chat.delivery.counters().delivered == 0
    (message,) = chat.messages(71, later=True)
    assert named(message) == list(range(71))
    assert "ERROR: 71 failures" in message
    assert chat.now >= 5
    for number in (71, 72):
        chat.put(failure(number))
        chat.passes(20)
    assert chat.delivery.counters().delivered == 71
    now = chat.now
    assert named(chat.messages(73, later=True)[1]) == [71, 72]
    assert chat.now >= now + 20
    # After a minute without a failure, the group wait begins again.
    chat.passes(61)
    now = chat.now
    chat.put(failure(73), failure(74))
    assert named(chat.messages(75, later=True)[2]) == [73, 74]
    assert chat.now >= now + 5


def test_without_a_group_wait_the_first_failure_is_sent_at_once(start: Callable[..., Sent]) -> None:
    chat = start("slack", None, "0ms")
    chat.put(failure(0))
    chat.messages(1)
    chat.put(failure(1))
    chat.put(failure(2))
    assert [named(text) for text in chat.messages(3, later=True)] == [[0], [1, 2]]


@pytest.mark.parametrize("format", ["slack", "teams"])
def test_recoveries_are_one_message_after_their_failures(format: str, start: Callable[..., Sent]) -> None:
    """A failure and its recovery within the group wait are two messages, in this order."""
    chat = start(format)
    chat.put(*(failure(number) for number in range(40)))
    chat.put(*(recovery(NOW + 1, f"shop/query=q{number}/failure") for number in range(40)))
    failed, recovered = chat.messages(80, later=True)
    assert named(failed) == named(recovered) == list(range(40))
    assert "ERROR: 40 failures" in failed
    assert "Recovered: 40 incidents" in recovered
    assert recovered.count("good") == (format == "teams")


def test_a_failure_that_recovers_within_the_minute_is_in_the_list_and_recovered(start: Callable[..., Sent]) -> None:
    chat = start("slack")
    chat.put(failure(0))
    chat.messages(1, later=True)
    chat.put(failure(1), recovery(NOW + 1, "shop/query=q1/failure"), failure(2))
    chat.put(recovery(NOW + 2, "shop/query=q0/failure"))
    recovered = [("Recovered: " in text, named(text)) for text in chat.messages(5, later=True)]
    assert recovered == [(False, [0]), (False, [1, 2]), (True, [0, 1])]


def test_events_about_a_failure_in_the_list_add_no_message(start: Callable[..., Sent]) -> None:
    """With a lower severity, a chat receives the failed jobs too, but those of an alarm are part of its alert."""
    chat = start("slack")
    for number in range(3):
        key = f"shop/query=q{number}/failure"
        member = alert(NOW, key, Severity.WARN, **{"incident.role": "member"})
        other = alert(NOW, f"shop/query=q{100 + number}/failure", Severity.WARN, **{"incident.role": "member"})
        chat.put(member, other, failure(number))
    assert [named(text) for text in chat.messages(6, later=True)] == [[100], [0, 1, 2], [101, 102]]


@pytest.mark.parametrize("why", ["a higher severity", "a full list", "the end"])
def test_the_minute_ends_early(why: str, start: Callable[..., Sent]) -> None:
    chat = start("slack", None, "0ms")
    chat.put(failure(0))
    chat.messages(1)
    now = chat.now
    chat.put(failure(1))
    if why == "a higher severity":
        chat.put(failure(2, Severity.FATAL))
    elif why == "a full list":
        for number in range(2, 101):
            chat.put(failure(number))
    else:
        chat.put(failure(2))
        chat.delivery.begin_drain()
    last = {"a full list": 100}.get(why, 2)
    assert named(chat.messages(last + 1)[1]) == list(range(1, last + 1))
    assert chat.now == now


def test_failures_of_a_higher_severity_than_the_last_message_wait_for_each_other(start: Callable[..., Sent]) -> None:
    chat = start("slack")
    chat.put(failure(0, Severity.WARN))
    chat.messages(1, later=True)
    for number in (1, 2, 3):
        chat.put(failure(number))
        chat.passes(1)
    assert [named(text) for text in chat.messages(4, later=True)] == [[0], [1, 2, 3]]


@pytest.mark.parametrize("severity", [Severity.ERROR, Severity.FATAL])
def test_the_end_of_the_application_ends_the_group_wait(severity: Severity, start: Callable[..., Sent]) -> None:
    chat = start("slack")
    chat.put(failure(0))
    chat.put(failure(1, severity))
    chat.delivery.begin_drain()
    assert [named(text) for text in chat.messages(2)] == [[0, 1]]
    assert chat.now == 0


def test_a_storm_is_not_spread_over_minutes(start: Callable[..., Sent]) -> None:
    """Failures beyond a full list do not wait for the next minute."""
    chat = start("slack")
    chat.put(*(failure(number) for number in range(150)))
    assert [len(named(text)) for text in chat.messages(150)] == [100, 50]
    assert chat.now == 0


@pytest.mark.parametrize(("format", "most"), [("slack", 40_000), ("teams", 28_000)])
def test_a_long_list_stays_below_the_limit_of_the_chat(format: str, most: int, start: Callable[..., Sent]) -> None:
    """The message states how many alerts it does not list."""
    chat = start(format)
    texts = {"spark.app.name": "<shop> & ]( 店" * 20, "failure.root_cause": "E: <!channel> 店 & " * 20}
    chat.put(*(alert(NOW, f"shop/query=q{number}/failure", **texts) for number in range(100)))
    (message,) = chat.messages(100)
    assert len(message.encode()) < most
    assert re.search(r"… and \d+ more", message)


@pytest.mark.parametrize(("format", "linger"), [("pagerduty", None), ("slack", 0.0)])
def test_alerts_with_their_own_keys_and_a_linger_time_that_is_set_do_not_wait(
    format: str, linger: float | None, start: Callable[..., Sent]
) -> None:
    chat = start(format, linger)
    for number in range(3):
        chat.put(failure(number))
        chat.messages(number + 1)
    assert [named(text) for text in chat.messages(3)] == [[0], [1], [2]]
    assert chat.now == 0


def test_a_reporter_in_its_own_process_collects_failures_too(tmp_path: Path) -> None:
    with Receiver() as receiver:
        keys = {"url": receiver.url, "format": "slack", "alerts.directory": str(tmp_path), "isolation": "process"}
        with Running("webhook", keys) as run:
            run.put([failure(0)])
            run.put([failure(1)])
        assert [named(str(body)) for body in receiver.bodies()] == [[0, 1]]
