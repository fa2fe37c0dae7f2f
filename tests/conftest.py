"""What every kind of test may use."""

from __future__ import annotations

import importlib
import pkgutil
import signal
from collections.abc import Iterator

import hypothesis
import pytest
from spark.harness import Lab

import spark_events

# Where the tests run in the background, Ctrl-C is ignored, and every process they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes is up to the machine, not to what is tested.
hypothesis.settings.register_profile("spark-events", deadline=None)
hypothesis.settings.load_profile("spark-events")

# Hypothesis also tries the constants of modules that are loaded; one that is loaded while a test runs changes what it
# draws, and the test is called flaky.
for _module in pkgutil.walk_packages(spark_events.__path__, "spark_events."):
    importlib.import_module(_module.name)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Real Spark processes; whatever is still there at the end is ended, and a sidecar left is a failure."""
    laboratory = Lab(tmp_path_factory.mktemp("spark"))
    try:
        yield laboratory
    finally:
        laboratory.close()
