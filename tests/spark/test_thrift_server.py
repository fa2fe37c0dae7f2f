"""Tests that statements that fail on a Thrift server are reported once, with their user and session."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from ports import free_port
from spark.harness import (
    IN_MEMORY,
    PATIENT,
    PLAIN_EVENT_LOG,
    Lab,
    environment,
    file_reporter,
    pyspark_home,
    replay,
    two_lines,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LOG = {
    **PLAIN_EVENT_LOG,
}
SERVER = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
STATEMENTS = """
select 1/0;
selec 1;
select * from no_such_table;
select assert_true(id < 0) from range(2);
set spark.sql.thriftServer.queryTimeout=2;
select sum(hash(a.id, b.id)) from range(100000000) a, range(100000000) b;
"""


@pytest.fixture(scope="module")
def runs(lab: Lab) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """Run the statements; return the live events and the replayed ones."""
    port = free_port()
    defaults = {**two_lines(), **PATIENT, **IN_MEMORY, **LOG, "spark.sql.ansi.enabled": "true"}
    defaults |= file_reporter(lab.folder / "live.jsonl")
    options = ["hive.server2.thrift.bind.host=127.0.0.1", f"hive.server2.thrift.port={port}"]
    arguments = [word for option in options for word in ("--hiveconf", option)]
    server = lab.start("", "spark-internal", *arguments, program=["spark-submit", "--class", SERVER], defaults=defaults)
    server.wait_for("the server", lambda: re.search(r"ThriftBinaryCLIService on port \d+", server.log))
    script = server.folder / "statements.sql"
    script.write_text(STATEMENTS, encoding="utf-8")
    beeline = [pyspark_home() / "bin" / "beeline", "--force=true", "-n", "ada", "-f", script]
    command = [*map(str, beeline), "-u", f"jdbc:hive2://127.0.0.1:{port}/"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, cwd=server.folder)

    def live() -> list[dict[str, Any]]:
        return server.events(lab.folder / "live.jsonl")

    server.wait_for("the timeout", lambda: [e for e in live() if "query timeout" in e["body"]] or print(done.stderr))
    (log,) = (path for path in server.folder.glob("local-*") if not path.name.startswith("."))
    server.wait_for("the log", lambda: "OperationTimeout" in log.read_text(encoding="utf-8"))
    again = lab.folder / "again.jsonl"
    replayed = replay(server, log, settings={f"spark.{k}": v for k, v in file_reporter(again).items()})
    assert replayed.returncode == 0, replayed.stderr
    yield live(), server.events(again)
    server.end()


@pytest.mark.parametrize("which", ["live", "replayed"])
def test_each_failed_statement_is_one_problem(
    runs: tuple[list[dict[str, Any]], list[dict[str, Any]]], which: str
) -> None:
    """Without a job, the statement or its execution is reported; with a job, the job; and a timeout as a timeout."""
    events = runs[which == "replayed"]
    failed = [event for event in events if event["name"] == "JobFailureEvent" and event["severity"] == "WARN"]
    types = [(event["attributes"]["spark.entity"], event["attributes"]["error.type"]) for event in failed]
    assert [types[0], types[1]] == [("sql", "DIVIDE_BY_ZERO"), ("sql", "PARSE_SYNTAX_ERROR")]
    assert types[2] == ("sql", "TABLE_OR_VIEW_NOT_FOUND")
    assert types[3][0] == "job"
    assert types[4:] == [("sql", "QUERY_TIMEOUT")]
    assert "(select 1/0) (user 'ada', session " in failed[0]["body"]
    sessions = set()
    for event in failed:
        about = event["attributes"]
        assert about["spark.thriftserver.user"] == "ada", event
        assert about["spark.sql.statement"].startswith("sel"), event
        sessions.add(about["spark.thriftserver.session_id"])
    assert len(sessions) == 1
    stages = [event for event in events if event["class_scope"] == "spark.stage"]
    assert {event["attributes"].get("spark.thriftserver.user") for event in stages} == {"ada"}


def test_a_replay_has_the_same_failures(runs: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> None:
    live, replayed = ({(e["event_id"], e["severity"]) for e in one if e["name"] == "JobFailureEvent"} for one in runs)
    assert live == replayed
