"""Test of the progress of a batch that takes long, in the log, as an event and in ``spark-events tail``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from enrich_service import EnrichService, rule
from spark.harness import Lab, file_reporter, two_lines

from spark_events.cli import main

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(600)]


def test_a_long_batch_reports_its_progress(lab: Lab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While one call takes long, each interval reports the answered rows of both tasks, the limits and their cause."""
    with EnrichService(tmp_path / "calls.jsonl") as service:
        service.script(rules=[rule("25", forever={"held": True})])
        job = lab.start(
            "enrich_progress.py", str(service.port),
            defaults={**two_lines(), **file_reporter(Path("{folder}/e.jsonl"))},
            env={"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
        )  # fmt: skip
        path = job.folder / "e.jsonl"

        def latest() -> dict[str, Any] | None:
            found = [e["attributes"] for e in job.events(path) if e["name"] == "EnrichmentProgressEvent"]
            # A task may be too slow to report between two events; the second one then contains no cause.
            complete = [one for one in found if json.loads(one["spark.enrich.limited_by"])]
            return next((one for one in complete if one["spark.enrich.rows"] == 39), None)

        shown = job.wait_for("the progress of the other rows", latest)
        assert shown["spark.enrich.in_flight"] == 1
        assert shown["spark.enrich.partitions"] == 2
        assert shown["spark.enrich.failures"] == 0
        assert json.loads(shown["spark.enrich.limits"]) == {"max_in_flight": 20, "rate_limit": 1000}
        service.release()
        assert job.wait() == 0, job.tail()
    numbers = [e["attributes"]["spark.enrich.rows"] for e in job.events(path) if e["name"] == "EnrichmentProgressEvent"]
    assert numbers == sorted(numbers)
    assert [e["name"] for e in job.events(path) if e["name"].startswith("Enrichment")][-1] == "EnrichmentEvent"
    assert "Enriching with lookup" in job.output
    assert main(["tail", str(path), "--name", "EnrichmentProgressEvent"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(numbers)
    assert "enrich-progress: enriching with lookup" in lines[-1]
    assert any("39 rows after" in line and "calls in flight: 1, limited by" in line for line in lines)
