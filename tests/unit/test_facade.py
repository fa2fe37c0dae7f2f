"""Tests of the package's public names, which are imported lazily."""

from __future__ import annotations

import inspect
import pickle

import spark_events


def test_every_public_name_exists_and_is_listed() -> None:
    """dir() lists them, for completion."""
    assert set(spark_events.__all__) <= set(dir(spark_events))
    for name in spark_events.__all__:
        assert getattr(spark_events, name) is not None


def test_enrich_is_a_plain_function() -> None:
    """It must be a function in every process, not a callable module."""
    assert inspect.isfunction(spark_events.enrich)
    assert pickle.loads(pickle.dumps(spark_events.enrich)) is spark_events.enrich
