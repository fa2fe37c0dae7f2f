"""Tests of failures within one minute, which a chat receives as one message with a list."""

from __future__ import annotations

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

    def __init__(self, receiver: Receiver, folder: Path, format: str, linger: float | None = None) -> None:
        self.now = 0.0
        self._receiver = receiver
        self._wake: Callable[[], None] = lambda: None
        keys = {"url": receiver.url, "format": format, "alerts.directory": str(folder)}
        keys |= {"routing-key": "R"} if format == "pagerduty" else {}
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

    def messages(self, events: int) -> list[str]:
        """Wait until so many events are settled, and return the text of each message."""
        eventually(lambda: self.delivery.counters().delivered >= events)
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
    return [number for number in range(60) if f"query=q{number}/" in text]


@pytest.mark.parametrize("format", ["slack", "teams"])
def test_the_first_failure_is_sent_at_once_and_the_others_of_the_minute_are_one_message(
    format: str, start: Callable[..., Sent]
) -> None:
    chat = start(format)
    chat.put(failure(0))
    chat.messages(1)
    for number in (1, 2, 3):
        chat.passes(15)
        chat.put(failure(number))
    # The waiting failures are not settled, so that a spool or the driver still has them.
    assert chat.delivery.counters().delivered == 1
    chat.passes(15)
    first, others = chat.messages(4)
    assert (named(first), named(others)) == ([0], [1, 2, 3])
    assert "ERROR: 3 failures" in others
    # The list begins another minute.
    chat.put(failure(4))
    chat.put(failure(5))
    chat.passes(60)
    assert named(chat.messages(6)[2]) == [4, 5]
    # After a minute without a failure, the next one does not wait.
    chat.passes(61)
    chat.put(failure(6))
    assert named(chat.messages(7)[3]) == [6]


def test_a_failure_that_recovers_within_the_minute_is_in_the_list_and_recovered(start: Callable[..., Sent]) -> None:
    chat = start("slack")
    chat.put(failure(0))
    chat.messages(1)
    chat.put(failure(1), recovery(NOW + 1, "shop/query=q1/failure"), failure(2))
    chat.put(recovery(NOW + 2, "shop/query=q0/failure"))
    chat.passes(60)
    recovered = [("Recovered: " in text, named(text)) for text in chat.messages(5)]
    assert recovered == [(False, [0]), (False, [1, 2]), (True, [1]), (True, [0])]


@pytest.mark.parametrize("why", ["a higher severity", "a full list", "the end"])
def test_the_minute_ends_early(why: str, start: Callable[..., Sent]) -> None:
    chat = start("slack")
    chat.put(failure(0))
    chat.messages(1)
    chat.put(failure(1))
    if why == "a higher severity":
        chat.put(failure(2, Severity.FATAL))
    elif why == "a full list":
        for number in range(2, 21):
            chat.put(failure(number))
    else:
        chat.put(failure(2))
        chat.delivery.begin_drain()
    last = {"a full list": 20}.get(why, 2)
    assert named(chat.messages(last + 1)[1]) == list(range(1, last + 1))
    assert chat.now == 0


def test_a_storm_is_not_spread_over_minutes(start: Callable[..., Sent]) -> None:
    """Failures beyond a full list do not wait for the next minute."""
    chat = start("slack")
    chat.put(*(failure(number) for number in range(50)))
    assert [len(named(text)) for text in chat.messages(50)] == [20, 20, 10]
    assert chat.now == 0


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
            run.deliver([failure(0)])
            run.put([failure(1)])
            run.put([failure(2)])
        assert [named(str(body)) for body in receiver.bodies()] == [[0], [1, 2]]
