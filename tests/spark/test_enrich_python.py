"""Test of workers whose Python lacks this package."""

from __future__ import annotations

import sys

import pytest
from enrich_service import EnrichService
from spark.harness import Lab, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(600)]


def test_workers_without_the_package_are_explained(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without an activated environment, Spark's workers run another Python than the driver."""
    bare = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    with EnrichService(tmp_path_factory.mktemp("service") / "calls.jsonl") as service:
        job = lab.run(
            "enrich_progress.py", str(service.port), defaults=two_lines(),
            env={"PYSPARK_PYTHON": bare, "PYSPARK_DRIVER_PYTHON": sys.executable},
        )  # fmt: skip
    assert job.process.returncode != 0
    last = job.output.strip().splitlines()[-1]
    assert "InvalidPlanError: the tasks run" in job.output, last
    assert f"{bare!r}, which lacks spark_events; the driver runs {sys.executable}" in job.output
    assert service.calls() == []
