"""Tests that spark-events' errors can be pickled."""

from __future__ import annotations

import pickle

import pytest

from spark_events import errors

_MADE: list[errors.SparkEventsError] = [
    errors.ConfigError(["one problem", "another"]),
    errors.EnrichmentError("no answer", failed=2, rows=3, batch_id=4, query="q", samples=["one"]),
    errors.PermanentError("never", rejected=3),
    errors.ThrottledError("later", 2.5),
]
_OTHERS = [
    kind("why")
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and kind not in {type(error) for error in _MADE}
]


@pytest.mark.parametrize("error", [*_MADE, *_OTHERS], ids=lambda error: type(error).__name__)
def test_errors_survive_pickling(error: errors.SparkEventsError) -> None:
    """A pickled error keeps its type, message and attributes. Errors from worker processes are pickled."""
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
