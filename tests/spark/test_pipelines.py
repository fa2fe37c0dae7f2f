"""Tests of declarative pipelines, which ``spark-pipelines run`` runs (Spark 4.1 and newer)."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from spark.harness import PATIENT, SMALL_SPARK, Lab, Run, file_reporter, replay, spark_version, two_lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(spark_version() < (4, 1), reason="spark-pipelines run exists since Spark 4.1"),
]

_DEFINITIONS = Path(__file__).parent / "pipelines"
_PIPELINES = ("good", "bad_view", "bad_stream", "unresolved", "bad_definition", "bad_function", "cycle", "twice")
_CATALOG = "spark_catalog.default."
_RETRIES = 1
#: The command rejects a master in Spark's defaults; it passes its own.
_SMALL = {key: value for key, value in SMALL_SPARK.items() if key != "spark.master"}


@pytest.fixture(scope="module")
def runs(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Run]]:
    """Run all pipelines, at most two at a time."""
    folder = tmp_path_factory.mktemp("pipelines")
    return {name: lab.background(_run, lab, folder / name, name) for name in _PIPELINES}


def _run(lab: Lab, project: Path, name: str) -> Run:
    project.mkdir()
    (project / "definitions.py").write_bytes((_DEFINITIONS / f"{name}.py").read_bytes())
    (project / "spark-pipeline.yml").write_text(
        f'# A pipeline\nstorage: {(project / "storage").as_uri()}\nname: "shop {name}"  # of the shop\n'
        "libraries:\n  - glob:\n      include: definitions.py\n",
        encoding="utf-8",
    )
    defaults = {
        **two_lines(),
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl")),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.pipelines.maxFlowRetryAttempts": str(_RETRIES),
        "spark.sql.pipelines.execution.watchdog.minRetryTime": "1s",
        "spark.sql.pipelines.execution.streamstate.pollingInterval": "1s",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": "{folder}",
        "spark.eventLog.compress": "false",
    }
    command = ("spark-pipelines", "run", "--remote", "local[2]", "--spec", str(project / "spark-pipeline.yml"))
    # The command always connects to the default port, unless this variable is set: then Spark chooses a free one.
    return lab.run("", program=command, defaults=defaults, small=_SMALL, env={"SPARK_TESTING": "1"})


@pytest.fixture(params=_PIPELINES)
def pipeline(request: pytest.FixtureRequest, runs: dict[str, Future[Run]]) -> tuple[str, Run]:
    """Return each pipeline, finished."""
    return request.param, runs[request.param].result()


def _failures(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] == "JobFailureEvent"]


def _about(event: dict[str, Any]) -> tuple[str, str]:
    return event["attributes"].get("spark.pipeline.flow", ""), event["attributes"].get("spark.pipeline.dataset", "")


def test_the_exit_code_and_the_last_status_agree(pipeline: tuple[str, Run]) -> None:
    """The command exits with 0 if and only if the application is FINISHED; otherwise it is FAILED, with one alarm."""
    name, run = pipeline
    changes = [e for e in run.events() if e["name"] == "JobStatusChangeEvent"]
    last = [e["attributes"]["spark.status.new"] for e in changes if e["attributes"]["spark.entity"] == "application"]
    alarms = [e for e in run.events() if e["attributes"].get("incident.role") == "alarm"]
    is_good = name == "good"
    assert run.process.returncode == (0 if is_good else 1), run.tail()
    assert last == ["RUNNING", "FINISHED" if is_good else "FAILED"]
    assert len(alarms) == (0 if is_good else 1), [e["body"] for e in alarms]
    assert all(e["severity"] == "ERROR" and e["attributes"]["spark.entity"] == "application" for e in alarms)


def test_the_pipeline_names_the_application(pipeline: tuple[str, Run]) -> None:
    """All events have the pipeline's name, in place of the name that Spark gives to every application in Python."""
    name, run = pipeline
    attributes = [e["attributes"] for e in run.events()]
    assert {a["spark.app.name"] for a in attributes} == {f"shop {name}"}
    assert {a["spark.pipeline.name"] for a in attributes} == {f"shop {name}"}
    assert not [e["body"] for e in run.events() if "Spark Connect - " in e["body"] or "pyspark-shell" in e["body"]]


def test_a_failed_pipeline_stays_open(pipeline: tuple[str, Run]) -> None:
    """Neither a commit of another flow nor ``stop()`` closes the incident of the pipeline; its success does."""
    name, run = pipeline
    key = f"shop {name}/failure"
    closing = []
    for event in run.events():
        about = event["attributes"]
        if about.get("incident.role") == "recovery":
            closed = [about["incident.key"], *json.loads(about.get("incident.more_keys", "[]"))]
            closing += [event["name"]] * (key in closed)
    assert closing == (["JobStatusChangeEvent"] if name == "good" else [])


def test_work_has_its_flow_and_data_set(runs: dict[str, Future[Run]]) -> None:
    """Each job, stage, write and query of a good pipeline names its flow and its data set."""
    events = runs["good"].result().events()
    of_query = {_about(e) for e in events if "spark.streaming.query.name" in e["attributes"]}
    assert of_query == {(f"{_CATALOG}clicks_of_web", "clicks")}
    written = {_about(e) for e in events if e["name"] == "DataWrittenEvent"}
    assert written == {("orders", f"{_CATALOG}orders"), ("totals", f"{_CATALOG}totals")}
    jobs = [e for e in events if "spark.job.id" in e["attributes"] or "spark.stage.id" in e["attributes"]]
    assert jobs
    assert all(_about(e)[0] for e in jobs)
    assert any("(flow 'orders')" in e["body"] for e in jobs)


def test_a_failed_view_is_named(runs: dict[str, Future[Run]]) -> None:
    """The alarm names the flow, the data set and the cause; each try of the flow is WARN."""
    *tries, alarm = [e for e in _failures(runs["bad_view"].result().events()) if e["severity"] in ("WARN", "ERROR")]
    assert "application failed: flow 'orders' of data set" in alarm["body"]
    assert f"{_CATALOG}orders" in alarm["body"]
    assert "no such order" in alarm["body"]
    assert _about(alarm) == ("orders", f"{_CATALOG}orders")
    assert alarm["attributes"]["error.type"] == "USER_RAISED_EXCEPTION"
    assert [e["severity"] for e in tries] == ["WARN"] * (1 + _RETRIES)
    assert {_about(e) for e in tries} == {_about(alarm)}


def test_a_failed_stream_is_tried_again(runs: dict[str, Future[Run]]) -> None:
    """Each failure of a streaming flow is WARN, because Spark may start the flow again; the pipeline is the alarm."""
    failures = _failures(runs["bad_stream"].result().events())
    queries = [e for e in failures if e["attributes"]["spark.entity"] == "query"]
    assert [e["severity"] for e in queries] == ["WARN"] * (1 + _RETRIES)
    assert all("failure.will_retry" not in e["attributes"] for e in queries)
    (alarm,) = [e for e in failures if e["severity"] == "ERROR"]
    assert f"flow '{_CATALOG}clicks_of_web' of data set 'clicks' (definitions.py:12) failed: " in alarm["body"]
    assert "bad click" in alarm["body"]


def test_flows_that_do_not_resolve_are_named(runs: dict[str, Future[Run]]) -> None:
    """If Spark cannot analyse the flows, the alarm names all of them, and what Spark did not find."""
    events = runs["unresolved"].result().events()
    (alarm,) = [e for e in _failures(events) if e["severity"] == "ERROR"]
    for text in ("'totals'", "'customers'", "could not be resolved", "people", "amount"):
        assert text in alarm["body"]
    assert "'orders'" not in alarm["body"].partition("could not be resolved")[0]
    assert all(_line_of("unresolved", name) in alarm["body"] for name in ("totals", "customers"))
    assert not [e for e in events if "spark.job.id" in e["attributes"]]


def _line_of(pipeline: str, function: str) -> str:
    """Return the line that Spark reports for a data set: that of the decorator of its function."""
    lines = (_DEFINITIONS / f"{pipeline}.py").read_text(encoding="utf-8").splitlines()
    return f"definitions.py:{lines.index(f'def {function}() -> DataFrame:')}"


@pytest.mark.parametrize(
    ("pipeline", "beginning", "functions"),
    [
        ("bad_function", "failed before its run started: an error in the function of data set 'totals' (", ["totals"]),
        ("cycle", "failed: Spark rejected flow 'orders' of data set 'orders' (", ["orders", "totals"]),
        ("twice", "failed: Spark rejected flow 'orders' of data set 'orders' (", ["second"]),
    ],
)
def test_an_error_in_a_definition_has_its_line(
    pipeline: str, beginning: str, functions: list[str], runs: dict[str, Future[Run]]
) -> None:
    """Body and attributes name the data set and the line that defines it."""
    (alarm,) = [e for e in _failures(runs[pipeline].result().events()) if e["severity"] == "ERROR"]
    assert f"application {beginning}" in alarm["body"]
    lines = [_line_of(pipeline, function) for function in functions]
    assert all(line in alarm["body"] for line in lines)
    assert alarm["attributes"]["spark.pipeline.location"].endswith(f"/{lines[0]}")
    assert alarm["attributes"]["spark.pipeline.dataset"] == ("totals" if pipeline == "bad_function" else "orders")


def test_an_error_in_the_definitions_is_a_failure(runs: dict[str, Future[Run]]) -> None:
    """If the definitions raise an exception, the pipeline has failed, although ``stop()`` ended the application."""
    run = runs["bad_definition"].result()
    (alarm,) = [e for e in _failures(run.events()) if e["severity"] == "ERROR"]
    assert "failed before its run started" in alarm["body"]
    assert "the definitions are wrong" in (run.folder / "stdout").read_text(encoding="utf-8")


def test_a_replay_has_the_same_outcome(pipeline: tuple[str, Run]) -> None:
    """The event log has the same events; only the pipeline's name, which Spark does not know, is missing."""
    name, run = pipeline
    (log,) = run.folder.glob("eventlog_v2_*")
    done = replay(run, log, settings=file_reporter(run.folder / "replayed.jsonl"))
    assert done.returncode == 0, done.stderr

    def shown(events: list[dict[str, Any]]) -> list[tuple[str, str, tuple[str, str]]]:
        bodies = ((e["event_id"], e["body"].replace(f"shop {name}", "pyspark-shell"), _about(e)) for e in events)
        return sorted(bodies)

    live = [e for e in run.events() if e["name"] not in ("DispatcherReportEvent", "ApplicationSummaryEvent")]
    again = [e for e in run.events(run.folder / "replayed.jsonl") if e["name"] != "ApplicationSummaryEvent"]
    assert shown(again) == shown(live)
