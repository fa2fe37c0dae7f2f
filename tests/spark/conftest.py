"""What tests of real Spark sessions share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from enrich_service import EnrichService


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnrichService]:
    """A service that calls are made to, in a process of its own."""
    with EnrichService(tmp_path_factory.mktemp("service") / "calls.jsonl") as started:
        yield started


@pytest.fixture
def service(running: EnrichService) -> EnrichService:
    """With an empty log, answering at once."""
    running.script()
    return running
