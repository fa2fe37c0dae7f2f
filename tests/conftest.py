"""Fixtures and settings for all tests."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import signal
import sys
import warnings
from collections.abc import Generator, Iterator

import hypothesis
import pytest
from lateness import Witness
from order import arrange, collects_only_spark_folders
from spark.harness import Lab, java_variables

import spark_events

# If pytest runs in the background, it ignores SIGINT, and its child processes would inherit this setting.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest-xdist sets the width in its processes, and the commands under test obey it.
os.environ.pop("COLUMNS", None)

# Disable deadlines, because the duration of an example depends on the machine, not on the tested code.
hypothesis.settings.register_profile(
    "spark-events", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("spark-events")


def _load_all_modules() -> None:
    """Import the whole package.

    Hypothesis draws constants from loaded modules, so a module that is loaded during a test would change the test's
    examples and make the test flaky. A module whose optional library is missing is left out.
    """
    for module in pkgutil.walk_packages(spark_events.__path__, "spark_events.", onerror=lambda _: None):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module.name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first."""
    arrange(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Create the archive that speeds up Spark's startup.

    Creating the archive may take minutes, which is too long for the first test.
    """
    wants_spark = any(item.get_closest_marker("spark") for item in session.items)
    if wants_spark and not session.config.getoption("collectonly"):
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            java_variables()


@contextlib.contextmanager
def _untraced() -> Iterator[None]:
    """Run the block without the trace function of coverage."""
    tracing = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracing)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect the tests without tracing, after loading all modules.

    Tracing would more than double the time in each process of pytest-xdist. If only folders with Spark tests are
    collected, load nothing first: these tests do not use Hypothesis, and the environments of older Spark versions lack
    packages that some modules import.
    """
    if not collects_only_spark_folders(session.config):
        _load_all_modules()
    with _untraced():
        return (yield)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run a simulation, a test with Hypothesis, or a test with the marker ``no_cover``, without tracing.

    Tracing would double the time of these tests, and other tests run the same lines. In a process of pytest-xdist,
    pytest-cov starts coverage twice and pauses it only once, so its marker has no effect there.
    """
    is_long = item.get_closest_marker("hypothesis") or item.get_closest_marker("no_cover")
    if item.path.parent.name != "property" and not is_long:
        return (yield)
    with _untraced():
        return (yield)


@pytest.fixture
def witness() -> Iterator[Witness]:
    """Yield a process that records delays of the machine during a test, for tests that measure time."""
    with Witness() as started:
        yield started


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Yield a launcher of real Spark processes.

    After the tests of a module, the launcher ends all processes and fails if a sidecar remains.
    """
    laboratory = Lab(tmp_path_factory.mktemp("spark"))
    try:
        yield laboratory
    finally:
        laboratory.close()
