"""A broker that is started once for all tests; each test has a topic of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from reporters.kafka.topics import Topic
from reporters.peers.kafka import Kafka

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A Kafka broker."""
    broker = Kafka()
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    """An empty topic of a broker that runs."""
    if not kafka.server.is_running:
        kafka.start()
    return Topic(kafka, f"events{next(_NUMBERS)}")
