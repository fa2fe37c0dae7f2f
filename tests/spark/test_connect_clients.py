"""Tests that events name the client of a Spark Connect server, in a live run and in a replay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from spark.connect import connect_server
from spark.harness import (
    JOBS,
    PATIENT,
    PLAIN_EVENT_LOG,
    Lab,
    environment,
    file_reporter,
    replay,
    spark_version,
    two_lines,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

#: Earlier versions run the statements of foreachBatch in the session of the client, and report the start of a query
#: without its tags.
TELLS_QUERY = spark_version() >= (4, 1)
LOG = {
    **PLAIN_EVENT_LOG,
}
CLIENT = "spark.connect."


class Served(NamedTuple):
    """What the client knows, and the events of its server."""

    truth: dict[str, Any]
    events: list[dict[str, Any]]

    def failures(self, entity: str) -> list[dict[str, Any]]:
        return [
            event
            for event in self.events
            if event["name"] == "JobFailureEvent" and event["attributes"]["spark.entity"] == entity
        ]


@pytest.fixture(scope="module")
def served(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """Run a client; return the live events and the replayed ones."""
    folder = tmp_path_factory.mktemp("clients")
    defaults = {**two_lines(), **PATIENT, **file_reporter(folder / "live.jsonl"), **LOG}
    server, port = connect_server(lab, defaults)
    command = [sys.executable, str(JOBS / "connect_clients.py"), str(folder), port]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr[-4000:]
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    live = folder / "live.jsonl"

    def over() -> list[dict[str, Any]]:
        return Served(truth, server.events(live)).failures("query")

    server.wait_for("the query's failure", over)
    log = next(path for path in server.folder.glob("local-*") if not path.name.startswith("."))
    # The server continues to run, so wait until its log contains the end of the query.
    server.wait_for("the log", lambda: "QueryTerminatedEvent" in log.read_text(encoding="utf-8"))
    again = folder / "again.jsonl"
    replayed = replay(server, log, settings={f"spark.{k}": v for k, v in file_reporter(again).items()})
    assert replayed.returncode == 0, replayed.stderr
    yield Served(truth, server.events(live)), Served(truth, server.events(Path(again)))
    server.end()


@pytest.fixture(params=["live", "replayed"])
def one(request: pytest.FixtureRequest, served: tuple[Served, Served]) -> Served:
    return served[request.param == "replayed"]


def test_a_write_of_a_client_names_it(one: Served) -> None:
    """A write has the client and its tags, and the numbers on disk."""
    (written,) = [event["attributes"] for event in one.events if event["name"] == "DataWrittenEvent"]
    assert (written["spark.write.rows"], written["spark.job.tags"]) == (7, '["nightly"]')
    assert written["spark.connect.session_id"] == one.truth["session"]
    assert written["spark.connect.user_id"] == "ada_b"


def test_every_event_of_a_client_names_it(one: Served) -> None:
    """Every event of a job, a stage, a SQL execution or a query of the client has its session, user and operation."""
    scopes = {"spark.job", "spark.stage", "spark.sql.execution", "spark.streaming.query"}
    found = [event for event in one.events if event["class_scope"] in scopes]
    assert {event["class_scope"] for event in found} == scopes
    for event in found:
        about = event["attributes"]
        if not TELLS_QUERY and event["body"].endswith("query 'inner' started"):
            continue
        assert about[CLIENT + "user_id"] == "ada_b", event
        assert CLIENT + "operation_id" in about, event
        if "spark.streaming.query.id" in about or event["name"] != "JobFailureEvent":
            assert about[CLIENT + "session_id"] == one.truth["session"], event


def test_the_client_s_tags_are_attributes(one: Served) -> None:
    tagged = [event for event in one.events if "spark.job.tags" in event["attributes"]]
    assert {event["attributes"]["spark.job.tags"] for event in tagged} == {'["nightly"]'}
    assert {"spark.job"} <= {event["class_scope"] for event in tagged}


def test_a_statement_without_a_job_is_reported_once(one: Served) -> None:
    """A syntax error, an analysis error and a failed command cause one WARN each; a failed job causes no more."""
    failed = [event for event in one.failures("sql") if event["severity"] == "WARN"]
    types = [event["attributes"]["error.type"] for event in failed]
    assert types == ["PARSE_SYNTAX_ERROR", "TABLE_OR_VIEW_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"]
    syntax = failed[0]
    assert syntax["attributes"]["spark.sql.statement"] == "selec 1"
    assert f"(selec 1) (user 'ada_b', session {one.truth['session'][:8]}) failed: " in syntax["body"]
    jobs = one.failures("job")
    assert [event["severity"] for event in jobs] == ["WARN", "WARN"]
    assert all("ada_b" in event["body"] for event in (*failed, jobs[0]))


@pytest.mark.skipif(not TELLS_QUERY, reason="this version runs foreachBatch in the session of the client")
def test_a_job_inside_foreach_batch_has_its_query(one: Served) -> None:
    """The failure of a job inside foreachBatch belongs to the incident of its query, which is the one alarm."""
    query, job = one.failures("query")[0], one.failures("job")[1]
    for key in ("spark.streaming.query.id", "spark.streaming.query.name", "spark.batch.id", "incident.id"):
        assert job["attributes"][key] == query["attributes"][key]
    assert job["attributes"]["spark.streaming.query.run_id"] == one.truth["run"]
    assert [event["severity"] for event in one.failures("query")] == ["ERROR"]
    assert [e for e in one.failures("sql") if "spark.streaming.query.id" in e["attributes"]] == []
    alarms = [event for event in one.events if event["attributes"].get("incident.role") == "alarm"]
    assert [event["event_id"] for event in alarms] == [query["event_id"]]
    assert f"query 'inner' (user 'ada_b', session {one.truth['session'][:8]}) failed at batch 1" in query["body"]


def test_a_replay_has_the_same_failures(served: tuple[Served, Served]) -> None:
    live, replayed = (
        {(e["event_id"], e["severity"], e["body"]) for e in one.events if e["name"] == "JobFailureEvent"}
        for one in served
    )
    assert live == replayed
