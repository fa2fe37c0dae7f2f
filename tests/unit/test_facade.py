"""The package's own names, which come when they are asked for."""

from __future__ import annotations

import inspect
import pickle

import spark_events


def test_every_name_is_offered_and_there() -> None:
    """To whoever completes names, too."""
    assert set(spark_events.__all__) <= set(dir(spark_events))
    for name in spark_events.__all__:
        assert getattr(spark_events, name) is not None


def test_enrich_is_a_plain_function() -> None:
    """In this process as in another one, and not a module that can be called."""
    assert inspect.isfunction(spark_events.enrich)
    assert pickle.loads(pickle.dumps(spark_events.enrich)) is spark_events.enrich
