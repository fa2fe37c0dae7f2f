"""Tests of declarative pipelines, from the records of the commands that define and run them."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, application_end, application_start, decoded, query_progress, query_started, query_terminated

from spark_events import Event, Severity
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

SESSION, RUN = "839c8b37-e5f1-4496-83ce-6ca71c9ee9bb", "017d1ebc-5fb8-4545-b00e-2d6ac82a7004"
TAG = f"SparkConnect_OperationTag_User_ada_Session_{SESSION}_Operation_{RUN}"
SHELL = {"command": "org.apache.spark.deploy.SparkSubmit --conf a=b pyspark-shell", "app_name": "pyspark-shell"}
QUERY = "spark_catalog.default.clicks_of_web"


def command(kind: str, identity: str, line: int | None = None, **fields: str) -> dict[str, Any]:
    lines = [f'    {name}: "{value}"' for name, value in fields.items()]
    if line is not None:
        place = ['      file_name: "/shop/definitions.py"', f"      line_number: {line}"]
        lines += ["    source_code_location {", *place, "    }"]
    text = "\n".join(["pipeline_command {", f"  {kind} {{", '    dataflow_graph_id: "g"', *lines, "  }", "}"])
    return {**about("pipeline_command_started", identity), "statement": text}


def about(kind: str, identity: str = RUN, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "at": START,
        "time": START,
        "statement_id": identity,
        "user": "ada",
        "session_id": SESSION,
    } | more


DEFINED = [
    command("create_dataflow_graph", "o1"),
    command("define_flow", "o2", flow_name="orders", target_dataset_name="orders"),
    command("define_flow", "o3", flow_name="clicks_of_web", target_dataset_name="clicks"),
]
STARTED = [*DEFINED, command("start_run", RUN)]
FAILED_QUERY = [
    query_started(name=QUERY, tags=TAG),
    query_terminated(exception="java.io.IOException: disk full"),
]


def failed(error: str, identity: str = RUN) -> dict[str, Any]:
    return about("statement_failed", identity, tag=TAG, error=f"INTERNAL: {error}")


def events(
    *records: dict[str, Any], translator: Translator | None = None, command: str = SHELL["command"]
) -> list[Event]:
    translator = translator or Translator(TranslateConfig())
    first = application_start(**{**SHELL, "command": command})
    return [event for record in (first, *records) for event in translator.translate(decoded(record))]


def statuses(found: list[Event]) -> list[object]:
    of_application = [e for e in found if e.attributes.get("spark.entity") == "application"]
    return [e.attributes["spark.status.new"] for e in of_application if "spark.status.new" in e.attributes]


def alarms(found: list[Event]) -> list[Event]:
    return [event for event in found if event.attributes.get("incident.role") == "alarm"]


@pytest.mark.parametrize(
    ("records", "status"),
    [
        ([*STARTED, about("pipeline_command_ended")], "FINISHED"),
        ([*STARTED, *FAILED_QUERY, about("pipeline_command_ended")], "FINISHED"),
        ([*STARTED, about("pipeline_command_cancelled")], "CANCELLED"),
        ([*STARTED, failed("[A_B] no")], "FAILED"),
        (DEFINED, "FAILED"),
        ([*DEFINED, failed("[A_B] no", "o3")], "FAILED"),
    ],
)
def test_the_outcome_is_that_of_the_run(records: list[dict[str, Any]], status: str) -> None:
    """The end of the command ``start_run`` decides, because the program calls ``stop()`` in any case."""
    found = events(*records, application_end("STOPPED"))
    assert statuses(found) == ["RUNNING", status]
    assert len(alarms(found)) == (status == "FAILED")


def test_an_exit_code_is_better_evidence() -> None:
    found = events(*STARTED, about("pipeline_command_ended"), application_end("PROGRAM_FAILED", program_exit_code=3))
    assert statuses(found) == ["RUNNING", "FAILED"]


def test_a_failed_flow_is_a_warning_and_the_alarm_names_it() -> None:
    found = events(*STARTED, *FAILED_QUERY, failed("[STREAM_FAILED] java.io.IOException: disk full"), application_end())
    (query,) = [e for e in found if e.name == "JobFailureEvent" and e.attributes["spark.entity"] == "query"]
    assert (query.severity, query.attributes["spark.pipeline.dataset"]) == (Severity.WARN, "clicks")
    (alarm,) = alarms(found)
    assert alarm.body.endswith(f"failed: flow '{QUERY}' of data set 'clicks' failed: java.io.IOException: disk full")
    assert alarm.attributes["failure.class"] == query.attributes["failure.class"]


def test_a_flow_that_succeeded_later_is_not_named() -> None:
    again = [query_started("r2", name=QUERY, tags=TAG), query_terminated("r2")]
    found = events(*STARTED, *FAILED_QUERY, *again, failed("[A_B] another flow"), application_end())
    (alarm,) = alarms(found)
    assert "clicks" not in alarm.body
    assert "[A_B] another flow" in alarm.body


def test_a_commit_does_not_close_the_pipeline() -> None:
    found = events(*STARTED, query_started(name=QUERY, tags=TAG), query_progress(0))
    (commit,) = [e for e in found if e.name == "BatchCommitEvent"]
    closed = f"{commit.attributes.get('incident.key')} {commit.attributes.get('incident.more_keys')}"
    assert "pyspark-shell/failure" not in closed


def test_a_batch_flow_is_found_by_the_table_that_it_writes() -> None:
    """The outermost execution of a flow does not name the table; a nested one does."""
    start = {"kind": "sql_execution_start", "time": START, "description": "Spark Connect - x", "tags": TAG}
    plan = [{"name": "Execute InsertIntoX", "arguments": "`spark_catalog`.`default`.`orders`, Append"}]
    job = {"kind": "job_start", "job_id": 4, "time": START, "properties": {"spark.sql.execution.id": "8"}}
    written = {"kind": "data_written", "execution_id": 7, "time": START, "started": START, "nodes": {"8": "Execute X"}}
    nested = {**start, "execution_id": 8, "root_id": 7, "plan": plan}
    stage = {"stage_id": 5, "attempt": 0, "tasks": 1, "time": START}
    lost = {**stage, "name": "save", "failed": 1, "failure_reason": "lost", "task_failure": "lost"}
    stages = [
        {"kind": "stage_submitted", **stage, "name": "save", "properties": job["properties"]},
        {"kind": "stage_tasks", **stage, "status": "ALL_FINISHED", "running": 0, "finished": 1, "failed": 0},
        {"kind": "stage_completed", **lost},
    ]
    found = events(*STARTED, {**start, "execution_id": 7, "root_id": 7}, nested, job, *stages, written)
    (started,) = [e for e in found if e.class_scope == "spark.job"]
    assert started.body == "pyspark-shell: job 4 (flow 'orders') (user 'ada', session 839c8b37) started"
    scopes = ("spark.job", "spark.stage", "spark.sql.execution")
    of_flow = {e.name: e.attributes.get("spark.pipeline.flow") for e in found if e.class_scope in scopes}
    names = ("JobStatusChangeEvent", "AllSubtasksStatusChangeEvent", "JobFailureEvent", "DataWrittenEvent")
    assert of_flow == dict.fromkeys(names, "orders")
    assert any("stage 5 [save] failed (flow 'orders') (user 'ada', session 839c8b37): lost" in e.body for e in found)


def test_unresolved_flows_are_named() -> None:
    reason = {"kind": "sql_execution_start", "execution_id": 1, "time": START, "tags": TAG}
    end = {"kind": "sql_execution_end", "execution_id": 1, "time": START, "error": "[TABLE_OR_VIEW_NOT_FOUND] people"}
    error = "\nFailed to resolve flows in the pipeline.\n\nFlows with errors: a.b.orders, a.b.lost\nMore"
    (alarm,) = alarms(events(*STARTED, reason, end, failed(error), application_end()))
    assert (
        "flow 'a.b.orders' of data set 'orders', flow 'a.b.lost' of data set 'a.b.lost' could not be resolved"
        in alarm.body
    )
    assert alarm.body.endswith("[TABLE_OR_VIEW_NOT_FOUND] people")
    assert alarm.attributes["error.type"] == "TABLE_OR_VIEW_NOT_FOUND"


def test_flows_of_sql_files_are_known() -> None:
    sql = "CREATE STREAMING TABLE clicks;\\nCREATE FLOW `clicks_of_web` AS INSERT INTO clicks BY NAME SELECT 1"
    found = events(command("define_sql_graph_elements", "o4", sql_text=sql), command("start_run", RUN), FAILED_QUERY[0])
    assert found[-1].attributes["spark.pipeline.dataset"] == "clicks"


def test_names_beyond_ascii_are_read() -> None:
    records = [command("define_flow", "o2", flow_name="caf\\303\\251", target_dataset_name='a\\"b'), STARTED[-1]]
    found = events(*records, query_started(name="spark_catalog.default.café", tags=TAG))
    assert found[-1].attributes["spark.pipeline.dataset"] == 'a"b'


def test_on_a_shared_server_the_pipeline_is_a_warning() -> None:
    """The application is the server, whose outcome does not depend on the pipeline; user and session are named."""
    server = "org.apache.spark.deploy.SparkSubmit --class org.apache.spark.sql.connect.service.SparkConnectServer"
    failure = failed("java.io.IOException: disk full")
    found = events(*STARTED, *FAILED_QUERY, failure, application_end("SIGTERM"), command=server)
    assert statuses(found) == ["RUNNING", "CANCELLED"]
    assert not alarms(found)
    (run,) = [e for e in found if e.class_scope == "spark.sql.execution"]
    assert run.severity is Severity.WARN
    assert "pipeline (user 'ada', session 839c8b37) failed: flow" in run.body
    assert run.attributes["spark.connect.operation_id"] == RUN


def test_another_sidecar_continues() -> None:
    """The commands before the restart of the sidecar still explain the work and the outcome after it."""
    first = Translator(TranslateConfig())
    events(*STARTED, *FAILED_QUERY, translator=first)
    second = Translator(TranslateConfig())
    second.load_memory(first.take_memory() or "")
    second.restore(decoded(application_start(**SHELL)))
    rest = [failed("java.io.IOException: disk full"), application_end()]
    (alarm,) = alarms([event for record in rest for event in second.translate(decoded(record))])
    assert f"flow '{QUERY}' of data set 'clicks' failed" in alarm.body


def test_memory_is_bounded() -> None:
    """A server that defines pipelines for ever keeps the newest commands."""
    translator = Translator(TranslateConfig())
    events(
        *(command("define_flow", f"o{n}", flow_name=f"f{n}", target_dataset_name="t") for n in range(5_000)),
        translator=translator,
    )
    memory = translator.take_memory() or ""
    assert "f4999" in memory
    assert '"o0"' not in memory


def test_work_of_other_clients_belongs_to_no_flow() -> None:
    other = TAG.replace(RUN, "117d1ebc-5fb8-4545-b00e-2d6ac82a7004")
    found = events(*STARTED, query_started(name=QUERY, tags=other))
    assert "spark.pipeline.flow" not in found[-1].attributes


def output(kind: str, name: str, line: int, identity: str = "o8") -> dict[str, Any]:
    defined = command("define_output", identity, line, output_name=name)
    defined["statement"] = defined["statement"].replace('"g"\n', f'"g"\n    output_type: {kind}\n', 1)
    return defined


FLOW_OF_TOTALS = command("define_flow", "o9", 14, flow_name="totals", target_dataset_name="totals")


@pytest.mark.parametrize(
    ("records", "where", "known"),
    [
        (
            [output("MATERIALIZED_VIEW", "totals", 14)],
            "an error in the function of data set 'totals' (definitions.py:14); ",
            {"dataset": "totals", "location": "/shop/definitions.py:14"},
        ),
        # A table may have no flow, or flows that have functions of their own.
        (
            [output("TABLE", "totals", 14)],
            "an error in the definitions, after that of data set 'totals' (definitions.py:14); ",
            {},
        ),
        (
            [output("MATERIALIZED_VIEW", "totals", 14), FLOW_OF_TOTALS],
            "an error in the definitions, after that of flow 'totals' of data set 'totals' (definitions.py:14); ",
            {},
        ),
        (
            [command("define_sql_graph_elements", "o7", sql_file_path="/shop/a.sql")],
            "an error in the definitions, after that of a.sql; ",
            {},
        ),
        ([command("create_dataflow_graph", "o1")], "an error in the definitions; ", {}),
    ],
)
def test_an_error_in_python_is_placed_by_the_last_definition(
    records: list[dict[str, Any]], where: str, known: dict[str, str]
) -> None:
    """Python sends a data set before it calls its function, and the flow afterwards."""
    (alarm,) = alarms(events(*records, application_end()))
    assert f"failed before its run started: {where}" in alarm.body
    found = {key: value for key, value in alarm.attributes.items() if key.startswith("spark.pipeline.")}
    assert found == {f"spark.pipeline.{key}": value for key, value in known.items()}
    assert alarm.attributes["failure.class"] == "UNKNOWN"


@pytest.mark.parametrize(
    "error", ["a cycle of 'spark_catalog.default.totals'", "a cycle of `spark_catalog`.`default`.`totals`"]
)
def test_a_graph_that_spark_rejects_names_its_flows(error: str) -> None:
    (alarm,) = alarms(events(FLOW_OF_TOTALS, command("start_run", RUN), failed(error), application_end()))
    title = "flow 'totals' of data set 'totals' (definitions.py:14)"
    assert alarm.body.endswith(f"application failed: Spark rejected {title}: {error}")
    assert alarm.attributes["spark.pipeline.location"] == "/shop/definitions.py:14"


def test_a_definition_that_spark_rejects_is_named() -> None:
    rejected = output("TABLE", "totals", 14)
    error = {**failed("[A_B] twice", "o8"), "statement": rejected["statement"]}
    for command_line, role in ((SHELL["command"], "alarm"), ("other", "member")):
        found = events(FLOW_OF_TOTALS, rejected, error, application_end(), command=command_line)
        (failure,) = [e for e in found if e.name == "JobFailureEvent"]
        assert "failed: Spark rejected data set 'totals' (definitions.py:14): [A_B] twice" in failure.body
        assert failure.attributes.get("incident.role") == role
        assert failure.attributes["spark.pipeline.dataset"] == "totals"
