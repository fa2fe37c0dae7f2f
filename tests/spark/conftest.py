"""What tests of real Spark sessions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from enrich_service import EnrichService
from pyspark.sql import SparkSession
from spark.enriching import by_value, session


@pytest.fixture(scope="module")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session for all tests of a module, whose functions its workers get by value: they cannot import them."""
    by_value(request.module.__name__)
    with session(tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnrichService]:
    """A service that calls are made to, in a process of its own."""
    with EnrichService(tmp_path_factory.mktemp("service") / "calls.jsonl") as started:
        yield started


@pytest.fixture
def service(running: EnrichService) -> EnrichService:
    """With an empty log, answering at once, and where no worker of an earlier test can call it."""
    running.move()
    return running
