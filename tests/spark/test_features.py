"""Tests of features that Spark has since version 4: transformWithState, and data sources in Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.harness import IN_MEMORY, PATIENT, Lab, Run, file_reporter, spark_version, two_lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(spark_version() < (4,), reason="transformWithState and Python data sources exist since Spark 4"),
]

_SUMS = {
    "spark.state.timers_registered": "numRegisteredTimers",
    "spark.state.timers_expired": "numExpiredTimers",
    "spark.state.disk_bytes": "rocksdbSstFileSize",
    "spark.state.checkpointed_bytes": "rocksdbBytesCopied",
}


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    defaults = {**two_lines(), **PATIENT, **IN_MEMORY, **file_reporter(Path("{folder}/events.jsonl"))}
    done = lab.run("features.py", defaults=defaults)
    assert done.process.returncode == 0, done.tail()
    return done


def test_the_state_is_that_of_the_progress(run: Run) -> None:
    """Timers, files and snapshots of the state equal the metrics in Spark's own progress, batch by batch."""
    progress = {one["batchId"]: one["stateOperators"][0]["customMetrics"] for one in run.truth()["progress"]}
    commits = {event["attributes"]["spark.batch.id"]: event["attributes"] for event in run.named("BatchCommitEvent")}
    assert progress.keys() <= commits.keys()
    assert any(metrics["numRegisteredTimers"] for metrics in progress.values())
    for batch, metrics in progress.items():
        for attribute, metric in _SUMS.items():
            assert commits[batch].get(attribute, 0) == metrics.get(metric, 0), (batch, attribute)
        uploaded = [version for name, version in metrics.items() if name.startswith("SnapshotLastUploaded.")]
        oldest = min((version for version in uploaded if version >= 0), default=None)
        assert commits[batch].get("spark.state.snapshot_version") == oldest
        assert (oldest is None) == ("spark.state.snapshot_lag" not in commits[batch])


def test_a_failed_python_data_source_is_an_outage(run: Run) -> None:
    """The error of the source's service is the cause, with the class of an external system."""
    assert run.truth()["error"]
    failures = [event["attributes"] for event in run.named("JobFailureEvent") if "spark.job.id" in event["attributes"]]
    assert failures
    assert {found["failure.class"] for found in failures} == {"EXTERNAL_SYSTEM"}
