"""Both event loops."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from spark_events.enrichment.engine import process


@pytest.fixture(params=["uvloop", "asyncio"])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The state of a process that has uvloop, and of one that has not."""
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.setattr(process, "_process", None)
    mine = process.current_process()
    assert mine.background.kind == request.param
    yield request.param
    mine.close()
