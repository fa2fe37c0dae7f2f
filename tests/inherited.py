"""The environment that the tests were started with, to be read from any thread.

``os.environ`` is not: pytest sets and removes a variable of its own around each phase of each test, and whoever reads
all variables in another thread meanwhile gets a ``KeyError``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["INHERITED"]

INHERITED: Mapping[str, str] = MappingProxyType(dict(os.environ))
