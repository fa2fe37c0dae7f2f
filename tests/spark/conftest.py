"""Fixtures for tests with real Spark sessions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from enrich_service import EnrichService
from pyspark.sql import SparkSession
from spark.enriching import by_value, session


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the Spark session of a test module.

    Functions of the test module are pickled by value, because workers cannot import the module.
    """
    by_value(request.module.__name__)
    with session(tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnrichService]:
    """Yield a running enrichment service in its own process."""
    with EnrichService(tmp_path_factory.mktemp("service") / "calls.jsonl") as started:
        yield started


@pytest.fixture
def service(running: EnrichService) -> EnrichService:
    """Yield an enrichment service with an empty log and no script, on a port that no earlier test used."""
    running.move()
    return running
