"""Fixtures for the tests of the report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from missing import missing
from playwright.sync_api import sync_playwright

from spark_events import Event
from spark_events.event import encode_lines

_BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if _BROWSER is None:
        missing("no Chromium: run `make browser`")
    with sync_playwright() as playwright:
        # Disable Chromium's sandbox, which does not work as root. Most containers run as root.
        browser = playwright.chromium.launch(executable_path=_BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[Sequence[Event]], Path]:
    """Return a function that stores events as JSON lines."""

    def store(events: Sequence[Event]) -> Path:
        path = tmp_path / "events.jsonl"
        path.write_bytes(encode_lines(events))
        return path

    return store
