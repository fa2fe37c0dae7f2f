"""Create and read Kafka topics in tests."""

from __future__ import annotations

import json
from typing import Any

from reporters.peers.kafka import Kafka
from reporters.running import IMPATIENT

__all__ = ["QUICK", "Topic"]

#: The short back-off makes librdkafka reconnect immediately to a restarted broker.
QUICK = {
    **IMPATIENT,
    "properties": "reconnect.backoff.ms=50; reconnect.backoff.max.ms=200; topic.metadata.refresh.fast.interval.ms=100"
    "; topic.metadata.propagation.max.ms=1000; retry.backoff.ms=50",
}


class Topic:
    """Topic with one partition.

    Args:
        kafka: broker that contains the topic.
        name: topic name.
    """

    def __init__(self, kafka: Kafka, name: str, **settings: str) -> None:
        self._kafka = kafka
        self.name = name
        kafka.make_topic(name, 1, **settings)
        self.settings = {"bootstrap.servers": kafka.servers, "topic": name, **QUICK}

    def messages(self, count: int) -> list[Any]:
        return self._kafka.messages(self.name, count)

    def numbers(self, count: int) -> list[int]:
        """Wait for ``count`` messages and return the numbers of the events in the topic."""
        return [int(json.loads(message.value())["body"]) for message in self.messages(count)]
