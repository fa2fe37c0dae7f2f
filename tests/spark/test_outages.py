"""Tests of the verdicts on outages that Python clients meet in foreachBatch."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark.harness import PATIENT, Lab, Run, file_reporter, line_of, two_lines

# The environments of other Spark versions lack the clients.
pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

QUERIES = (
    "httpx_disconnected", "aiohttp_disconnected", "psycopg_full", "sqlalchemy_full", "name_unknown",
    "requests_disconnected",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    """Return the finished job, in which every query met an outage."""
    defaults = {**two_lines(), **PATIENT, **file_reporter(Path("{folder}/events.jsonl"))}
    found = lab.run("outages.py", defaults=defaults)
    assert found.process.returncode == 0, found.tail()
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_an_outage_is_not_blamed_on_the_user_s_code(run: Run, name: str) -> None:
    """The client's type decides: EXTERNAL_SYSTEM, a rerun helps, and the location is the line of the call."""
    (found,) = [
        event["attributes"]
        for event in run.events()
        if event["name"] == "JobFailureEvent" and event["attributes"].get("spark.streaming.query.name") == name
    ]
    assert (found["failure.class"], found["failure.evidence"]) == ("EXTERNAL_SYSTEM", "type")
    assert found["failure.retry_useful"] is True
    assert found["failure.label.type"] == "SYSTEM"
    assert f"outages.py:{line_of('outages.py', f'# the line of {name}')} in " in found["failure.location"]
