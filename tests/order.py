"""Order of the test files.

pytest-xdist starts files in the order of collection. A long file that starts last would leave the other processes idle.
"""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["LONG_FILES", "SPARK_FOLDERS", "arrange", "collects_only_spark_folders"]

_TESTS = Path(__file__).parent
#: Folders of all tests with Spark. For such tests, the Makefile collects only these folders, because collecting all
#: folders takes several seconds per process.
SPARK_FOLDERS = ("spark", "faults")
#: Slowest test files, slowest first.
LONG_FILES = (
    "spark/test_enrich_cluster.py",
    "spark/test_run.py",
    "spark/test_airflow.py",
    "spark/test_yarn_endings.py",
    "spark/test_containers.py",
    "spark/test_guarantees.py",
    "spark/test_enrich_limits.py",
    "spark/test_standalone.py",
    "spark/test_enrich_connect.py",
    "spark/test_enrich_batch.py",
    "spark/test_python_endings.py",
    "spark/test_recipes.py",
    "spark/test_session.py",
    "spark/test_enrich_cache.py",
    "spark/test_plugin.py",
    "faults/test_processes.py",
    "spark/test_examples.py",
    "spark/test_enrich_stream.py",
    "spark/test_endings.py",
    "faults/test_at_random.py",
    "spark/test_deadlines.py",
    "spark/test_enrich_input.py",
    "spark/test_sql_failures.py",
    "spark/test_lost_output.py",
    "spark/test_guides.py",
    "spark/test_catalogue.py",
    "spark/test_failures.py",
    "spark/test_incidents.py",
    "spark/test_event_time.py",
    "spark/test_configuration.py",
    "property/test_adaptive.py",
    "property/test_budgets.py",
    "unit/jvm/test_shim.py",
    "unit/test_platforms.py",
    "unit/dispatch/test_process.py",
    "unit/enrichment/engine/test_limits.py",
    "reporters/kafka/test_faults.py",
    "property/test_enrich_engine.py",
    "unit/sidecar/test_sidecar.py",
    "report/test_page.py",
    "report/test_model.py",
    "unit/cli/test_cli.py",
    "reporters/kafka/test_delivery.py",
    "faults/test_spool.py",
    "faults/test_enrich_service.py",
    "reporters/database/test_faults.py",
    "unit/enrichment/engine/test_attempts.py",
    "unit/dispatch/test_delivery.py",
    "unit/test_release.py",
    "reporters/webhook/test_faults.py",
    "unit/dispatch/test_isolation.py",
    "unit/dispatch/test_shutdown.py",
    "report/test_cli.py",
    "faults/test_isolated_reporters.py",
    "reporters/otlp/test_outages.py",
    "unit/enrichment/engine/test_quota.py",
    "reporters/webhook/test_alerts.py",
    "reporters/database/test_delivery.py",
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


def collects_only_spark_folders(config: pytest.Config) -> bool:
    """Return whether all paths that pytest collects are in :data:`SPARK_FOLDERS`."""
    folders = [_TESTS / name for name in SPARK_FOLDERS]
    paths = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    return all(any(path.is_relative_to(folder) for folder in folders) for path in paths)


def _name(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).as_posix() if item.path.is_relative_to(_TESTS) else ""
