"""Fixture that runs a test with each event loop."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from enrich_engine import new_process

from spark_events.enrichment.engine import process


@pytest.fixture(params=["uvloop", "asyncio"])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run the test with uvloop and without it."""
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    with new_process():
        assert process.current_process().background.kind == request.param
        yield request.param
