"""Tests of failures in the ``kafka`` reporter: errors are clear, order is kept, and no retryable event is lost."""

from __future__ import annotations

import signal
import sys

import pytest
from fakes import event, eventually
from lateness import Witness
from ports import free_port

from reporters.kafka.topics import QUICK, Topic
from reporters.peers.kafka import PASSWORD, Kafka
from reporters.running import Running
from spark_events import ConfigError
from spark_events.config import Settings
from spark_events.dispatch.pipeline import build

LOGIN = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "eve"}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restarted_broker_gets_every_event_once_and_in_order(
    kafka: Kafka, topic: Topic, how: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that stops or is killed during delivery receives every event once and in order after its restart."""
    with Running("kafka", {**topic.settings, "batch.size": "7", "timeout": "10s"}) as running:
        running.deliver([event(n) for n in range(20)])
        # On a busy machine, the first connection may take longer than the timeout.
        caplog.clear()
        kafka.stop(how)
        running.put([event(n) for n in range(20, 60)])
        running.await_failures(2)
        kafka.start()
        running.deliver([event(n) for n in range(60, 70)], within=60)
        assert running.counters.delivered == 70
    assert topic.numbers(70) == list(range(70))
    assert caplog.text.count("failed; holding its events and retrying") == 1
    assert caplog.text.count("works again") == 1


def test_messages_of_a_timed_out_attempt_are_sent_once(kafka: Kafka, topic: Topic) -> None:
    """If the broker is frozen, messages stay in librdkafka's queue during several attempts and are sent once."""
    with Running("kafka", {**topic.settings, "timeout": "300ms"}) as running:
        running.deliver([event(0)])
        kafka.server.send(signal.SIGSTOP)
        try:
            running.put([event(n) for n in range(1, 30)])
            running.await_failures(3)
        finally:
            kafka.server.send(signal.SIGCONT)
        running.deliver(within=60)
    assert topic.numbers(30) == list(range(30))


def test_only_the_event_that_is_too_large_is_rejected(kafka: Kafka) -> None:
    """If the topic's limit rejects a request, the reporter sends each message separately and loses only one event."""
    topic = Topic(kafka, "narrow", max_message_bytes="3000")
    events = [event(n, text=f"{n}" * (4000 if n == 13 else 200)) for n in range(40)]
    with Running("kafka", {**topic.settings, "compression.type": "none"}) as running:
        running.deliver(events[:1])
        running.deliver(events[1:])
        assert (running.counters.delivered, running.counters.dropped) == (39, {"rejected": 1})
        running.deliver([event(40)])
    assert topic.numbers(40) == [n for n in range(41) if n != 13]


def test_a_client_with_a_permanent_failure_is_replaced(kafka: Kafka) -> None:
    """If a client fails permanently, the reporter replaces the client, and unsent messages are delivered."""
    topic = Topic(kafka, "narrow-and-slow", max_message_bytes="3000")
    events = [event(n, text=f"{n}" * (4000 if n == 3 else 200)) for n in range(60)]
    properties = f"{QUICK['properties']}; queue.buffering.max.messages=5"
    with Running("kafka", {**topic.settings, "compression.type": "none", "properties": properties}) as running:
        running.deliver(events, within=60)
        assert (running.counters.delivered, running.counters.dropped) == (59, {"rejected": 1})
    assert topic.numbers(59) == [n for n in range(60) if n != 3]


def test_a_topic_created_later_gets_every_event(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """If the topic is missing, the log says so, and events are held until the topic is created."""
    settings = {"bootstrap.servers": kafka.servers, "topic": "later", **QUICK}
    with Running("kafka", settings) as running:
        running.put([event(n) for n in range(5)])
        running.await_failures(2)
        assert running.counters.held == 5
        topic = Topic(kafka, "later")
        running.deliver([event(5)], within=60)
    assert topic.numbers(6) == list(range(6))
    assert "Unknown topic" in caplog.text


def test_events_wait_while_rights_are_revoked(kafka: Kafka, topic: Topic, caplog: pytest.LogCaptureFixture) -> None:
    """While the permission for the topic is revoked, events are held. Later, all events are delivered in order."""
    kafka.allow_eve(topic.name)
    settings = {**topic.settings, **LOGIN, "bootstrap.servers": kafka.with_login, "sasl.password": PASSWORD}
    with Running("kafka", {**settings, "batch.size": "5"}) as running:
        running.deliver([event(n) for n in range(10)])
        kafka.allow_eve(topic.name, False)
        running.put([event(n) for n in range(10, 30)])
        running.await_failures(2)
        kafka.allow_eve(topic.name)
        running.deliver([event(30)], within=60)
        assert running.counters.delivered == 31
    assert topic.numbers(31) == list(range(31))
    assert "uthorization failed" in caplog.text


def test_a_wrong_password_is_reported_but_not_logged(
    kafka: Kafka, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """With a wrong password, the attempt fails before its timeout, events are held, and the password is not logged."""
    settings = {**topic.settings, **LOGIN, "bootstrap.servers": kafka.with_login, "sasl.password": "wr0ng"}
    with Running("kafka", {**settings, "timeout": "1min"}) as running:
        running.put([event(1)])
        running.await_failures()
        assert running.counters.held == 1
        running.stop(within=0.5)
    assert "AUTHENTICATION" in caplog.text
    assert "wr0ng" not in caplog.text


def test_a_certificate_that_does_not_match_is_rejected(
    kafka: Kafka, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """If a broker's certificate does not contain the configured host name, the connection is rejected."""
    elsewhere = kafka.with_tls.replace("localhost", "127.0.0.1")
    tls = {"bootstrap.servers": elsewhere, "security.protocol": "ssl", "ssl.ca.location": str(kafka.authority)}
    with Running("kafka", {**topic.settings, **tls, "timeout": "1min"}) as running:
        running.put([event(1)])
        running.await_failures()
        running.stop(within=0.5)
    assert "certificate" in caplog.text


def test_unreachable_brokers_do_not_delay_shutdown(caplog: pytest.LogCaptureFixture, witness: Witness) -> None:
    """With unreachable brokers, the reporter stops by its deadline. Lost events are counted and logged once."""
    port = free_port()
    running = Running("kafka", {"bootstrap.servers": f"localhost:{port}", "topic": "t", **QUICK})
    running.put([event(n) for n in range(100)])
    running.await_failures(2)
    assert witness.took(running.stop(within=1)) < 2
    assert running.counters.dropped == {"shutdown": 100}
    assert f"Kafka at localhost:{port}: no broker reachable: localhost:{port}/bootstrap: " in caplog.text
    assert "Connection refused" in caplog.text
    assert caplog.text.count("Connection refused") == 1


def test_a_broker_restart_between_events_is_not_a_failure(kafka: Kafka, topic: Topic) -> None:
    with Running("kafka", topic.settings) as running:
        running.deliver([event(0)])
        kafka.stop(signal.SIGKILL)
        kafka.start()
        running.deliver([event(1)], within=60)
        assert running.counters.failures == 0
    assert topic.numbers(2) == [0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topic": ""}, "events.reporter.k.topic: given '' (nothing), expected the name of a topic"),
        ({"properties": "linger"}, "properties: given a value that is not shown (entry 1 has no =), expected"),
        ({"properties": "acks=1;sasl.password=s3cret"}, "sasl.password must not be set in properties"),
        ({"properties": "enable.idempotence=false"}, "enable.idempotence must not be set in properties"),
        ({"properties": "linger.sm=5"}, 'cannot be created: ValueError: No such configuration property: "linger.sm"'),
        ({"properties": "linger.ms=abc"}, "cannot be created: ValueError: Invalid value for configuration property"),
        ({"properties": "acks=1"}, "`acks` must be set to `all`"),
        ({"compression.type": "rar"}, "compression.type: given 'rar', expected one of none, gzip, snappy, lz4, zstd"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}, "sasl.username and sasl.password must be set"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/nope.pem"}, "ssl.ca.location failed"),
    ],
)
def test_an_invalid_setting_is_rejected_before_the_first_event(settings: dict[str, str], message: str) -> None:
    """spark-events validates the reporter's own settings, and librdkafka validates `properties`."""
    given = {"type": "kafka", "bootstrap.servers": "localhost:9", "topic": "t", **settings}
    with pytest.raises(ConfigError) as caught:
        build(Settings.of({f"events.reporter.k.{key}": value for key, value in given.items()}))
    (problem,) = caught.value.problems
    assert problem.startswith("events.reporter.k")
    assert message in problem
    assert "s3cret" not in problem


def test_building_a_reporter_opens_no_connection(kafka: Kafka) -> None:
    """Constructing a reporter opens no connection, so settings can be validated outside the cluster."""
    keys = {"type": "kafka", "bootstrap.servers": kafka.servers, "topic": "t"}
    import psutil

    def connections() -> int:
        own = psutil.Process().net_connections()
        return len([one for one in own if one.raddr and f":{one.raddr.port}" in kafka.servers])

    eventually(lambda: connections() == 0)
    build(Settings.of({f"events.reporter.k.{key}": value for key, value in keys.items()}))
    assert connections() == 0


def test_a_missing_library_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the library is missing, the error is raised before the first event and contains the install command."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    keys = {"type": "kafka", "bootstrap.servers": "localhost:9", "topic": "t"}
    with pytest.raises(ConfigError, match=r"confluent_kafka is not installed; run: pip install '.*\[kafka\]'"):
        build(Settings.of({f"events.reporter.k.{key}": value for key, value in keys.items()}))
