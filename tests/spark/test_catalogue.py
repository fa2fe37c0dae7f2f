"""Tests that the events of a job with many kinds of work equal Spark's own data about the job.

A replay of the job's event log must create the same events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from spark.harness import (
    PATIENT,
    Lab,
    Run,
    file_reporter,
    line_of,
    parts,
    replay,
    runs_any_spark,
    spark_version,
    two_lines,
)

from spark_events.event import snake_case

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

STATUSES = {"RUNNING", "FINISHED", "FAILED"}
DISPATCHERS = ["sync", pytest.param("async-queued", marks=pytest.mark.any_spark)]
EVENT_LOG = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": "{folder}/eventlog",
    "spark.eventLog.compress": "false",
}

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider"
}
#: Forms of the event log. The Spark version determines which form is the default.
LOGS = {
    "plain": {"spark.eventLog.rolling.enabled": "false", "spark.eventLog.compress": "false"},
    "rolling-zstd": {
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": "zstd",
    },
}
#: The lines of both forms are equal, so the other versions test only one form.
FORMS = [pytest.param("plain", marks=pytest.mark.any_spark), "rolling-zstd"]
#: Settings that enable all kinds of events, because the tests compare all kinds.
EVERYTHING = {
    "events.streaming-jobs.enabled": "true",
    "events.streaming-stages.enabled": "true",
}
#: A second reporter, which writes events to the driver's log.
DRIVER_LOG = {
    "events.reporters": "audit, driver",
    "events.reporter.driver.type": "log",
    "events.reporter.driver.destination": "log4j",
}


class Batch(NamedTuple):
    """One micro-batch: run of the query, Spark's progress, and the attributes and timestamp of the batch's event."""

    query: dict[str, Any]
    progress: dict[str, Any]
    attributes: dict[str, Any]
    observed: int


@pytest.fixture(scope="module")
def runs(lab: Lab, request: pytest.FixtureRequest) -> dict[str, Run]:
    """Run the applications that a selected test may need, in one process."""
    path = Path("{folder}/events.jsonl")
    forms = LOGS if runs_any_spark(request) else {"rolling-zstd": LOGS["rolling-zstd"]}
    settings = {name: {**EVENT_LOG, **log, **EVERYTHING, **file_reporter(path)} for name, log in forms.items()}
    settings["sync"] = {**EVENT_LOG, **ROCKSDB, **file_reporter(path)}
    # The last application must be the one whose log is tested, because its end is reported before the process exits.
    if runs_any_spark(request):
        settings["async-queued"] = {**EVENT_LOG, **file_reporter(path, "async-queued"), **DRIVER_LOG}
    job = lab.run("catalogue.py", parts(settings), defaults={**two_lines(), **PATIENT})
    assert job.process.returncode == 0, job.tail()
    return {name: job.part(name) for name in settings}


@pytest.fixture(scope="module", params=DISPATCHERS)
def run(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    """Return the finished application with the parametrized dispatcher."""
    return runs[request.param]


@pytest.fixture(scope="module")
def truth(run: Run) -> dict[str, Any]:
    """Return the data that the job read from Spark."""
    recorded: dict[str, Any] = run.truth()
    return recorded


@pytest.fixture(scope="module")
def spark_log(run: Run) -> list[dict[str, Any]]:
    """Return Spark's event log."""
    return run.event_log()


@pytest.fixture(scope="module")
def batches(run: Run, truth: dict[str, Any]) -> list[Batch]:
    """Return every batch that Spark reports as executed, with the single event about the batch."""
    events = {}
    for event in run.named("BatchCommitEvent"):
        attributes = event["attributes"]
        key = attributes["spark.streaming.query.run_id"], attributes["spark.batch.id"]
        assert key not in events, f"two events of one commit: {key}"
        events[key] = event
    found = []
    for query in truth["runs"]:
        for progress in query["progress"]:
            if "addBatch" in progress["durationMs"]:
                event = events.pop((query["run_id"], progress["batchId"]))
                found.append(Batch(query, progress, event["attributes"], event["observed_ts_millis"]))
    assert not events, "events of commits that Spark does not know"
    return found


def of_kind(spark_log: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [entry for entry in spark_log if entry["Event"].endswith(kind)]


def millis(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp() * 1000)


def test_a_run_without_problems_logs_nothing(run: Run) -> None:
    assert run.own_messages == []


def test_sequences_have_no_gap(run: Run) -> None:
    """A reporter without a filter receives events with the sequence numbers 1, 2, 3 and so on."""
    sequences = [event["sequence"] for event in run.events()]
    assert sequences == list(range(1, len(sequences) + 1))


def test_event_ids_are_unique(run: Run) -> None:
    """No two events have the same id."""
    ids = [event["event_id"] for event in run.events()]
    assert len(set(ids)) == len(ids)


def test_only_known_events_are_reported(run: Run) -> None:
    """docs/events/ contains the name of every reported event, and no event was dropped."""
    assert {event["name"] for event in run.events()} <= {
        "JobStatusChangeEvent",
        "JobFailureEvent",
        "AllSubtasksStatusChangeEvent",
        "BatchCommitEvent",
        "WatermarkStatusChangeEvent",
        "StageSummaryEvent",
        "ApplicationSummaryEvent",
        "DispatcherReportEvent",
    }


def test_every_event_names_its_application(run: Run, truth: dict[str, Any]) -> None:
    """Every event contains the application's id, name, user and Spark version, equal to Spark's data."""
    expected = {
        "spark.app.id": truth["app_id"],
        "spark.app.name": "catalogue",
        "spark.user": truth["user"],
        "spark.version": truth["version"],
    }
    for event in run.events():
        assert expected.items() <= event["attributes"].items()
        assert event["attributes"]["host.name"]


def test_event_times_lie_within_the_application(run: Run, spark_log: list[dict[str, Any]]) -> None:
    (start,), (end,) = of_kind(spark_log, "ListenerApplicationStart"), of_kind(spark_log, "ListenerApplicationEnd")
    for event in run.events():
        if event["name"] != "DispatcherReportEvent":  # The last event is the sidecar's final report.
            assert start["Timestamp"] <= event["observed_ts_millis"] <= end["Timestamp"]


def test_the_application_s_times_equal_spark_s(run: Run, spark_log: list[dict[str, Any]]) -> None:
    """The application's first event is RUNNING and its last is FINISHED, with the times in Spark's event log."""
    (start,), (end,) = of_kind(spark_log, "ListenerApplicationStart"), of_kind(spark_log, "ListenerApplicationEnd")
    changes = run.named("JobStatusChangeEvent", spark_entity="application")
    assert run.events()[0] == changes[0]
    assert [change["attributes"].get("spark.status.old") for change in changes] == [None, "RUNNING"]
    assert [change["attributes"]["spark.status.new"] for change in changes] == ["RUNNING", "FINISHED"]
    assert [change["observed_ts_millis"] for change in changes] == [start["Timestamp"], end["Timestamp"]]


def test_every_commit_file_has_one_event(run: Run, truth: dict[str, Any]) -> None:
    """Exactly the batches in the checkpoint's commits/ are reported, each once over all runs of a query."""
    for query_id, checkpoint in {(query["id"], query["checkpoint"]) for query in truth["runs"]}:
        commits = run.named("BatchCommitEvent", spark_streaming_query_id=query_id)
        assert [event["attributes"]["spark.batch.id"] for event in commits] == run.commits(checkpoint)


def test_commit_events_match_recent_progress(batches: list[Batch]) -> None:
    """Every executed batch of query.recentProgress has an event of the same query, run and name."""
    assert len(batches) >= 12
    for batch in batches:
        assert batch.attributes["spark.streaming.query.id"] == batch.query["id"]
        assert batch.attributes.get("spark.streaming.query.name") == batch.query["name"]
        assert batch.attributes["spark.batch.count"] == 1


def test_rows_equal_spark_s(batches: list[Batch]) -> None:
    """Input and output rows equal Spark's progress. If Spark reports -1 output rows, the attribute is missing."""
    for batch in batches:
        written = batch.progress["sink"].get("numOutputRows", -1)
        assert batch.attributes["spark.batch.rows_input"] == batch.progress["numInputRows"]
        assert batch.attributes.get("spark.batch.rows_output") == (written if written >= 0 else None)
        assert batch.attributes["spark.batch.sink"] == batch.progress["sink"]["description"]


def test_durations_equal_spark_s(batches: list[Batch]) -> None:
    """The event contains exactly the phases that Spark measured, with their durations in milliseconds."""
    for batch in batches:
        durations = {key: value for key, value in batch.attributes.items() if key.startswith("spark.batch.duration.")}
        spark_s = batch.progress["durationMs"].items()
        assert durations == {f"spark.batch.duration.{snake_case(phase)}_ms": millis for phase, millis in spark_s}


def test_event_times_equal_spark_s(batches: list[Batch]) -> None:
    """Watermark and event times of a batch equal Spark's progress. They are missing for queries without a watermark."""
    watermarks = set()
    for batch in batches:
        times = batch.progress.get("eventTime", {})
        assert batch.attributes.get("spark.watermark.time") == times.get("watermark")
        assert batch.attributes.get("spark.batch.event_time_min") == times.get("min")
        assert batch.attributes.get("spark.batch.event_time_max") == times.get("max")
        watermarks.add(times.get("watermark"))
    assert len(watermarks) >= 5, "the job was to move the watermark"


def test_offsets_equal_spark_s(batches: list[Batch]) -> None:
    """Start and end offsets of each source equal Spark's progress and have the JSON format of the checkpoint."""
    for batch in batches:
        (source,) = batch.progress["sources"]
        (ours,) = json.loads(batch.attributes["spark.batch.sources"])
        assert (ours["description"], ours["rows"]) == (source["description"], source["numInputRows"])
        for key, theirs in (("offset_from", "startOffset"), ("offset_to", "endOffset")):
            text = ours.get(key)
            assert (None if text is None else json.loads(text)) == source[theirs]


def test_state_equals_spark_s(batches: list[Batch]) -> None:
    """State rows and late rows equal the sums over the stateful operators in Spark's progress."""
    late = 0
    for batch in batches:
        operators = batch.progress["stateOperators"]
        if not operators:
            assert not [key for key in batch.attributes if key.startswith("spark.state.")]
            continue
        assert batch.attributes["spark.state.rows_total"] == sum(operator["numRowsTotal"] for operator in operators)
        assert batch.attributes["spark.state.rows_updated"] == sum(operator["numRowsUpdated"] for operator in operators)
        assert batch.attributes["spark.state.rows_removed"] == sum(operator["numRowsRemoved"] for operator in operators)
        assert batch.attributes["spark.state.memory_bytes"] == sum(
            operator["memoryUsedBytes"] for operator in operators
        )
        dropped = sum(operator["numRowsDroppedByWatermark"] for operator in operators)
        assert batch.attributes["spark.state.rows_dropped_by_watermark"] == dropped
        late += dropped
        copied = sum(operator["customMetrics"].get("rocksdbBytesCopied", 0) for operator in operators)
        assert batch.attributes.get("spark.state.checkpointed_bytes", 0) == copied
        on_disk = sum(operator["customMetrics"].get("rocksdbSstFileSize", 0) for operator in operators)
        assert batch.attributes.get("spark.state.disk_bytes", 0) == on_disk
        assert batch.attributes["spark.state.commit_ms"] == sum(operator["commitTimeMs"] for operator in operators)
        named = [(operator["operatorName"], operator["numRowsTotal"]) for operator in operators]
        described = json.loads(str(batch.attributes["spark.state.by_operator"]))
        assert [(operator["name"], operator["rows"]) for operator in described] == named
    assert late > 0, "the job was to send late rows"


@pytest.mark.any_spark
def test_only_rocksdb_reports_the_checkpointed_size(runs: dict[str, Run]) -> None:
    """Only with RocksDB does the event contain the number of bytes that a batch copies to the checkpoint."""
    known = {
        name: [
            event["attributes"].get("spark.state.checkpointed_bytes", 0) > 0
            for event in runs[name].named("BatchCommitEvent")
            if event["attributes"].get("spark.state.rows_updated")
        ]
        for name in ("sync", "async-queued")
    }
    assert known["sync"]
    assert all(known["sync"])
    assert not any(known["async-queued"])


def test_observed_metrics_equal_spark_s(batches: list[Batch]) -> None:
    """Each non-null metric of df.observe() is an attribute."""
    seen = 0
    for batch in batches:
        observed = {key: value for key, value in batch.attributes.items() if key.startswith("spark.observed.")}
        expected = {
            f"spark.observed.{name}.{field}": value
            for name, row in batch.progress.get("observedMetrics", {}).items()
            for field, value in row.items()
            if value is not None
        }
        assert observed == expected
        seen += len(observed)
    assert seen >= 9


def test_a_commit_event_has_the_time_of_the_commit(run: Run, batches: list[Batch]) -> None:
    """The event's timestamp is the end of the trigger, when Spark wrote the commit file."""
    for batch in batches:
        took = batch.progress["durationMs"]["triggerExecution"]
        assert batch.observed == millis(batch.progress["timestamp"]) + took
        written = (run.folder / batch.query["checkpoint"] / "commits" / str(batch.progress["batchId"])).stat().st_mtime
        assert millis(batch.progress["timestamp"]) <= written * 1000 <= batch.observed + 1_000


def test_query_runs_are_reported_from_start_to_end(run: Run, truth: dict[str, Any]) -> None:
    """Each query run is reported as RUNNING. Its last status is FAILED if query.exception() is set, else FINISHED."""
    for query in truth["runs"]:
        changes = [
            change["attributes"]["spark.status.new"]
            for change in run.named("JobStatusChangeEvent", spark_entity="query", spark_streaming_query_id=query["id"])
            if change["attributes"]["spark.streaming.query.run_id"] == query["run_id"]
        ]
        assert changes == ["RUNNING", "FAILED" if query["failed"] else "FINISHED"]


def test_statuses_are_chained_over_restarts(run: Run, truth: dict[str, Any]) -> None:
    """All runs of a query have the same id, and each status except the first contains the previous status."""
    for query_id in {query["id"] for query in truth["runs"]}:
        changes = run.named("JobStatusChangeEvent", spark_entity="query", spark_streaming_query_id=query_id)
        old = [change["attributes"].get("spark.status.old") for change in changes]
        new = [change["attributes"]["spark.status.new"] for change in changes]
        assert old == [None, *new[:-1]]
        restarts = [change["attributes"].get("spark.streaming.query.restart", False) for change in changes]
        assert restarts == [status == "RUNNING" and index > 0 for index, status in enumerate(new)]


def test_a_restarted_query_has_a_new_run_id(run: Run, truth: dict[str, Any]) -> None:
    """Each restart of a query has a new run id. The run ids of its events equal Spark's run ids, in order."""
    started = run.named("JobStatusChangeEvent", spark_entity="query", spark_status_new="RUNNING")
    assert [event["attributes"]["spark.streaming.query.run_id"] for event in started] == [
        query["run_id"] for query in truth["runs"]
    ]


def test_query_start_times_equal_spark_s(run: Run, spark_log: list[dict[str, Any]]) -> None:
    started = run.named("JobStatusChangeEvent", spark_entity="query", spark_status_new="RUNNING")
    attributes = {entry["runId"]: millis(entry["timestamp"]) for entry in of_kind(spark_log, "QueryStartedEvent")}
    ours = {event["attributes"]["spark.streaming.query.run_id"]: event["observed_ts_millis"] for event in started}
    assert ours == attributes


def test_a_query_s_failure_names_the_user_s_error(run: Run, truth: dict[str, Any]) -> None:
    """If a stack trace contains Python, py4j and the JVM, the root cause is the user's Python error with its line."""
    assert truth["careful_error"] == "StreamingQueryException"
    (failure,) = run.named("JobFailureEvent", spark_entity="query")
    attributes = failure["attributes"]
    (failed,) = [query for query in truth["runs"] if query["failed"]]
    assert failure["severity"] == "ERROR"
    assert attributes["spark.streaming.query.run_id"] == failed["run_id"]
    assert attributes["failure.root_cause"] == "ValueError: cannot take 3"
    assert attributes["failure.location"].endswith(
        f"catalogue.py:{line_of('catalogue.py', '# the streaming error')} in check"
    )
    assert "ValueError: cannot take 3" in attributes["exception.message"]
    assert "ForeachBatchSink" in attributes["exception.stacktrace"]
    assert "ValueError: cannot take 3" in failure["body"]
    assert attributes["error.type"]


def test_a_failing_query_is_an_error(run: Run) -> None:
    """The failure of a query has severity ERROR; the changes of its status have severity INFO."""
    changes = run.named("JobStatusChangeEvent", spark_entity="query")
    assert {change["severity"] for change in changes} == {"INFO"}
    (failure,) = run.named("JobFailureEvent", spark_entity="query")
    assert (failure["severity"], failure["attributes"]["incident.role"]) == ("ERROR", "alarm")


def test_a_batch_job_s_failure_names_the_user_s_error(run: Run) -> None:
    """A job that fails in a Python UDF has one failure event, with the exception and the line of the UDF."""
    (failure,) = run.named("JobFailureEvent", spark_entity="job")
    attributes = failure["attributes"]
    assert (failure["severity"], attributes["incident.role"]) == ("WARN", "member")
    assert attributes["failure.root_cause"].startswith("ZeroDivisionError: integer division")
    assert attributes["failure.location"].endswith(
        f"catalogue.py:{line_of('catalogue.py', '# the batch error')} in broken"
    )
    assert attributes["spark.job.description"] == "divide by what is there"
    assert "spark.streaming.query.id" not in attributes


def test_failed_jobs_match_spark_s_event_log(run: Run, spark_log: list[dict[str, Any]]) -> None:
    """Each failed job in Spark's event log has a failure event with the same time; no other job has a failure event."""
    failed = [end for end in of_kind(spark_log, "ListenerJobEnd") if end["Job Result"]["Result"] != "JobSucceeded"]
    events = run.named("JobFailureEvent", spark_entity="job")
    assert [event["attributes"]["spark.job.id"] for event in events] == [end["Job ID"] for end in failed]
    assert [event["observed_ts_millis"] for event in events] == [end["Completion Time"] for end in failed]


def test_batch_jobs_are_reported_from_start_to_end(run: Run, spark_log: list[dict[str, Any]]) -> None:
    """Start and end of a batch job have the timestamps of Spark's event log. Micro-batches' jobs are not reported."""
    ends = {end["Job ID"]: end for end in of_kind(spark_log, "ListenerJobEnd")}
    expected = []
    for start in of_kind(spark_log, "ListenerJobStart"):
        if "sql.streaming.queryId" not in (start["Properties"] or {}):
            end = ends[start["Job ID"]]
            outcome = "FINISHED" if end["Job Result"]["Result"] == "JobSucceeded" else "FAILED"
            expected += [
                (start["Job ID"], "RUNNING", start["Submission Time"]),
                (start["Job ID"], outcome, end["Completion Time"]),
            ]
    reported = [
        (event["attributes"]["spark.job.id"], event["attributes"]["spark.status.new"], event["observed_ts_millis"])
        for event in run.named("JobStatusChangeEvent", spark_entity="job")
    ]
    assert reported == expected
    assert len({outcome for _, outcome, _ in expected}) == 3


def test_events_of_a_run_are_in_order(run: Run, truth: dict[str, Any]) -> None:
    """A run's RUNNING event precedes the run's commits, and the event with the final status follows the commits."""
    for query in truth["runs"]:
        kinds = [
            event["name"]
            for event in run.events()
            if event["attributes"].get("spark.streaming.query.run_id") == query["run_id"]
            and (event["name"] == "BatchCommitEvent" or event["attributes"].get("spark.status.new") in STATUSES)
            and event["attributes"].get("spark.entity", "query") == "query"
            and event["name"] != "JobFailureEvent"
        ]
        assert kinds == ["JobStatusChangeEvent", *["BatchCommitEvent"] * (len(kinds) - 2), "JobStatusChangeEvent"]


@pytest.mark.any_spark
def test_events_are_in_the_driver_s_log(runs: dict[str, Run]) -> None:
    """Events in the driver's log have its time, level and layout, but another logger. The last event is included."""
    run = runs["async-queued"]
    lines = [line for line in run.log.splitlines() if re.search(r" INFO Events: ", line)]
    reported = [line.partition(" INFO Events: ")[2] for line in lines]
    assert reported[0] == "[spark-events] JobStatusChangeEvent: Application 'catalogue' started"
    finished = "[spark-events] JobStatusChangeEvent: Application 'catalogue' finished"
    assert any(line.startswith(finished) for line in reported)
    assert reported[-1].startswith("[spark-events] DispatcherReportEvent: ")
    assert run.own_messages == []


# --- replays ------------------------------------------------------------------------------------

# Data that only live events contain; docs/replay.md has the same list. The event log contains neither the reason nor
# the outcome of an application's end.
END = {
    "event_id",
    "body",
    "severity",
    "spark.status.new",
    "spark.app.end_reason",
    "spark.app.exit_code",
    "incident.key",
    "incident.role",
    "incident.more_keys",
    "spark.app.outcome_hint",
}
#: The event log contains no heartbeats of executors.
SUMMARY = {
    f"spark.summary.peak_{who}_{memory}_bytes"
    for who in ("driver", "executor")
    for memory in ("heap", "offheap", "python")
}
#: The log does not tell whether Spark writes commits asynchronously.
COMMIT = {"spark.batch.committed"}
#: Spark's query termination event has no timestamp.
TERMINATED = {"observed_ts_millis"}
#: In the event log, a job's exception contains neither frames of the calling thread nor module names.
JOB_FAILURE = {"exception.stacktrace", "failure.stacktrace_cut"}


@pytest.fixture(scope="module", params=FORMS)
def logged(request: pytest.FixtureRequest, runs: dict[str, Run]) -> Run:
    """Return the finished application with one form of the event log and all kinds of events."""
    return runs[request.param]


@pytest.fixture(scope="module")
def replayed(logged: Run) -> list[dict[str, Any]]:
    """Return the events that a replay makes from the run's event log."""
    done = replay(logged, logged.folder / "eventlog", settings=EVERYTHING)
    assert done.returncode == 0, done.stderr
    assert "damaged" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def live_only_fields(event: dict[str, Any]) -> set[str]:
    """Return the fields and attributes in which the replay of an event may differ."""
    entity, says = event["attributes"].get("spark.entity"), event["attributes"]
    if event["name"] == "ApplicationSummaryEvent":
        return SUMMARY
    if event["name"] == "BatchCommitEvent":
        return COMMIT
    if entity == "application" and says.get("spark.status.new") != "RUNNING":
        return END
    if entity == "query" and says.get("spark.status.new") != "RUNNING":
        return TERMINATED
    if entity == "job" and event["name"] == "JobFailureEvent":
        return JOB_FAILURE
    return set()


def differences(live: dict[str, Any], again: dict[str, Any]) -> Iterator[str]:
    """Return the unexpected differences, by name, with the live and the replayed value."""
    flat = [{**event, **event["attributes"], "attributes": None} for event in (live, again)]
    for key in sorted(flat[0].keys() | flat[1].keys()):
        one, other = (event.get(key) for event in flat)
        if one != other and key not in live_only_fields(live):
            yield f"{live['name']} {live['attributes'].get('spark.entity')} {key}: {one!r} != {other!r}"


def of_the_run(logged: Run) -> list[dict[str, Any]]:
    """Return the run's events without the dispatcher's events, which no Spark record causes."""
    return [event for event in logged.events() if event["class_scope"] != "spark_events.dispatch"]


def test_the_log_has_the_expected_form(logged: Run) -> None:
    """Control: the event log has the form that the test expects."""
    names = [path.name for path in (logged.folder / "eventlog").rglob("*") if not path.name.startswith(".")]
    rolling = any(name.startswith("eventlog_v2_") for name in names)
    assert rolling == any(name.endswith(".zstd") for name in names) == (logged.folder.name == "rolling-zstd")
    assert spark_version() >= (3, 5)


def test_a_replay_has_the_live_events_in_order(logged: Run, replayed: list[dict[str, Any]]) -> None:
    live = of_the_run(logged)
    assert [(event["name"], event["sequence"]) for event in replayed] == [(e["name"], e["sequence"]) for e in live]
    ids = [(e["event_id"], a["event_id"]) for e, a in zip(live, replayed, strict=True) if not live_only_fields(e) & END]
    assert [one for one, _ in ids] == [other for _, other in ids]
    # Control: the comparison includes every kind of event.
    assert {event["name"] for event in live} == {
        "JobStatusChangeEvent",
        "StageSummaryEvent",
        "ApplicationSummaryEvent",
        "JobFailureEvent",
        "BatchCommitEvent",
        "AllSubtasksStatusChangeEvent",
    }
    assert {event["attributes"].get("spark.entity") for event in live} >= {"application", "query", "job", "stage"}


def test_replayed_events_equal_live_events(logged: Run, replayed: list[dict[str, Any]]) -> None:
    """Replayed events equal live events in all fields and attributes, except data that a log does not contain."""
    live = of_the_run(logged)
    found = [text for one, other in zip(live, replayed, strict=True) for text in differences(one, other)]
    assert not found, "\n".join(found[:20])


def test_differences_are_small(logged: Run, replayed: list[dict[str, Any]]) -> None:
    """In a replay, a query's end has a slightly earlier time, and a job's stack trace begins with the same line."""
    for live, again in zip(of_the_run(logged), replayed, strict=True):
        if live_only_fields(live) == TERMINATED:
            assert 0 <= live["observed_ts_millis"] - again["observed_ts_millis"] < 10_000
        if live_only_fields(live) == JOB_FAILURE:
            traces = [event["attributes"]["exception.stacktrace"].splitlines()[0] for event in (live, again)]
            assert traces[0] == traces[1]


def test_the_replayed_end_is_ended(replayed: list[dict[str, Any]]) -> None:
    """A replayed application ends with status ENDED, because the event log does not contain its outcome."""
    (end,) = [e for e in replayed if e["attributes"].get("spark.entity") == "application" and e["sequence"] > 1]
    assert end["attributes"]["spark.status.new"] == "ENDED"
    assert end["attributes"]["spark.app.end_reason"] == "UNKNOWN"


def test_a_truncated_log_has_the_events_before_the_truncation(logged: Run, replayed: list[dict[str, Any]]) -> None:
    """If a log is truncated within a line or a compressed block, the replay yields the events before the truncation."""
    files = [path for path in (logged.folder / "eventlog").rglob("*local-*") if path.is_file()]
    (whole,) = [path for path in files if not path.name.startswith((".", "appstatus_"))]
    cut = logged.folder / "cut-off"
    content = whole.read_bytes()
    end = len(content) * 2 // 3
    while b"\n" in content[end - 1 : end + 1]:  # the end of a line, where nothing is cut off
        end -= 2
    cut.write_bytes(content[:end])
    done = replay(logged, cut, settings=EVERYTHING)
    assert done.returncode == 0, done.stderr
    assert "cut off" in done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert 0 < len(events) < len(replayed)
    assert events == replayed[: len(events)]
