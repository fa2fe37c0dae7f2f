"""What every kind of test may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from spark.harness import Lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Real Spark processes; whatever is still there at the end is ended, and a sidecar left is a failure."""
    laboratory = Lab(tmp_path_factory.mktemp("spark"))
    try:
        yield laboratory
    finally:
        laboratory.close()
