"""What travels to executors that do not have it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import PurePath

__all__ = ["VENDORED", "find_tenacity"]

#: The folder beside the package, in the archive that is shipped, with the libraries the engine needs.
VENDORED = "spark_events_vendored"


def find_tenacity() -> None:
    """Makes tenacity importable on an executor that lacks it; one that has it uses its own."""
    if importlib.util.find_spec("tenacity") is not None:
        return
    beside = str(PurePath(__file__).parents[3] / VENDORED)
    if beside not in sys.path:
        sys.path.append(beside)
        importlib.invalidate_caches()
