"""Tests of the Python examples, which run with the commands in their docstrings."""

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
    """The notebook runs from top to bottom, and each cell has the effect that its heading describes."""
    done = python(lab, EXAMPLES / "notebook.py")
    output = done.output
    assert "INFO BatchCommitEvent: notebook: query 'clicks' committed batch 0" in output
    assert "FAILED: ZeroDivisionError: " in output
    assert "INFO OrdersImported: 12 orders were imported" in output
    # The last job failed, and the exit code of a notebook is unknown. A commit of the query may have followed.
    finished = r".*INFO JobStatusChangeEvent: Application 'notebook' finished: its own code stopped it>"
    doubtful = r".*ERROR JobFailureEvent: notebook: application ended after its last job failed: ZeroDivisionError.*"
    assert re.fullmatch(f"{finished}|{doubtful}", output.splitlines()[-2])


def test_a_failed_query_stops_its_sibling(lab: Lab) -> None:
    done = python(lab, EXAMPLES / "stop_sibling.py")
    assert done.output.endswith("orders is active: False\n")
    assert "WARN  SiblingStopped: stopping orders, because payments failed" in done.log
    assert "JobStatusChangeEvent: siblings: query 'orders' finished" in done.log


def test_the_example_tests_pass(lab: Lab) -> None:
    done = python(lab, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", EXAMPLES / "test_waiting.py")
    assert "2 passed" in done.output


def test_a_job_in_plain_sql(lab: Lab) -> None:
    """With two lines of configuration, a job in plain SQL, without a program, emits its events."""
    defaults = {**two_lines(), **file_reporter(Path("{folder}/events.jsonl"))}
    done = lab.run("", "-f", str(EXAMPLES / "sql_job" / "report.sql"), program=("spark-sql",), defaults=defaults)
    assert done.process.returncode != 0
    failures = done.named("JobFailureEvent")
    assert any("payment 1003 has no currency" in event["attributes"].get("exception.message", "") for event in failures)
    assert done.events()[0]["body"].endswith(" started")
