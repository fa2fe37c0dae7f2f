"""What a test needs and this machine lacks: an error on CI, a skip elsewhere."""

from __future__ import annotations

import importlib
import os
from typing import NoReturn

import pytest

__all__ = ["missing", "need"]


def missing(what: str) -> NoReturn:
    """Skip the test, because this machine lacks a server, a library or a right. On CI, fail the test."""
    if os.environ.get("CI"):
        pytest.fail(f"{what} (required on CI)")
    pytest.skip(what)


def need(*modules: str) -> None:
    """Skip the test if a module cannot be imported. On CI, fail the test."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            missing(f"cannot import {module}: {error}")
