"""Kafka broker shared by all tests; each test gets its own topic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from reporters.kafka.topics import Topic
from reporters.peers.kafka import Kafka

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Running Kafka broker."""
    broker = Kafka()
    try:
        broker.start()
        yield broker
    finally:
        broker.remove()


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    """Empty topic of a running broker."""
    if not kafka.server.is_running:
        kafka.start()
    return Topic(kafka, f"events{next(_NUMBERS)}")
