"""Tests of the arguments of the public functions."""

from __future__ import annotations

import inspect
import pydoc
from typing import Any

import pytest

from spark_events import enrich, enrich_batch

NAMES = [
    "df", "fn", "output", "input_cols", "resource", "key", "batch_size", "limits", "retry", "on_failure", "cache",
    "replay",
]  # fmt: skip


@pytest.mark.parametrize("function", [enrich, enrich_batch])
def test_help_names_every_argument(function: Any) -> None:
    """The help lists the twelve arguments with descriptions. All arguments after the function are keyword-only."""
    parameters = inspect.signature(function).parameters
    assert list(parameters) == NAMES
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in NAMES[2:])
    text = pydoc.plain(pydoc.render_doc(function))
    assert "limits: 'Limits' = Limits(max_in_flight=" in text
    for name in NAMES:
        assert f"    {name}: " in text
