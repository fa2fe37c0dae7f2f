"""Snapshot of the environment variables before the tests, which any thread can read safely.

Reading ``os.environ`` is not safe: pytest sets and removes a variable around each phase of each test, and a thread that
reads all variables at that time raises a ``KeyError``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["INHERITED"]

#: pytest-xdist sets COLUMNS in its processes, and commands would divide their lines.
INHERITED: Mapping[str, str] = MappingProxyType({key: text for key, text in os.environ.items() if key != "COLUMNS"})
