"""Tests of the messages that the ``kafka`` reporter writes to a topic on a real broker."""

from __future__ import annotations

import json

import pytest
from fakes import event

from reporters.awkward import AWKWARD, awkward_event
from reporters.kafka.topics import QUICK, Topic
from reporters.peers.kafka import Kafka
from reporters.running import Running
from spark_events.event import encode_event


def test_an_event_is_a_message_with_a_key_and_headers(topic: Topic) -> None:
    """The value of a message equals the file reporter's line. The key is the query id or the application id."""
    events = [
        event(0, text=AWKWARD, **{"spark.app.id": "app-1", "spark.streaming.query.id": "q-1"}),
        event(1, **{"spark.app.id": "app-1"}),
        event(2),
    ]
    with Running("kafka", topic.settings) as running:
        running.deliver(events)
        assert (running.counters.delivered, running.counters.failures) == (3, 0)
    found = topic.messages(3)
    assert [message.value() for message in found] == [encode_event(one) for one in events]
    assert [message.key() for message in found] == [b"q-1", b"app-1", None]
    assert dict(found[0].headers()) == {
        "content-type": b"application/json",
        "event_id": events[0].event_id.encode(),
    }


@pytest.mark.parametrize(("key", "keys"), [("application", {b"a"}), ("none", {None})])
def test_the_message_key_is_configurable(topic: Topic, key: str, keys: set[bytes | None]) -> None:
    """With key=application, all events of a driver are in one partition. With key=none, they are in all partitions."""
    sent = [event(n, **{"spark.app.id": "a", "spark.streaming.query.id": f"q{n}"}) for n in range(3)]
    with Running("kafka", {**topic.settings, "key": key}) as running:
        running.deliver(sent)
    assert {message.key() for message in topic.messages(3)} == keys


def test_events_of_a_query_are_in_one_partition_in_order(kafka: Kafka) -> None:
    """All events of a query are in one partition, in order. Java's producer selects the same partition."""
    kafka.make_topic("partitioned", 3)
    settings = {"bootstrap.servers": kafka.servers, "topic": "partitioned", "batch.size": "64", **QUICK}
    with Running("kafka", settings) as running:
        running.deliver([event(n, **{"spark.streaming.query.id": f"q{n % 10}"}) for n in range(500)])
    found = kafka.messages("partitioned", 500)
    for number in range(10):
        own = [message for message in found if message.key() == f"q{number}".encode()]
        assert len({message.partition() for message in own}) == 1
        assert [int(json.loads(message.value())["body"]) for message in own] == list(range(number, 500, 10))
    assert len({message.partition() for message in found}) > 1


def test_every_character_arrives(topic: Topic) -> None:
    """Values, keys and headers keep every character; only lone surrogates become question marks."""
    odd = awkward_event({"spark.app.id": "a\udfff\n🦊", "text": AWKWARD}, event_id="i\ud800")
    with Running("kafka", topic.settings) as running:
        running.deliver([odd])
        assert running.counters.failures == 0
    (message,) = topic.messages(1)
    assert message.key() == "a?\n🦊".encode()
    assert json.loads(message.value())["body"] == f"{AWKWARD}?"
    assert dict(message.headers())["event_id"] == b"i?"


def test_properties_reach_librdkafka(topic: Topic) -> None:
    """If `properties` limits the message size, larger messages are rejected, and all other messages are delivered."""
    settings = {**topic.settings, "properties": f"{QUICK['properties']}; message.max.bytes=1000"}
    with Running("kafka", settings) as running:
        running.deliver([event(n, text="x" * (2000 if n == 2 else 1)) for n in range(5)])
        assert (running.counters.delivered, running.counters.dropped) == (4, {"rejected": 1})
    assert topic.numbers(4) == [0, 1, 3, 4]


def test_sasl_login_and_tls(kafka: Kafka, topic: Topic) -> None:
    """Events are delivered over SASL with a password and over TLS with a verified certificate."""
    from reporters.peers.kafka import PASSWORD

    kafka.allow_eve(topic.name)
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "eve"}
    with Running(
        "kafka", {**topic.settings, "bootstrap.servers": kafka.with_login, **login, "sasl.password": PASSWORD}
    ) as running:
        running.deliver([event(0)])
        assert running.counters.failures == 0
    tls = {"bootstrap.servers": kafka.with_tls, "security.protocol": "ssl", "ssl.ca.location": str(kafka.authority)}
    with Running("kafka", {**topic.settings, **tls}) as running:
        running.deliver([event(1)])
        assert running.counters.failures == 0
    assert topic.numbers(2) == [0, 1]


def test_a_batch_larger_than_the_client_s_queue_is_sent_in_parts(topic: Topic) -> None:
    """If a batch exceeds librdkafka's bounded queue, the reporter sends the batch in parts, in order."""
    small = f"{QUICK['properties']}; queue.buffering.max.messages=10"
    with Running("kafka", {**topic.settings, "properties": small}) as running:
        running.deliver([event(n) for n in range(300)])
        assert running.counters.failures == 0
    assert topic.numbers(300) == list(range(300))
