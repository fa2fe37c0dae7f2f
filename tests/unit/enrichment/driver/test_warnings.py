"""Tests of warnings about Spark settings, without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spark_events.enrichment.driver.warnings import warn_of_settings, warn_of_storage

APPLICATIONS = itertools.count()


class Conf:
    """Test double of session settings that have no defaults. Reading the hidden setting raises an error."""

    def __init__(self, settings: Mapping[str, str], hidden: str = "") -> None:
        self._settings = settings
        self._hidden = hidden

    def get(self, key: str, default: str | None) -> str | None:
        if key == self._hidden:
            raise PermissionError(key)
        return self._settings.get(key, default)


def frame(settings: Mapping[str, str], hidden: str = "") -> Any:
    """Return a DataFrame of a new application."""
    settings = {"spark.app.id": f"local-{next(APPLICATIONS)}", **settings}
    return SimpleNamespace(sparkSession=SimpleNamespace(conf=Conf(settings, hidden)))


NO_REUSE = {"spark.python.worker.reuse": "False"}


def test_usual_settings_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_settings(frame({}))
    warn_of_settings(frame({"spark.speculation": "false", "spark.python.worker.reuse": "true"}))
    assert caplog.messages == []


def test_speculation_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_settings(frame({"spark.speculation": "true"}))
    assert caplog.messages == [
        "spark.speculation is on: Spark may run a task twice, which repeats all its calls; switch it off"
    ]


def test_workers_without_reuse_cause_a_warning_with_the_loss(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_settings(frame(NO_REUSE))
    assert caplog.messages == [
        "spark.python.worker.reuse is off: every task starts its own Python process and loses the state of "
        "circuit_breaker, cache, resource and Retry-After; switch it on"
    ]


def test_each_warning_is_logged_once_per_application(caplog: pytest.LogCaptureFixture) -> None:
    """Each warning is logged once per application, although a stream checks the settings in every micro-batch."""
    df = frame({**NO_REUSE, "spark.speculation": "true"})
    for _ in range(3):
        warn_of_settings(df)
    assert len(caplog.messages) == 2
    warn_of_settings(frame(NO_REUSE))
    assert len(caplog.messages) == 3


def test_an_unreadable_setting_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """An unreadable setting, as with Connect, is ignored; the other settings are still checked."""
    warn_of_settings(frame({"spark.speculation": "true"}, hidden="spark.python.worker.reuse"))
    assert len(caplog.messages) == 1


REMOVED = "spark.dynamicAllocation.cachedExecutorIdleTimeout"


def test_dynamic_allocation_of_stored_results_causes_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """With dynamic allocation, results on executors cause one warning. Reliable storage causes no warning."""
    df = frame({"spark.dynamicAllocation.enabled": "true", REMOVED: "60s"})
    warn_of_storage(df, "reliable")
    assert caplog.messages == []
    for storage in ("local", "replicated"):
        warn_of_storage(df, storage)
    (text,) = caplog.messages
    assert text.startswith(f"{REMOVED} is 60s: Spark removes an executor that is idle for this time, with its part")
    assert text.endswith("Unset the key, or give Buffer(storage='reliable')")


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.dynamicAllocation.enabled": "true"},
        {REMOVED: "60s"},
        {"spark.dynamicAllocation.enabled": "false", REMOVED: "1s"},
        {"spark.dynamicAllocation.enabled": "true", REMOVED: "1s", "spark.master": "local[2]"},
    ],
)
def test_executors_that_spark_does_not_remove_cause_no_warning(
    settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_storage(frame(settings), "local")
    assert caplog.messages == []
