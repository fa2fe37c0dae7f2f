"""Labels: whose fault a failure is, and what a user's own enricher may do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spark_events.config import Settings
from spark_events.errors import ConfigError
from spark_events.translate.config import FailureConfig, read
from spark_events.translate.enrichers import FailureContext, TypeEnricher
from spark_events.translate.failures import Diagnostics


class Team:
    """An enricher of one's own."""

    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        return {"team": "shop", "root": failure.root_type}


class Broken:
    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        raise RuntimeError("no database")


class NoEnricher:
    pass


PYTHON = 'a.B: Traceback (most recent call last):\n  File "/app/job.py", line 1, in f\n    x\n'


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (PYTHON + "ValueError: bad\n", "USER"),
        (PYTHON + "MemoryError\n", "RESOURCE"),
        ("org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero.", "USER"),
        ("java.lang.OutOfMemoryError: Java heap space", "RESOURCE"),
        ("java.io.IOException: No space left on device", "RESOURCE"),
        ("org.apache.spark.memory.SparkOutOfMemory: Unable to acquire 65536 bytes of memory, got 0", "RESOURCE"),
        ("org.apache.spark.SparkException: [INTERNAL_ERROR] Eh", "SYSTEM"),
        ("[SOME_CLASS] wrapped\nCaused by: java.lang.NoSuchMethodError: x", "SYSTEM"),
        ("java.lang.NullPointerException", "SYSTEM"),
    ],
)
def test_who_has_to_act(text: str, label: str) -> None:
    """The author of code, query and data; whoever has memory, disks and executors; or neither."""
    assert Diagnostics([TypeEnricher()]).of_text(text).attributes["failure.label.type"] == label


def test_several_enrichers_add_up() -> None:
    """Each label becomes an attribute of its own."""
    attributes = Diagnostics([TypeEnricher(), Team()]).of_text("java.lang.Error: x").attributes
    assert attributes["failure.label.team"] == "shop"
    assert attributes["failure.label.root"] == "java.lang.Error"
    assert attributes["failure.label.type"] == "SYSTEM"


def test_an_enricher_that_raises_costs_its_own_labels_only(caplog: pytest.LogCaptureFixture) -> None:
    """The failure is reported whatever an enricher does, and the log says what it did."""
    attributes = Diagnostics([Broken(), Team()]).of_text("java.lang.Error: x").attributes
    assert attributes["failure.label.team"] == "shop"
    assert "failure enricher Broken failed: RuntimeError('no database')" in caplog.text


def test_enrichers_are_made_from_their_names() -> None:
    """type, and package.module:Class."""
    settings = Settings.of({"events.failure.enrichers": f"type, {__name__}:Team"})
    enrichers = read(settings).failure.enrichers
    assert [type(enricher) for enricher in enrichers] == [TypeEnricher, Team]
    assert [type(enricher) for enricher in FailureConfig().enrichers] == [TypeEnricher]


@pytest.mark.parametrize("name", ["typ", "no.such.module:X", f"{__name__}:Missing", f"{__name__}:NoEnricher"])
def test_a_name_that_leads_to_no_enricher_is_a_problem(name: str) -> None:
    """One message with the key, the value and what is allowed."""
    settings = Settings.of({"events.failure.enrichers": name})
    read(settings)
    with pytest.raises(ConfigError, match=r"events\.failure\.enrichers: given .*, allowed is type, or package"):
        settings.check()
