"""Tests with Spark Connect, where the listener runs in the server.

A client receives only the events of its own queries.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
from spark.connect import connect_server
from spark.harness import JOBS, PATIENT, Lab, Run, environment, file_reporter, spark_version, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

IS_3_5, IS_4_3 = spark_version() < (4,), spark_version() >= (4, 3)
SESSION = re.compile(r" \(session \w{8}\)")
since_4 = pytest.mark.skipif(IS_3_5, reason="3.5 runs its clients' listeners on the server")


@pytest.fixture(scope="module")
def connected(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Any]:
    """Run a server with the two lines of configuration. Return the server and the events of its client."""
    folder = tmp_path_factory.mktemp("client")
    server, port = connect_server(lab, {**two_lines(), **PATIENT, **file_reporter(folder / "server.jsonl")})
    command = [sys.executable, str(JOBS / "session_connect.py"), str(folder), port]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    # Wait for the events, because the test kills the server next.
    last = re.compile(rf": query 'unseen'({SESSION.pattern})? started")
    server.wait_for(
        "the last query", lambda: [e for e in server.events(folder / "server.jsonl") if last.search(e["body"])]
    )
    server.end()
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    truth["server"] = server.events(folder / "server.jsonl")
    truth["client"] = server.events(folder / "client.jsonl")
    return server, truth


def test_the_server_reports_all_events(connected: tuple[Run, Any]) -> None:
    """The server reports its application, the client's queries, and the failure of a query."""
    _, truth = connected
    bodies = [event["body"] for event in truth["server"]]
    assert any(body.startswith("Application ") and body.endswith(" started") for body in bodies)
    sentences = {SESSION.sub("", body.partition(": ")[2]) for body in bodies}
    assert {"query 'good' started", "query 'good' finished", "query 'unseen' started"} <= sentences
    # Before 4.3, Spark does not report whose query starts.
    queries = [body for body in bodies if ": query '" in body and (IS_4_3 or not body.endswith(" started"))]
    assert all(SESSION.search(body) for body in queries if "'unseen'" not in body)
    failures = [e for e in truth["server"] if e["name"] == "JobFailureEvent"]
    assert "bad" in [e["attributes"].get("spark.streaming.query.name") for e in failures]


@since_4
def test_a_client_receives_its_own_queries(connected: tuple[Run, Any]) -> None:
    """A client's callbacks and reporters receive all events of its own queries, with the server's application."""
    _, truth = connected
    assert truth["kind"] == "pyspark.sql.connect.session"
    assert ": query 'good' committed batch " in truth["commit"]
    assert truth["failure"][:2] == ["ERROR", "bad"]
    *others, failed = truth["calls"]
    sentences = [body.partition(": ")[2] for body in others]
    assert sentences == ["query 'good' started", "query 'good' finished", "query 'bad' started"]
    assert ": query 'bad' went from RUNNING to FAILED: " in failed
    assert truth["applications"] == [truth["app_id"]]
    assert [[e["name"], e["body"]] for e in truth["client"]] == truth["history"]
    assert truth["later"] == len(truth["history"])


@since_4
def test_a_client_and_the_server_report_the_same_ids(connected: tuple[Run, Any]) -> None:
    """A client and the server assign the same event ids, so a destination can remove duplicates."""
    _, truth = connected
    queries = [e for e in truth["client"] if e["attributes"].get("spark.entity") == "query"]
    assert len(queries) >= 4
    assert {e["event_id"] for e in queries} <= {e["event_id"] for e in truth["server"]}


def test_unsupported_calls_raise_errors(connected: tuple[Run, Any]) -> None:
    """A Connect client logs one warning on startup and raises an error at each unsupported call."""
    _, truth = connected
    if IS_3_5:
        assert truth["start"].startswith("Spark Connect 3.5.")
        assert "configure the server with spark_events.spark_conf()" in truth["start"]
    else:
        (message,) = [one for one in truth["messages"] if "Connect" in one]
        assert "reports only its own streaming queries" in message
        assert "add the settings of spark_events.spark_conf() to the server's configuration" in message
    assert truth["configure"].startswith("a Spark Connect client cannot install the listener")
    assert truth["add"].startswith("a Spark Connect client cannot add events")
