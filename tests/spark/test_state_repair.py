"""Tests that Spark's repair of damaged state is a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.harness import PATIENT, Lab, file_reporter, two_lines

# Spark repairs snapshots from version 4.1 on, so only the newest version runs this test.
pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(900)]


def test_a_repaired_snapshot_is_a_warning(lab: Lab) -> None:
    reporter = file_reporter(Path("{folder}/events.jsonl"), "async-queued")
    run = lab.run("repair.py", defaults={**two_lines(), **PATIENT, **reporter})
    assert run.process.returncode == 0, run.tail()
    *earlier, last = run.named("BatchCommitEvent", spark_streaming_query_name="repaired")
    assert {event["severity"] for event in earlier} == {"INFO"}
    assert last["severity"] == "WARN"
    assert last["body"].endswith("; Spark repaired 1 damaged snapshot of its state")
    assert last["attributes"]["spark.state.snapshots_repaired"] == 1
