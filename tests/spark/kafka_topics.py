"""A real broker with messages, for jobs that read with Spark's Kafka source."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping

from missing import missing
from reporters.peers.kafka import Kafka
from spark.harness import jars_for

_JARS = jars_for("kafka-connector")


def kafka_jars() -> str:
    """Return the value of ``spark.jars`` with Spark's Kafka source."""
    return ",".join(map(str, sorted(_JARS.glob("*.jar"))))


@contextlib.contextmanager
def broker_with(topics: Mapping[str, Iterable[bytes]]) -> Iterator[Kafka]:
    """Run a broker whose topics contain these messages; skip the test if Spark's Kafka source is missing."""
    if not _JARS.is_dir():
        missing(f"there is no Kafka source for this Spark in {_JARS}; make kafka-connector fetches it")
    broker = Kafka()
    broker.start()
    try:
        from confluent_kafka import Producer

        for topic in topics:
            broker.make_topic(topic)
        producer = Producer({"bootstrap.servers": broker.servers})
        for topic, messages in topics.items():
            for message in messages:
                producer.produce(topic, message)
        assert producer.flush(60) == 0
        yield broker
    finally:
        broker.remove()
