"""The examples for people who write Python, as their first lines say they are run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from fakes import ROOT
from spark.harness import Lab, Run, file_reporter, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

EXAMPLES = ROOT / "examples"


def python(lab: Lab, *arguments: str | Path) -> Run:
    done = lab.run("", *map(str, arguments), program=(sys.executable,))
    assert done.process.returncode == 0, f"{done.output}\n{done.tail()}"
    return done


def test_the_notebook_runs_from_top_to_bottom(lab: Lab) -> None:
    """Each cell does what its heading says."""
    done = python(lab, EXAMPLES / "notebook.py")
    said = done.output
    assert "INFO BatchCommitEvent: Query 'clicks' committed batch 0" in said
    assert "FAILED: ZeroDivisionError: " in said
    assert "INFO OrdersImported: 12 orders were imported" in said
    # With a hint, where the job that failed was the last one.
    last = (
        r".*INFO JobStatusChangeEvent: Application 'notebook' finished: its own code stopped it( \(job \d+ failed\))?>"
    )
    assert re.fullmatch(last, said.splitlines()[-2])


def test_a_query_that_fails_stops_its_sibling(lab: Lab) -> None:
    """And the log says why."""
    done = python(lab, EXAMPLES / "stop_sibling.py")
    assert done.output.endswith("orders is active: False\n")
    assert "WARN  SiblingStopped: orders is stopped, because payments has failed" in done.log
    assert "JobStatusChangeEvent: Query 'orders' finished" in done.log


def test_a_test_waits_for_events(lab: Lab) -> None:
    """Two tests, which pass."""
    done = python(lab, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", EXAMPLES / "test_waiting.py")
    assert "2 passed" in done.output


def test_a_job_in_sql_alone(lab: Lab) -> None:
    """Two lines of configuration, and no program at all."""
    defaults = {**two_lines(), **file_reporter(Path("{folder}/events.jsonl"))}
    done = lab.run("", "-f", str(EXAMPLES / "sql_job" / "report.sql"), program=("spark-sql",), defaults=defaults)
    assert done.process.returncode != 0
    failures = done.named("JobFailureEvent")
    assert any("payment 1003 has no currency" in event["attributes"].get("exception.message", "") for event in failures)
    assert done.events()[0]["body"].endswith(" started")
