"""What every kind of test may use."""

from __future__ import annotations

import importlib
import pkgutil
import signal
import warnings
from collections.abc import Iterator

import hypothesis
import pytest
from lateness import Witness
from spark.harness import Lab, java_variables

import spark_events
from spark_events.dispatch import delivery

# Where the tests run in the background, Ctrl-C is ignored, and every process they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes, and how long to make it, is up to the machine, not to what is tested.
hypothesis.settings.register_profile(
    "spark-events", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("spark-events")

# Hypothesis also tries the constants of modules that are loaded; one that is loaded while a test runs changes what it
# draws, and the test is called flaky.
for _module in pkgutil.walk_packages(spark_events.__path__, "spark_events."):
    importlib.import_module(_module.name)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What lets Spark start quickly is made before the first test: where there is none yet, that may take minutes."""
    wants_spark = any(item.get_closest_marker("spark") for item in session.items)
    if wants_spark and not session.config.getoption("collectonly"):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            java_variables()


@pytest.fixture
def witness() -> Iterator[Witness]:
    """Watches the machine during the test; whoever measures a time asks it."""
    with Witness() as started:
        yield started


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread is given up soon behind its timeout: where the machine stands still, that one has not blocked it."""
    monkeypatch.setattr(delivery, "_GRACE_SECONDS", 60.0)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Real Spark processes; whatever is still there at the end is ended, and a sidecar left is a failure."""
    laboratory = Lab(tmp_path_factory.mktemp("spark"))
    try:
        yield laboratory
    finally:
        laboratory.close()
