"""Order of the test files.

pytest-xdist starts files in the order of collection. A long file that starts last would leave the other processes idle.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["LONG_FILES", "SPARK_FOLDERS", "arrange"]

_TESTS = Path(__file__).parent
#: Folders of all tests with Spark. For such tests, the Makefile collects only these folders, because collecting all
#: folders takes several seconds per process.
SPARK_FOLDERS = ("spark", "faults")
#: Slowest test files, slowest first.
LONG_FILES = (
    "spark/test_guarantees.py",
    "spark/test_enrich_batch.py",
    "spark/test_endings.py",
    "spark/test_enrich_cluster.py",
    "spark/test_enrich_stream.py",
    "spark/test_enrich_cache.py",
    "faults/test_processes.py",
    "spark/test_containers.py",
    "spark/test_lost_output.py",
    "faults/test_at_random.py",
    "faults/test_killed_sidecars.py",
    "spark/test_yarn_endings.py",
    "spark/test_lost_broker.py",
    "spark/test_configuration.py",
    "spark/test_enrich_input.py",
    "spark/test_enrich_plans.py",
    "spark/test_deadlines.py",
    "spark/test_enrich_connect.py",
    "spark/test_enrich_limits.py",
    "spark/test_catalogue.py",
    "property/test_budgets.py",
    "property/test_adaptive.py",
    "unit/test_platforms.py",
    "unit/jvm/test_shim.py",
    "unit/test_sidecar.py",
    "unit/cli/test_cli.py",
    "report/test_model.py",
    "report/test_page.py",
    "report/test_cli.py",
    "reporters/kafka/test_faults.py",
    "faults/test_spool.py",
    "property/test_enrich_engine.py",
    "reporters/webhook/test_alerts.py",
    "unit/dispatch/test_process.py",
    "reporters/database/test_delivery.py",
    "faults/test_isolated_reporters.py",
    "reporters/database/test_faults.py",
    "property/test_spool_accounting.py",
    "unit/test_packaging.py",
    "reporters/kafka/test_delivery.py",
)
_RANKS = {name: rank for rank, name in enumerate(LONG_FILES)}


def arrange(items: list[pytest.Item]) -> None:
    """Move the tests of long files to the front, in place, and keep the order of all other tests.

    Raises:
        pytest.UsageError: if a test with Spark is outside :data:`SPARK_FOLDERS`.
    """
    for item in items:
        if item.get_closest_marker("spark") and _name(item).partition("/")[0] not in SPARK_FOLDERS:
            raise pytest.UsageError(
                f"{item.nodeid}: `make test` would not run this test with Spark; move it to tests/spark or tests/faults"
            )
    items.sort(key=lambda item: _RANKS.get(_name(item), len(_RANKS)))


def _name(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).as_posix() if item.path.is_relative_to(_TESTS) else ""
