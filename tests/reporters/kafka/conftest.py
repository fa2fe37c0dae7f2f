"""Fixtures: one Kafka broker for all tests, with a separate topic for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from reporters.kafka.topics import Topic
from reporters.peers.kafka import Kafka

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Yield a running Kafka broker."""
    broker = Kafka()
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    """Yield an empty topic of a running broker."""
    if not kafka.server.is_running:
        kafka.start()
    return Topic(kafka, f"events{next(_NUMBERS)}")
