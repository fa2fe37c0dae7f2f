"""Fixture for tests of connections between tasks and the driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_events.enrichment.engine.loop import BackgroundLoop


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    """Yield a loop that runs in its own thread."""
    made = BackgroundLoop()
    yield made
    made.close(20)
