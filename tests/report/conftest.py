"""Fixtures for the tests of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from spark_events import Event
from spark_events.event import encode_lines


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[Sequence[Event]], Path]:
    """Return a function that stores events as JSON lines."""

    def store(events: Sequence[Event]) -> Path:
        path = tmp_path / "events.jsonl"
        path.write_bytes(encode_lines(events))
        return path

    return store
