"""Fixtures: spools in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spools import Owner

Open = Callable[..., Owner]


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens spools below ``tmp_path``. After the test, all of these spools are closed."""
    opened: list[Owner] = []

    def _open(directory: Path = tmp_path, **options: Any) -> Owner:
        opened.append(Owner(directory, **options))
        return opened[-1]

    yield _open
    for one in opened:
        one.disk.hang = lambda: None
        one.close()
