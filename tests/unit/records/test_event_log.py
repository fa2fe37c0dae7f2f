"""Tests of reading Spark's event logs, including damaged, truncated and unusual logs."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spark_events.records import types as r
from spark_events.records.event_log import compression
from spark_events.records.event_log.handlers import LogRecord
from spark_events.records.event_log.log_files import EventLog, find_logs, looks_like_a_log
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.records.plan_tables import PlannedNode

FIXTURES = Path(__file__).parent / "fixtures"
STREAMING = "org.apache.spark.sql.streaming.StreamingQueryListener$"
T = 1_500_000_000_000


def line(event: str, **fields: Any) -> dict[str, Any]:
    """Return an event log line in Spark's format. ``_`` in a name represents a space."""
    return {"Event": event, **{name.replace("_", " "): value for name, value in fields.items()}}


def text(*lines: dict[str, Any] | str, separators: tuple[str, str] = (",", ":")) -> str:
    return "".join((one if isinstance(one, str) else json.dumps(one, separators=separators)) + "\n" for one in lines)


def task(index: int, **fields: Any) -> dict[str, Any]:
    times = {"Launch Time": T, "Getting Result Time": 0, "Finish Time": 0, "Failed": False, "Killed": False}
    return {"Task ID": index, "Index": index, "Attempt": 0, **times, **fields, "Accumulables": []}


def stage(number: int = 0, tasks: int = 1, **fields: Any) -> dict[str, Any]:
    return {"Stage ID": number, "Stage Attempt ID": 0, "Stage Name": "count", "Number of Tasks": tasks, **fields}


class Reading:
    """Event log that has been read to its end, with its records, its reader and its notes."""

    def __init__(self, path: Path) -> None:
        (log,) = find_logs(path)
        self.complaints: list[str] = []
        self.reader = EventLogReader(log, self.complaints.append)
        self.records: list[LogRecord] = list(self.reader.records())

    def of(self, kind: type) -> list[Any]:
        return [record for record in self.records if type(record) is kind]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "local-1"


def read(path: Path, content: str | bytes) -> Reading:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Reading(path)


# --- real logs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.5", "4.3"])
def test_a_real_batch_job(version: str) -> None:
    """The log of a batch job whose UDF fails yields the job's start, the stage's status changes, and the cause."""
    reading = Reading(FIXTURES / f"batch_udf-{version}.jsonl")
    assert reading.complaints == []
    assert [type(record).__name__ for record in reading.records] == [
        "ApplicationStart",
        "SqlExecutionStart",
        "JobStart",
        "StageSubmitted",
        "StageTasks",
        *["StageTasks"] * (len(reading.of(r.StageTasks)) - 1),
        "StageCompleted",
        # Spark posts these two events from two threads, so their order varies.
        *sorted(["JobEnd", "SqlExecutionEnd"], reverse=version == "3.5"),
        "ApplicationTotals",
        "ApplicationEnd",
    ]
    (start,), (job,), (end,) = reading.of(r.ApplicationStart), reading.of(r.JobEnd), reading.of(r.ApplicationEnd)
    assert start.app_name == "mat-batch_udf"
    assert start.user == "ada"
    assert start.spark_version.startswith(version)
    assert start.host
    assert "bad batch udf value" in job.failure.trace
    assert job.failure.chain[0].type.startswith("org.apache.spark.")
    assert ("Caused by: " in job.failure.trace) is (version != "4.3")
    assert end.ending == "UNKNOWN"
    assert end.exit_code == (None if version == "3.5" else 0)


@pytest.mark.parametrize("version", ["3.5", "4.3"])
def test_a_real_streaming_query(version: str) -> None:
    """The log of a streaming query yields its start, progress and end, with offsets in the format of live progress."""
    reading = Reading(FIXTURES / f"foreachbatch-{version}.jsonl")
    assert reading.complaints == []
    (started,), (terminated,) = reading.of(r.QueryStarted), reading.of(r.QueryTerminated)
    progress = reading.of(r.QueryProgress)[0].progress
    assert progress.run_id == started.run_id == terminated.run_id
    assert bytes(progress.sources[0].end_offset) == b'{"logOffset":0}'
    assert bytes(progress.sources[0].start_offset) == b"null"
    assert "bad foreachBatch value" in terminated.exception
    jobs = [job for job in reading.of(r.JobStart) if "streaming.sql.batchId" in job.properties]
    assert {job.properties["sql.streaming.queryId"] for job in jobs} == {started.id}


@pytest.mark.parametrize("fixture", sorted(FIXTURES.glob("*.jsonl")), ids=lambda path: path.stem)
def test_the_clock_never_goes_back(fixture: Path) -> None:
    """Every record except the first has a timestamp, and timestamps never decrease."""
    at = [record.at for record in Reading(fixture).records]
    assert at == sorted(at)
    assert at[0] > 0


# --- redaction ----------------------------------------------------------------------------------

REDACTED = "*********(redacted)"
INSERT = "Execute InsertIntoHadoopFsRelationCommand"
PLAN = {
    "nodeName": INSERT,
    "simpleString": f"{INSERT} s3://token@b, x",
    "children": [
        {
            "nodeName": "Project",
            "simpleString": "Project no",
            "children": [
                {
                    "nodeName": "Scan parquet a.b",
                    "simpleString": "",
                    "metadata": {"Location": "InMemoryFileIndex(1 paths)[file:/a]"},
                }
            ],
        }
    ],
}


def redacted(path: Path, properties: dict[str, str]) -> Reading:
    """Read a log whose strings contain the same secrets as the cases in SqlRecordsTest.java and ShimTest.java."""
    sql = {"description": "password=hunter2", "details": "", "sparkPlanInfo": PLAN, "time": T}
    kind = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"
    given = {"spark.job.description": "password=hunter2", "spark.jobGroup.id": "nightly"}
    return read(
        path,
        text(
            line("SparkListenerEnvironmentUpdate", Spark_Properties=properties, System_Properties={}),
            line("SparkListenerApplicationStart", App_Name="nightly", App_ID="app-1", Timestamp=T, User="u"),
            {"Event": f"{kind}Start", "executionId": 1, **sql},
            {"Event": f"{kind}End", "executionId": 1, "time": T, "errorMessage": "no"},
            line("SparkListenerJobStart", Job_ID=0, Submission_Time=T, Stage_IDs=[], Properties=given),
            line("SparkListenerStageSubmitted", Stage_Info=stage(), Properties=given),
        ),
    )


@pytest.mark.parametrize(
    ("properties", "name", "description", "arguments", "group"),
    [
        ({}, "nightly", REDACTED, REDACTED, "nightly"),
        ({"spark.redaction.regex": "nightly"}, REDACTED, "password=hunter2", "s3://token@b, x", REDACTED),
        ({"spark.redaction.regex": "["}, "nightly", REDACTED, REDACTED, "nightly"),
        ({"spark.redaction.regex": REDACTED}, "nightly", REDACTED, REDACTED, "nightly"),
        ({"spark.redaction.regex": REDACTED, "spark.app.name": REDACTED}, REDACTED, REDACTED, REDACTED, "nightly"),
    ],
)
def test_texts_are_redacted_as_in_the_shim(
    path: Path, properties: dict[str, str], name: str, description: str, arguments: str, group: str
) -> None:
    """The log's pattern (or else the default) redacts names, descriptions, lines of plans and properties.

    If Spark has redacted the pattern itself, the replay redacts every string that Spark has not redacted.
    """
    reading = redacted(path, properties)
    (app,), (start,), (end,) = (
        reading.of(r.ApplicationStart),
        reading.of(r.SqlExecutionStart),
        reading.of(r.SqlExecutionEnd),
    )
    assert (app.app_name, start.description, end.description) == (name, description, description)
    assert start.plan[0].arguments == arguments
    if not properties:
        scan = PlannedNode("Scan parquet a.b", "InMemoryFileIndex(1 paths)[file:/a]")
        assert start.plan == [PlannedNode(INSERT, arguments=REDACTED), scan]
    for record in (*reading.of(r.JobStart), *reading.of(r.StageSubmitted)):
        secret = "password=hunter2" if properties.get("spark.redaction.regex") == "nightly" else REDACTED
        assert record.properties == {"spark.job.description": secret, "spark.jobGroup.id": group}


def test_descriptions_have_one_limit_as_in_the_shim(path: Path) -> None:
    """A description, a group and a stage's name contain at most 4,096 characters, as in RecordSizesTest.java."""
    long = "x" * 1_000_000
    start = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
    given = {"spark.job.description": long, "spark.jobGroup.id": long}
    reading = read(
        path,
        text(
            line("SparkListenerApplicationStart", App_Name="a", App_ID="app-1", Timestamp=T, User="u"),
            {"Event": start, "executionId": 1, "description": long, "details": "", "time": T},
            line("SparkListenerJobStart", Job_ID=0, Submission_Time=T, Stage_IDs=[], Properties=given),
        ),
    )
    cut = f"{long[:4_096]}\n... [995904 characters cut]"
    (job,), (execution,) = reading.of(r.JobStart), reading.of(r.SqlExecutionStart)
    assert job.properties == {"spark.job.description": cut, "spark.jobGroup.id": cut}
    assert execution.description == cut


# --- formats of other versions ------------------------------------------------------------------


def test_a_log_of_spark_2(path: Path) -> None:
    """A Spark 2 log can be read: missing fields have defaults, and formats that only Spark 2 uses are supported."""
    reading = read(
        path,
        text(
            line("SparkListenerLogStart", Spark_Version="2.3.0"),
            line("SparkListenerEnvironmentUpdate", Spark_Properties={"spark.driver.host": "d1"}, System_Properties={}),
            {
                **line(
                    "SparkListenerApplicationStart", App_Name="shop", App_ID="application_1_2", Timestamp=T, User="u"
                ),
                "App Attempt ID": "2",
                "Driver Logs": {"stdout": "http://d1/stdout"},
            },
            line("SparkListenerJobStart", Job_ID=0, Submission_Time=T + 1, Stage_Infos=[], Stage_IDs=[0]),
            line("SparkListenerStageSubmitted", Stage_Info=stage(), Properties={}),
            line("SparkListenerTaskStart", Stage_ID=0, Stage_Attempt_ID=0, Task_Info=task(0)),
            {
                **line(
                    "SparkListenerTaskEnd", Stage_ID=0, Task_Type="ResultTask", Task_End_Reason={"Reason": "Success"}
                ),
                # Spark 2 writes neither `Killed` nor `Stage Attempt ID` nor metrics.
                "Task Info": {"Task ID": 0, "Index": 0, "Finish Time": T + 5, "Failed": False, "Accumulables": []},
            },
            line("SparkListenerStageCompleted", Stage_Info=stage(**{"Completion Time": T + 6})),
            line("SparkListenerJobEnd", Job_ID=0, Completion_Time=T + 7, Job_Result={"Result": "JobSucceeded"}),
            line("SparkListenerExecutorRemoved", Timestamp=T + 8, Executor_ID="7", Removed_Reason="killed"),
            line("SparkListenerApplicationEnd", Timestamp=T + 9),
        ),
    )
    assert reading.complaints == []
    start, job = reading.records[0], reading.records[1]
    assert isinstance(start, r.ApplicationStart)
    assert start == r.ApplicationStart(
        at=T,
        app_id="application_1_2",
        app_name="shop",
        attempt_id="2",
        user="u",
        time=T,
        spark_version="2.3.0",
        host="d1",
        namespaces=["driver"],
        settings=start.settings,
    )
    assert set(start.settings) >= {"spark.driver.host"}
    assert job == r.JobStart(at=T + 1, job_id=0, time=T + 1, properties={}, stages=[0])
    assert [(edge.status, edge.time) for edge in reading.of(r.StageTasks)] == [
        ("ALL_RUNNING_OR_FINISHED", T),
        ("ALL_FINISHED", T + 5),
    ]
    # The stage has no timestamp, so it receives the timestamp of the preceding line.
    assert reading.of(r.StageSubmitted)[0].time == T + 1
    assert reading.of(r.ExecutorRemoved) == [r.ExecutorRemoved(at=T + 8, executor_id="7", time=T + 8, reason="killed")]


def test_a_progress_of_spark_2(path: Path) -> None:
    """Progress of Spark 2 can be read: it lacks names, sink rows and state memory, and some rates are not numbers."""
    progress = {
        "id": "q1",
        "runId": "r1",
        "name": None,
        "timestamp": "2017-07-14T02:40:00.000Z",
        "batchId": 3,
        "durationMs": {"addBatch": 40, "triggerExecution": 100},
        "eventTime": {},
        "stateOperators": [{"numRowsTotal": 1, "numRowsUpdated": 1}],
        "sources": [
            {
                "description": "KafkaV2[Subscribe[t]]",
                "startOffset": None,
                "endOffset": '{"t": {"0": 5}}',
                "numInputRows": 5,
                "inputRowsPerSecond": "NaN",
                "processedRowsPerSecond": "Infinity",
            }
        ],
        "sink": {"description": "ForeachSink"},
    }
    reading = read(path, text(line(STREAMING + "QueryProgressEvent", progress=progress)))
    (record,) = reading.of(r.QueryProgress)
    assert record.at == T + 100
    assert record.progress.sink.num_output_rows == -1
    assert bytes(record.progress.sources[0].end_offset) == b'{"t":{"0":5}}'


def test_the_end_of_a_query_gets_a_time_between_its_neighbours(path: Path) -> None:
    """In the log, the end of a query has no timestamp. It receives one between the timestamps of its neighbours."""
    ends = [line(STREAMING + "QueryTerminatedEvent", id="q", runId=run, exception=None) for run in ("r1", "r2", "r3")]
    job = line("SparkListenerJobStart", Job_ID=0, Submission_Time=T + 9, Stage_Infos=[], Stage_IDs=[])
    start = line(STREAMING + "QueryStartedEvent", id="q", runId="r1", timestamp="2017-07-14T02:40:00.000Z")
    reading = read(path, text(start, *ends[:2], job, ends[2]))
    assert [(end.run_id, end.at, end.until) for end in reading.of(r.QueryTerminated)] == [
        ("r1", T, T + 9),
        ("r2", T, T + 9),
        ("r3", T + 9, None),
    ]
    assert [type(record).__name__ for record in reading.records][-2:] == ["JobStart", "QueryTerminated"]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"values": [5, 2.5, None], "schema": {"type": "struct", "fields": [{"name": n} for n in "abc"]}},
            [5, 2.5, None],
        ),
        ({"a": 5, "b": 2.5, "c": None, "schema": {"type": "struct", "fields": []}}, [5, 2.5, None]),
    ],
    ids=["values", "fields"],
)
def test_observed_rows_have_the_format_of_listeners(path: Path, row: dict[str, Any], expected: list[Any]) -> None:
    """A log contains observed rows in one of two formats. Both formats are converted to the format of the listener."""
    progress = {"id": "q", "runId": "r", "timestamp": "", "batchId": 0, "observedMetrics": {"stats": row}}
    (record,) = read(path, text(line(STREAMING + "QueryProgressEvent", progress=progress))).of(r.QueryProgress)
    assert record.progress.observed_metrics == {"stats": dict(zip("abc", expected, strict=True))}


@pytest.mark.parametrize(("properties", "most"), [({}, 4), ({"spark.stage.maxConsecutiveAttempts": "2"}, 2)])
def test_the_attempt_limit_of_a_stage_is_read_from_the_environment(
    path: Path, properties: dict[str, str], most: int
) -> None:
    """The attempt limit of a stage comes from the environment in the log, because no attempt is marked as the last."""
    lines = [
        line("SparkListenerEnvironmentUpdate", Spark_Properties=properties),
        line("SparkListenerStageCompleted", Stage_Info={**stage(), "Failure Reason": "FetchFailed(null)"}),
    ]
    (record,) = read(path, text(*lines)).records
    assert record.most_failures == most  # type: ignore[union-attr]


def test_json_with_blanks_and_another_order_is_read(path: Path) -> None:
    """A line with spaces and with reordered fields can be read. Tools that rewrite logs produce such lines."""
    lines = [json.loads(one) for one in (FIXTURES / "batch_udf-4.3.jsonl").read_text(encoding="utf-8").splitlines()]
    turned = [{key: one[key] for key in reversed(one)} for one in lines]
    expected = Reading(FIXTURES / "batch_udf-4.3.jsonl").records
    assert read(path, text(*lines, separators=(", ", ": "))).records == expected
    assert read(path, text(*turned)).records == expected


def test_task_metrics_do_not_change_how_a_task_s_end_is_read(path: Path) -> None:
    """The end of a task is read in the same way with and without metrics, even if a string resembles metrics."""
    reason = {
        "Reason": "ExceptionFailure",
        "Class Name": "a.B",
        "Description": 'x,"Accumulables":[y',
        "Stack Trace": [],
    }
    start = [line("SparkListenerStageSubmitted", Stage_Info=stage(tasks=2))]
    ended = task(0, **{"Finish Time": T + 5, "Failed": True})
    end = line("SparkListenerTaskEnd", Stage_ID=0, Stage_Attempt_ID=0, Task_End_Reason=reason, Task_Info=ended)
    metrics = {"Task Metrics": {"Accumulables": [1, {"a": 2}], "Updated Blocks": []}}
    completed = line("SparkListenerStageCompleted", Stage_Info=stage(tasks=2))
    short = read(path, text(*start, end, completed)).records
    long = read(path, text(*start, {**end, **metrics}, completed)).records
    assert short == long
    assert short[-1].failed == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("first", ["resubmission", "removal"])
def test_lost_output_is_dated_when_its_executor_was_lost(path: Path, first: str) -> None:
    """Output is lost when its executor is lost. The resubmission event contains an earlier time, which is not used."""
    done = task(0, **{"Executor ID": "7", "Finish Time": T + 5})
    about = {"Stage_ID": 0, "Stage_Attempt_ID": 0, "Task_Info": done}
    resubmission = line("SparkListenerTaskEnd", Task_End_Reason={"Reason": "Resubmitted"}, **about)
    removal = line("SparkListenerExecutorRemoved", Timestamp=T + 3_600_000, Executor_ID="7", Removed_Reason="lost")
    again = task(0, **{"Executor ID": "8", "Launch Time": T + 3_600_010})
    reading = read(
        path,
        text(
            line("SparkListenerStageSubmitted", Stage_Info=stage(tasks=2)),
            *[line("SparkListenerTaskStart", Stage_ID=0, Stage_Attempt_ID=0, Task_Info=task(n)) for n in (0, 1)],
            line("SparkListenerTaskEnd", Task_End_Reason={"Reason": "Success"}, **about),
            *([resubmission, removal] if first == "resubmission" else [removal, resubmission]),
            line("SparkListenerTaskStart", Stage_ID=0, Stage_Attempt_ID=0, Task_Info=again),
        ),
    )
    assert [(edge.status, edge.time - T, edge.running, edge.finished) for edge in reading.of(r.StageTasks)] == [
        ("ALL_RUNNING_OR_FINISHED", 0, 2, 0),
        ("NOT_ALL_RUNNING_OR_FINISHED", 3_600_000, 1, 0),
        ("ALL_RUNNING_OR_FINISHED", 3_600_010, 2, 0),
    ]


# --- failures of jobs ---------------------------------------------------------------------------


def job_end(message: str) -> dict[str, Any]:
    frame = {"Declaring Class": "a.B", "Method Name": "c", "File Name": "B.scala", "Line Number": 7}
    native = {"Declaring Class": "a.B", "Method Name": "d", "File Name": None, "Line Number": -2}
    exception = {"Message": message, "Stack Trace": [frame, native]}
    return line("SparkListenerJobEnd", Job_ID=0, Job_Result={"Result": "JobFailed", "Exception": exception})


def task_failure(task_id: int, name: str, description: str, trace: str) -> dict[str, Any]:
    reason = {
        "Reason": "ExceptionFailure",
        "Class Name": name,
        "Description": description,
        "Full Stack Trace": trace,
    }
    ended = task(task_id, **{"Failed": True, "Finish Time": T})
    return line("SparkListenerTaskEnd", Stage_ID=0, Stage_Attempt_ID=0, Task_End_Reason=reason, Task_Info=ended)


def test_the_cause_of_an_aborted_job_is_its_task_s_exception(path: Path) -> None:
    """The cause of an aborted job is its task's exception, because the log lacks the type of the job's exception."""
    trace = "java.io.IOException: disk\n\tat x.Y.z(Y.java:1)\nCaused by: x.Z: deep\n\tat x.Z.a(Z.java:2)\n"
    message = "Job aborted due to stage failure: Task 3 in stage 0.0 failed 4 times, most recent failure: Lost task 3.3"
    reading = read(
        path,
        text(
            task_failure(12, "java.io.IOException", "disk", trace),
            task_failure(13, "java.lang.Error", "other", "java.lang.Error: other\n"),
            job_end(f"{message} in stage 0.0 (TID 12, host, executor 1): java.io.IOException: disk"),
        ),
    )
    (job,) = reading.of(r.JobEnd)
    assert job.failure.chain[0].type == "org.apache.spark.SparkException"
    assert job.failure.trace.startswith(f"org.apache.spark.SparkException: {message}")
    assert (
        "\n\tat a.B.c(B.scala:7)\n\tat a.B.d(Native Method)\nCaused by: java.io.IOException: disk\n"
        in job.failure.trace
    )


def test_user_error_of_spark_4_has_the_type_of_its_task(path: Path) -> None:
    """If a job's message equals its task's message, as in Spark 4, the job's failure has the task's type and causes."""
    trace = "a.UserError: [X] wrong\n\tat x.Y.z(Y.java:1)\nCaused by: x.Z: deep\n"
    reading = read(path, text(task_failure(1, "a.UserError", "[X] wrong", trace), job_end("[X] wrong")))
    (job,) = reading.of(r.JobEnd)
    assert job.failure.chain[0].type == "a.UserError"
    assert job.failure.trace == (
        "a.UserError: [X] wrong\n\tat a.B.c(B.scala:7)\n\tat a.B.d(Native Method)\nCaused by: x.Z: deep\n"
    )


def test_unknown_exception_type_stays_unknown(path: Path) -> None:
    """If no task matches, a job's failure has only its message and no type."""
    (job,) = read(path, text(job_end("no such thing"))).of(r.JobEnd)
    assert job.failure.chain[0].type == ""
    assert job.failure.trace.startswith("no such thing\n\tat a.B.c")


# --- damage -------------------------------------------------------------------------------------

SOUND = text(
    line("SparkListenerApplicationStart", App_Name="a", App_ID="local-1", Timestamp=T, User="u"),
    line("SparkListenerApplicationEnd", Timestamp=T + 1),
)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ('{"Event":"SparkListenerJobStart","Job I', "line skipped: incomplete"),
        ('{"Event":"SparkListenerUnpersistRDD","RDD I', "line skipped: incomplete"),
        ('{"Event":"SparkListenerJobStart","Job ID":"zero"}', "line skipped: not a Spark event: Expected `int`"),
        (
            '{"Event":"SparkListenerJobStart"}',
            "line skipped: not a Spark event: Object missing required field `Job ID`",
        ),
        ('{"Event":"SparkListenerJobStart",,}', "line skipped: not JSON"),
        ("[1, 2]", "line skipped: incomplete"),
        ("\x00\x00\x00", "line skipped: incomplete"),
        ('{"a":1}', "line skipped: not a Spark event: Object missing required field `Event`"),
    ],
)
def test_damaged_line_is_reported_and_skipped(path: Path, damage: str, reason: str) -> None:
    """A damaged line is skipped and noted with its file, line and reason. The other lines are read."""
    first, second = SOUND.splitlines()
    reading = read(path, text(first, damage, second))
    assert [type(record).__name__ for record in reading.records] == [
        "ApplicationStart",
        "ApplicationTotals",
        "ApplicationEnd",
    ]
    assert reading.reader.damaged == 1
    (complaint,) = reading.complaints
    assert complaint.startswith(f"{path}:2: {reason}")


def test_a_line_that_is_not_utf_8_is_damaged(path: Path) -> None:
    """A line is damaged if a required value is not UTF-8. Invalid UTF-8 in other values is ignored."""
    first, second = SOUND.encode().splitlines()
    bad = b'{"Event":"SparkListenerExecutorRemoved","Timestamp":1,"Executor ID":"\xff\xfe","Removed Reason":""}'
    assert read(path, b"\n".join([first, bad, second, b""])).reader.damaged == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_blank_lines_of_every_kind(path: Path, end: str) -> None:
    """Blank lines and the line breaks of every operating system are accepted."""
    reading = read(path, SOUND.replace("\n", end + end))
    assert [type(record).__name__ for record in reading.records] == [
        "ApplicationStart",
        "ApplicationTotals",
        "ApplicationEnd",
    ]
    assert reading.complaints == []


@pytest.mark.parametrize(
    "last",
    [
        '{"Event":"SparkListenerJobSt',
        '{"Event":"SparkListenerBlockUpdated","Info":{}',
        '{"Event":"org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart","executionId":0,"info":{}',
    ],
)
def test_a_truncated_last_line_is_counted_and_reported(path: Path, last: str) -> None:
    """The reader uses all lines before a truncated last line, and reports the last line, even an unneeded one."""
    reading = read(path, SOUND + last)
    assert len(reading.records) == 3
    assert (reading.reader.cut_off, reading.reader.damaged) == (1, 0)
    assert reading.complaints == [f"{path}:3: the file ends in the middle of this line"]


def test_a_whole_last_line_without_its_line_end_is_used(path: Path) -> None:
    """A complete last line is used even if its line break is missing."""
    assert read(path, SOUND + '{"Event":"SparkListenerBlockUpdated","Info":{}}').complaints == []
    reading = read(path, SOUND.rstrip())
    assert len(reading.records) == 3
    assert reading.reader.lines == 2
    assert reading.complaints == []


@pytest.mark.parametrize("cut", range(0, len(SOUND), 7))
def test_a_log_may_be_truncated_anywhere(path: Path, cut: int) -> None:
    """Wherever a log is truncated, all complete lines before the truncation are used."""
    reading = read(path, SOUND[:cut])
    assert len(reading.records) in (SOUND[:cut].count("\n"), SOUND[:cut].count("\n") + 1)
    assert reading.reader.damaged == 0


def test_unknown_kinds_are_counted_except_spark_s_own(path: Path) -> None:
    """Vendor-specific events are counted. Spark events that a replay does not need are ignored."""
    reading = read(
        path,
        text(
            line("SparkListenerBlockUpdated", Block={}),
            line("org.apache.spark.sql.execution.ui.SparkListenerDriverAccumUpdates", executionId=1),
            *[line("com.vendor.CostEvent", cost=1)] * 3,
        ),
    )
    assert reading.reader.unknown == 3
    assert reading.reader.recognised
    assert reading.complaints == []


def test_a_file_that_is_not_a_log_is_not_recognized(path: Path) -> None:
    """A file that is not an event log is not recognized: every line is noted, and reading does not fail."""
    reading = read(path, "Readme\n\nSome text\n")
    assert not reading.reader.recognised
    assert reading.reader.damaged == 2


def test_long_lines_are_skipped_with_bounded_memory(path: Path) -> None:
    """A line of many megabytes, such as a plan, is skipped. The next line has the correct line number."""
    import tracemalloc

    plan = "x" * 40_000_000
    first, second = SOUND.splitlines()
    kind = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
    path.write_text(text(first, line(kind, physicalPlanDescription=plan), '{"Event":"Spark', second), encoding="utf-8")
    tracemalloc.start()
    reading = Reading(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(reading.records) == 3
    assert reading.complaints == [f"{path}:3: line skipped: incomplete"]
    assert peak < 10_000_000


# --- files --------------------------------------------------------------------------------------


def parts(folder: Path, indexes: list[int], application: str = "local-1") -> list[str]:
    """Split a real log into several files, and return the content of each file."""
    lines = (FIXTURES / "foreachbatch-4.3.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    folder.mkdir()
    size = -(-len(lines) // len(indexes))
    texts = ["".join(lines[i * size : (i + 1) * size]) for i in range(len(indexes))]
    for index, content in zip(indexes, texts, strict=True):
        (folder / f"events_{index}_{application}").write_text(content, encoding="utf-8")
    (folder / f"appstatus_{application}").touch()
    (folder / f".events_1_{application}.crc").write_bytes(b"crc")
    return texts


def test_rolling_logs_are_one_log_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    """The files of a rolling log are read in numeric order: file 10 after file 9."""
    parts(tmp_path / "eventlog_v2_local-1", list(range(1, 13)))
    reading = Reading(tmp_path / "eventlog_v2_local-1")
    assert reading.records == Reading(FIXTURES / "foreachbatch-4.3.jsonl").records
    assert reading.complaints == []


def test_a_compacted_file_replaces_all_earlier_files(tmp_path: Path) -> None:
    folder = tmp_path / "eventlog_v2_local-1"
    texts = parts(folder, [1, 2, 3, 4])
    (folder / "events_2_local-1.compact").write_text("".join(texts[:2]), encoding="utf-8")
    (log,) = find_logs(folder)
    assert [file.name for file in log.files] == ["events_2_local-1.compact", "events_3_local-1", "events_4_local-1"]
    reading = Reading(folder)
    assert reading.records == Reading(FIXTURES / "foreachbatch-4.3.jsonl").records
    (note,) = reading.complaints
    assert note.startswith(f"{folder}/events_2_local-1.compact: Spark has compacted this part; jobs, ")
    assert reading.reader.damaged == 0


def test_a_missing_part_is_reported(tmp_path: Path) -> None:
    """A missing file of a rolling log is reported, and the other files are read."""
    folder = tmp_path / "eventlog_v2_local-1"
    parts(folder, [1, 2, 3])
    (folder / "events_2_local-1").unlink()
    assert Reading(folder).complaints[0] == f"{folder}: part events_2_* is missing"


def test_a_truncated_file_does_not_hide_the_next_file(tmp_path: Path) -> None:
    """The truncated last line of a file is noted, and the next file is read from its beginning."""
    folder = tmp_path / "eventlog_v2_local-1"
    texts = parts(folder, [1, 2])
    (folder / "events_1_local-1").write_text(texts[0][:-50], encoding="utf-8")
    reading = Reading(folder)
    assert reading.reader.cut_off == 1
    assert reading.of(r.ApplicationEnd)


def test_a_folder_of_logs_has_single_files_and_rolling_folders(tmp_path: Path) -> None:
    """A folder of logs contains single files and rolling folders. Hidden files and other folders are not logs."""
    parts(tmp_path / "eventlog_v2_local-2", [1])
    (tmp_path / "local-1.zstd.inprogress").touch()
    (tmp_path / ".local-1.crc").touch()
    (tmp_path / "other").mkdir()
    logs = list(find_logs(tmp_path))
    assert [log.path.name for log in logs] == ["eventlog_v2_local-2", "local-1.zstd.inprogress"]
    assert [log.in_progress for log in logs] == [False, True]


def test_a_rolling_folder_of_databricks_is_one_log_in_the_order_of_time(tmp_path: Path) -> None:
    """A rolling Databricks folder is one log: rotated files in order of time, then the current file."""
    folder = tmp_path / "4711"
    texts = parts(folder, [1, 2, 3, 4])
    for entry in folder.iterdir():
        entry.unlink()
    for name, content in zip(("06-15--15-00.gz", "06-15--16-00.gz", "10-01--09-30"), texts, strict=False):
        raw = content.encode()
        (folder / f"eventlog-2021-{name}").write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    (folder / "eventlog").write_text(texts[3], encoding="utf-8")
    (log,) = find_logs(folder)
    assert (log.path, [file.name[14:] for file in log.files]) == (
        folder,
        ["06-15--15-00.gz", "06-15--16-00.gz", "10-01--09-30", ""],
    )
    assert Reading(folder).records == Reading(FIXTURES / "foreachbatch-4.3.jsonl").records
    assert list(find_logs(tmp_path)) == [log]


def test_other_logs_next_to_databricks_logs_are_separate(tmp_path: Path) -> None:
    """Other files in a Databricks folder are separate logs, and so is an eventlog without rotated files."""
    (tmp_path / "eventlog").touch()
    assert [log.files for log in find_logs(tmp_path)] == [(tmp_path / "eventlog",)]
    (tmp_path / "eventlog-2021-06-15--15-00.gz").touch()
    (tmp_path / "local-1").touch()
    assert [log.path.name for log in find_logs(tmp_path)] == ["local-1", tmp_path.name]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zip.gz", ".json.gz", "-copy"])
def test_a_databricks_part_may_have_any_suffix(tmp_path: Path, suffix: str) -> None:
    names = [f"eventlog-2022-01-18--19-00{suffix}", f"eventlog-2022-01-18--20-00{suffix}", "eventlog"]
    for name in names:
        (tmp_path / name).write_bytes(gzip.compress(SOUND.encode()) if name.endswith(".gz") else SOUND.encode())
    (log,) = find_logs(tmp_path)
    assert [file.name for file in log.files] == names
    assert Reading(tmp_path).complaints == []


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [([0, 1, 2], []), ([0, 2, 3], [1]), ([2], [0, 1]), ([1, 4], [0, 2, 3]), ([], []), ([0, 1, 0, 1], [])],
)
def test_missing_databricks_parts_are_reported(tmp_path: Path, numbers: list[int], missing: list[int]) -> None:
    """Each file of Databricks contains its number; a file without it changes nothing."""
    for hour, number in enumerate([*numbers, None]):
        metadata = line("DBCEventLoggingListenerMetadata", Rollover_Number=number, Spark_Version="3.1.2")
        name = f"eventlog-2022-01-18--1{hour}-00"
        (tmp_path / name).write_text(SOUND if number is None else text(metadata), encoding="utf-8")
    assert Reading(tmp_path).complaints == [f"{tmp_path}: part {number} is missing" for number in missing]


def test_many_missing_databricks_parts_are_few_notes(path: Path) -> None:
    complaints = read(path, text(line("DBCEventLoggingListenerMetadata", Rollover_Number=1_000_000_000))).complaints
    assert len(complaints) == 11
    assert complaints[-1] == f"{path}: all parts up to 999999999 are missing too"


def test_logs_are_found_in_all_folders_below(tmp_path: Path) -> None:
    """No log is passed over: at any depth, beside other logs, and with parts of several applications in one folder."""
    parts(tmp_path / "eventlog_v2_local-1", [1, 2])
    (tmp_path / "eventlog_v2_local-1" / "local-2").write_text(SOUND)
    deep = tmp_path / "cluster" / "eventlog" / "10_0_0_1"
    for name in ("4711/eventlog", "4711/eventlog-2022-01-18--19-00.zip.gz", "4712/eventlog", "4711/local-3", "local-4"):
        (deep / name).parent.mkdir(parents=True, exist_ok=True)
        (deep / name).write_text(SOUND)
    for name in ("events_1_local-5", "events_1_local-6.zstd", "events_2_local-6.zstd", "appstatus_local-6.inprogress"):
        (tmp_path / name).write_text(SOUND)
    (tmp_path / "cluster" / "loop").symlink_to(tmp_path)
    found = {os.path.relpath(str(log.path), tmp_path): len(log.files) for log in find_logs(tmp_path)}
    where = "cluster/eventlog/10_0_0_1"
    assert found == {
        "eventlog_v2_local-1": 2,
        "eventlog_v2_local-1/local-2": 1,
        f"{where}/4711": 2,
        f"{where}/4712/eventlog": 1,
        f"{where}/4711/local-3": 1,
        f"{where}/local-4": 1,
        "eventlog_v2_local-5": 1,
        "eventlog_v2_local-6": 2,
    }
    assert [log.path.name for log in find_logs(tmp_path) if log.in_progress] == ["eventlog_v2_local-6"]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_an_archive_is_named(tmp_path: Path, is_compressed: bool) -> None:
    """An archive with the name of a log is named; any other archive, such as a jar, is not a log."""
    content = b"PK\x03\x04" + bytes(100)
    for name in ("eventlog-2022-01-18--19-00.zip.gz", "local-1.zip", "driver.jar"):
        (tmp_path / name).write_bytes(gzip.compress(content) if is_compressed else content)
    assert [looks_like_a_log(tmp_path / name) for name in ("local-1.zip", "driver.jar")] == [True, False]
    reading = Reading(tmp_path / "local-1.zip")
    what = "a zip archive, which is not supported; extract its files first"
    assert (reading.complaints, reading.reader.damaged) == ([f"{tmp_path}/local-1.zip: {what}"], 1)


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("application_1700000000000_0042", ("application_1700000000000_0042", None)),
        ("application_1700000000000_0042_2.zstd.inprogress", ("application_1700000000000_0042", "2")),
        ("eventlog_v2_application_1700000000000_0042_1", ("application_1700000000000_0042", "1")),
        ("events_3_app-20261125003635-0000", ("app-20261125003635-0000", None)),
        ("local-1700000000000.lz4", ("local-1700000000000", None)),
        ("spark-0123456789abcdef0123456789abcdef", ("spark-0123456789abcdef0123456789abcdef", None)),
    ],
)
def test_the_name_of_a_log_has_the_application_s_id(name: str, identity: tuple[str, str | None]) -> None:
    """If the start is missing, the log's name contains the application id, so event ids equal those of the live run."""
    assert EventLog(Path("/logs") / name, ()).identity(b"x")[:2] == identity


def test_a_log_of_another_name_is_identified_by_its_first_event(tmp_path: Path) -> None:
    """A renamed log is identified by its first event; name, location and compression of the file have no effect."""
    jobs = [line("SparkListenerJobEnd", Job_ID=n, Job_Result={"Result": "JobSucceeded"}) for n in range(2)]
    found = set()
    for folder, job in (("a", jobs[0]), ("b", jobs[1]), ("c", jobs[0])):
        path = tmp_path / folder / "eventlog"
        path.parent.mkdir()
        content = text(line("SparkListenerLogStart", Spark_Version="3.5.0"), job).encode()
        reading = read(path, gzip.compress(content) if folder == "c" else content)
        found.add(reading.reader.log.identity(reading.reader.first_line)[0])
    assert len(found) == 2
    assert all(re.fullmatch("log-[0-9a-f]{16}", one) for one in found)


def test_an_unreadable_file_is_reported(path: Path) -> None:
    path.write_text(SOUND, encoding="utf-8")
    (log,) = find_logs(path)
    path.unlink()
    complaints: list[str] = []
    reader = EventLogReader(log, complaints.append)
    assert list(reader.records()) == []
    assert reader.unreadable == 1
    assert complaints == [f"{path}: cannot be read: No such file or directory"]


# --- arbitrary contents -------------------------------------------------------------------------

REAL = [
    line
    for name in ("batch_udf-3.5", "foreachbatch-4.3")
    for line in (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_lines_in_any_order_twice_or_missing_are_never_fatal(tmp_path: Path, data: st.DataObject) -> None:
    """Complete lines in any order, repeated or missing, are never reported as damage, and timestamps never decrease."""
    lines = data.draw(st.lists(st.sampled_from(REAL), max_size=40))
    reading = read(tmp_path / "local-1", "".join(lines))
    assert reading.complaints == []
    at = [record.at for record in reading.records]
    assert at == sorted(at)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=st.sampled_from(REAL), data=st.data())
def test_damage_of_any_kind_is_never_fatal(tmp_path: Path, line: str, data: st.DataObject) -> None:
    """Lost, repeated or changed bytes make only their own lines unreadable."""
    raw = bytearray(line.rstrip("\n").encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw)))
        end = min(len(raw), start + data.draw(st.integers(0, 30)))
        raw[start:end] = data.draw(st.binary(max_size=8)).replace(b"\n", b" ")
    # The test excludes damage that makes the file begin like a compressed file.
    assume(not any(raw.startswith(magic) for magic, _ in compression._READERS))
    reading = read(tmp_path / "local-1", bytes(raw) + b"\n" + SOUND.encode())
    assert [type(record).__name__ for record in reading.records][-3:] == [
        "ApplicationStart",
        "ApplicationTotals",
        "ApplicationEnd",
    ]
    assert reading.reader.damaged == len(reading.complaints) <= 1


@pytest.mark.parametrize(
    "strange",
    [
        line("SparkListenerStageSubmitted", Stage_Info=stage(tasks=-5)),
        line("SparkListenerStageSubmitted", Stage_Info=stage(tasks=10**30)),
        line("SparkListenerTaskStart", Stage_ID=0, Stage_Attempt_ID=0, Task_Info=task(-1)),
        line("SparkListenerTaskStart", Stage_ID=0, Stage_Attempt_ID=0, Task_Info=task(10**30)),
        line("SparkListenerApplicationEnd", Timestamp=10**30),
        line(STREAMING + "QueryStartedEvent", id="q", runId="r", timestamp="9999-99-99"),
        line(STREAMING + "QueryStartedEvent", id="q", runId="r", timestamp="0001-01-01T00:00:00+23:59"),
    ],
)
def test_impossible_numbers_and_times_are_never_fatal(path: Path, strange: dict[str, Any]) -> None:
    around = [line("SparkListenerStageSubmitted", Stage_Info=stage()), strange]
    reading = read(path, text(*around) + SOUND)
    kinds = [type(record).__name__ for record in reading.records if not isinstance(record, r.StageWaited)]
    assert kinds[-3:] == ["ApplicationStart", "ApplicationTotals", "ApplicationEnd"]


# --- SQL executions -----------------------------------------------------------------------------

SQL = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecution"


def sql_start(number: int, root: int | None = None, description: str = "collect at x.py:1", plan: str = "") -> Any:
    about = {"executionId": number, "rootExecutionId": number if root is None else root, "description": description}
    return line(f"{SQL}Start", **about, details="org.apache.spark", physicalPlanDescription=plan, time=T)


def sql_end(number: int, error: str | None = "") -> Any:
    return line(f"{SQL}End", executionId=number, time=T + number, errorMessage=error)


def test_a_failed_sql_execution_is_one_record_of_its_outermost_execution(path: Path) -> None:
    """A failed SQL execution causes one record, with the description and the end time of the statement."""
    lines = [sql_start(1, description="nightly"), sql_start(2, 1, "part"), sql_end(2, "[X_Y] no")]
    reading = read(path, text(*lines))
    assert [(record.root_id, record.description) for record in reading.of(r.SqlExecutionStart)] == [(1, "nightly")] * 2
    assert reading.of(r.SqlExecutionEnd) == [
        r.SqlExecutionEnd(at=T + 2, execution_id=2, root_id=1, time=T + 2, description="nightly", error="[X_Y] no")
    ]


def test_only_the_first_success_after_a_failure_is_a_record(path: Path) -> None:
    """After a failed SQL execution, only the first success causes a record. Spark before 3.4 writes no errors."""
    lines = [sql_end(1), sql_end(2, "boom"), sql_end(3), sql_end(4), sql_end(5, None)]
    reading = read(path, text(*lines))
    assert [(record.execution_id, record.error) for record in reading.of(r.SqlExecutionEnd)] == [(2, "boom"), (3, None)]


def test_a_plan_of_any_size_is_skipped(path: Path) -> None:
    """A plan of any size is cut out of its line. The description is missing if the cut also removes it."""
    huge = "p" * (30 << 20)
    lines = [
        sql_start(1, plan=huge),
        sql_end(1, "a"),
        sql_start(2, description="d" * 2_000, plan=huge),
        sql_end(2, "b"),
    ]
    reading = read(path, text(*lines))
    assert reading.complaints == []
    assert [record.description for record in reading.of(r.SqlExecutionEnd)] == ["collect at x.py:1", None]


def test_a_statement_timeout_is_read(path: Path) -> None:
    """The line is one of Spark 4.3's Thrift server."""
    kind = "org.apache.spark.sql.hive.thriftserver.ui.SparkListenerThriftServerOperationTimeout"
    reading = read(path, text(line(kind, id="125ab4aa", finishTime=T)))
    assert reading.records == [r.StatementTimedOut(at=T, statement_id="125ab4aa", time=T)]
