"""Tests of the package's public names, which are imported lazily."""

from __future__ import annotations

import inspect
import pickle
import re
from pathlib import Path

import pytest
from fakes import ROOT

import spark_events


def test_every_public_name_exists_and_is_listed() -> None:
    assert set(spark_events.__all__) <= set(dir(spark_events))
    for name in spark_events.__all__:
        assert getattr(spark_events, name) is not None


def test_enrich_is_a_plain_function() -> None:
    """`enrich` is a plain function in every process, not a callable module. Therefore `enrich` can be pickled."""
    assert inspect.isfunction(spark_events.enrich)
    assert pickle.loads(pickle.dumps(spark_events.enrich)) is spark_events.enrich


def test_an_older_python_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older Python raises a one-line error, because the first lines of the package contain no newer syntax."""
    monkeypatch.setattr("sys.version_info", (3, 9, 18))
    source = Path(spark_events.__file__).read_text()
    with pytest.raises(ImportError, match=r"^spark-events needs Python 3\.10 or newer; .+ is Python [\d.]+$"):
        exec(compile(source, "__init__.py", "exec"), {"__name__": "spark_events_again"})


def test_api_page_lists_every_public_name() -> None:
    """docs/api.md lists every public name. It covers errors collectively, as subclasses of SparkEventsError."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", page))
    errors = {name for name in spark_events.__all__ if name.endswith("Error")}
    assert set(spark_events.__all__) - errors - {"__version__"} <= listed
