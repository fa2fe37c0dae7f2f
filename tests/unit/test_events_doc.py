"""Tests that the pages on events and the code agree about every event and attribute."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes import (
    ROOT,
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)
from property.applications import Application

from spark_events import Event
from spark_events.cli.send_test import event_for
from spark_events.config import Settings
from spark_events.dispatch.telemetry import DeliveryCounters, account
from spark_events.enrichment import Budget, Limits
from spark_events.enrichment.driver.micro_batch import MicroBatch
from spark_events.enrichment.driver.progress import Progress
from spark_events.enrichment.driver.reports import enrichment_event
from spark_events.enrichment.engine.durations import buckets
from spark_events.enrichment.engine.statistics import EngineCounts, counted
from spark_events.enrichment.engine.statistics import progress as counters
from spark_events.enrichment.worker.channel_client import TaskAttempt
from spark_events.enrichment.worker.report import PartitionReport
from spark_events.records.types import LINKS
from spark_events.translate.deadlines.deadline_config import BacklogConfig, DeadlineConfig
from spark_events.translate.dispatch_reports import final_report, queue_status, reporter_status
from spark_events.translate.enrichers import FailureContext, TypeEnricher
from spark_events.translate.failures import Diagnostics
from spark_events.translate.incidents.incident_config import IdentityConfig, LinkConfig
from spark_events.translate.summaries.summary_config import SummaryConfig
from spark_events.translate.translation_config import (
    BatchCommitConfig,
    ExecutorConfig,
    FailureConfig,
    TranslateConfig,
    read,
)
from spark_events.translate.translator import Translator

_PAGES = [ROOT / "docs" / "events.md", *sorted((ROOT / "docs" / "events").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in _PAGES)
TYPES: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "any": (str, int, float, bool),
}
LONG = "a.B: [SOME_CLASS] x. SQLSTATE: 22012\n" + "\tat a.B.c(D.java:1)\n" * 50
UNREADABLE = (
    "Job aborted due to stage failure: Task 7 in stage 2.0 failed 1 times: [FAILED_READ_FILE.NO_HINT] Encountered error"
    " while reading file file:/in/a.json.  SQLSTATE: KD001"
)
CORRUPT = (
    "Job aborted due to stage failure: Task 3 in stage 2.0 failed 1 times: org.apache.kafka.common.KafkaException: x\n"
    "Caused by: org.apache.kafka.common.errors.CorruptRecordException: Record batch for partition orders-0 at offset 7"
    " is invalid\n"
)
ALL, FAILURES, QUERIES, JOBS, CLIENTS, FLOWS = (
    "On every event",
    "Attributes of incidents",
    "On every event of a streaming query",
    "On every event of a job, a stage or a SQL execution",
    "On every event of a client's work",
    "On every event of a pipeline's flow",
)


class Row(NamedTuple):
    """One attribute in a table of docs/events/."""

    section: str
    key: str
    type: str
    example: str

    def stands_for(self, key: str) -> bool:
        pattern = re.sub(r"<\w+>", ".+", re.escape(self.key).replace("\\<", "<").replace("\\>", ">"))
        return re.fullmatch(pattern, key) is not None


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def rows() -> list[Row]:
    found = []
    for section, text in sections().items():
        for key, kind, example in re.findall(r"^\| `([^`]+)` \| (\w+) \| .+ \| `(.+)` \|$", text, re.MULTILINE):
            found.append(Row(section, key, kind, example))
    return found


ROWS = rows()


class Owner:
    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        return {"owner": "payments"}


def story() -> list[Event]:
    """Return events that together contain every event name and attribute of docs/events/."""
    failures = FailureConfig(stacktrace_limit=256, enrichers=(TypeEnricher(), Owner()))
    links = LinkConfig(
        "http://h:18080", "http://wiki/{app}", log="http://logs/{app_id}", trace="http://traces/{app_id}"
    )
    everything = TranslateConfig(failure=failures, streaming_jobs=True, streaming_stages=True, link=links)
    application = Application()
    for second in range(40):
        application.passes(5_000)
        application.trigger(0, [4, 4 if second < 5 else 0], 1, 10)
    application.trigger(0, [4, 4], 0, 0)
    application.ends(0, True)
    application.trigger(0, [4, 4], 0, 0)
    application.ends(0, False)
    application.job({"spark.job.description": "d", "spark.jobGroup.id": "g", "callSite.short": "c"}, True, 1)
    uuid = "839c8b37-e5f1-4496-83ce-6ca71c9ee9bb"
    connect = f"SparkConnect_OperationTag_User_ada_Session_{uuid}_Operation_{uuid}"
    tagged = {"spark.job.tags": f"nightly,{connect}", "spark.openlineage.context": "c"}
    application.job({"spark.sql.execution.id": "3", **tagged}, False, 0)
    known = {**dict.fromkeys(LINKS, "x"), "tracking": "http://rm:8088/proxy/a", "pod": "p", "node": "n"}
    compared = {"spark.executor.memory": "8g"}
    records = [
        application_start(attempt_id="1", main_class="a.Main", links=known, settings=compared),
        *application.records[1:],
    ]
    state: dict[str, Any] = {"numRowsTotal": 1, "numRowsUpdated": 1, "numRowsRemoved": 1, "memoryUsedBytes": 1}
    timers = {"numRegisteredTimers": 1, "numDeletedTimers": 1, "numExpiredTimers": 1}
    rocksdb = {"BytesCopied": 1, "NumSnapshotsAutoRepaired": 1, "SstFileSize": 1, "ForceSnapshotCount": 1}
    store = {f"rocksdb{name}": value for name, value in {**rocksdb, "NumReplayChangelogFiles": 1}.items()}
    state |= {"customMetrics": {**store, "SnapshotLastUploaded.partition_0_default": 1, **timers}}
    source = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 5}}, "numInputRows": 1, "startOffset": 0}
    source |= {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    source |= {"metrics": {"numFilesOutstanding": "2", "estimatedTotalBytesBehindLatest": "64.0"}}
    times = {"watermark": "2026-01-01T00:00:00.000Z", "min": "2026-01-01", "max": "2026-01-02", "avg": "2026-01-01"}
    rich = {"stateOperators": [state], "sources": [source], "eventTime": times, "observedMetrics": {"m": {"n": 1.5}}}
    records += [
        query_started("r9", "q9"),
        query_progress(0, "r9", "q9", sink={"description": "s", "numOutputRows": 1}, **rich),
        query_terminated(
            "r9", "q9", exception="a.B: [SOME_CLASS] x. SQLSTATE: 22012\n" + "\tat a.B.c(D.java:1)\n" * 50
        ),
        query_started("r11", "q11"),
        query_progress(0, "r11", "q11") | {"asynchronous": True, "committed_through": 0},
        query_started("r10", "q10"),
        {"kind": "job_start", "job_id": 901, "time": START, "properties": {"sql.streaming.queryId": "q10"}},
        {"kind": "job_end", "job_id": 901, "time": START, "failure": {"chain": [{"type": "a.B"}]}},
        query_terminated("r10", "q10", exception="java.util.concurrent.TimeoutException: Futures timed out"),
        {"kind": "dropped", "at": START, "records": {"job_start": 1}},
        {"kind": "sql_execution_end", "execution_id": 8, "time": START, "description": "d", "error": "[A_B] x"},
        {
            "kind": "statement_failed",
            "statement_id": "s",
            "time": START,
            "session_id": "s",
            "user": "ada",
            "statement": "select 1/0",
            "error": "[A_B] y",
        },
        {"kind": "job_start", "job_id": 902, "time": START},
        {
            "kind": "job_end",
            "job_id": 902,
            "time": START,
            "failure": {"chain": [{"type": "java.lang.OutOfMemoryError", "message": "Java heap space"}]},
        },
        {"kind": "job_start", "job_id": 903, "time": START},
        {
            "kind": "job_end",
            "job_id": 903,
            "time": START,
            "failure": {
                "chain": [
                    {"type": "org.apache.spark.SparkException", "message": UNREADABLE},
                    {"type": "a.B", "message": "x", "error_class": "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION"},
                ]
            },
        },
        {"kind": "job_start", "job_id": 904, "time": START},
        {
            "kind": "job_end",
            "job_id": 904,
            "time": START,
            "failure": {"chain": [{"type": "org.apache.spark.SparkException", "message": CORRUPT}]},
        },
        {"kind": "job_start", "job_id": 900, "time": START},
        {
            "kind": "job_end",
            "job_id": 900,
            "time": START,
            "failure": {"chain": [{"type": "a.B"}]},
            "ui": "http://d:4040",
        },
    ]
    ended = Translator(everything)
    events = translated(ended, [*records, application_end("SUBMIT_STOPPED")])
    failure = {"chain": [{"type": "java.io.IOException", "message": "disk"}]}
    failed = [
        application_start(),
        *records[-2:],
        application_end(exit_code=3, failure=failure, exit_caller="A.b(C.java:1)"),
    ]
    events += translated(Translator(everything), failed)
    killed = [application_start(), application_end("PYTHON_DIED", exit_signal="SIGSEGV")]
    events += translated(Translator(everything), killed)
    coalesced = Translator(TranslateConfig(batch_commit=BatchCommitConfig(min_interval=60, max_duration=60)))
    events += translated(
        coalesced, [application_start(), query_started(), *map(query_progress, range(3)), query_terminated()]
    )
    counters = DeliveryCounters(
        4, 1, {"mailbox-full": 1}, held=1, spooled=1, failures=0, hung=0, latency=0.0, oldest_age=0.0, breaker=""
    )
    doubtful = dict.fromkeys(["illegal", "without_start", "defective", "unknown", "dropped"], 0)
    drafts = [
        reporter_status("audit", "closed", "open", "its events are held for 30 s: OSError: no", START),
        queue_status("audit", True, 0.91, START),
        final_report({"audit": account(counters)}, doubtful, START),
    ]
    added = [{"kind": "added", "event": event, "at": START} for event in (progressing(), enriched())]
    asked = Translator(TranslateConfig())
    events += translated(asked, [application_start(), query_started("r1", "q1", name="clicks"), *added])
    events += late()
    events += of_a_pipeline()
    events += summed_up()
    events += preceded()
    beating = Translator(TranslateConfig(heartbeat_interval=60.0))
    translated(beating, [application_start(), query_started("r1", "q1"), query_progress(0, "r1", "q1", **rich)])
    events += beating.tick(START + 60_000)
    return [*events, *(ended.emit(draft) for draft in drafts), event_for("page", {})]


PLAN = [
    {"name": "Scan parquet default.orders"},
    {"name": "Execute InsertIntoHadoopFsRelationCommand", "arguments": "file:/out/report, false, Parquet"},
]
SQL_START = {"kind": "sql_execution_start", "execution_id": 5, "time": START, "description": "d", "plan": PLAN}


def late() -> list[Event]:
    """Return events of deadlines and executors with all attributes."""
    hour = START + 3_600_000
    backlog = BacklogConfig(records=1, bytes=1, files=1, seconds=0.1, time=60.0)
    limits = DeadlineConfig(progress=60.0, job=60.0, application=60.0, lag=1, lag_time=60.0, backlog=backlog)
    translator = Translator(TranslateConfig(deadline=limits, executor=ExecutorConfig(4)))
    stage = {"stage_id": 7, "attempt": 0, "name": "s", "tasks": 4, "time": START, "finished": 1}
    stage |= {"properties": {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "1"}}
    running = stage | {"running": 1, "longest": {"task": 3, "executor": "2", "host": "h", "time": START}}
    about = {"frames": ["com.acme.A.b(A.java:1)", "a.M.constructNextBatch(M:1)"], "busy_since": START}
    job = {"frames": ["org.apache.spark.scheduler.DAGScheduler.runJob(D:1)"], "busy_since": START}
    answer = {"kind": "inspection", "seq": 9, "at": hour, "asked": hour, "executors": 0, "cores": 0}
    metrics = {"numFilesOutstanding": "2", "numBytesOutstanding": "64"}
    source = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 9}}, "numInputRows": 1, "metrics": metrics}
    executor = {"executor_id": "7", "host": "h", "time": START}
    added = {"kind": "executor_added", "cores": 4, **executor}
    lost = {"kind": "executor_removed", "reason": "exit code 137", "tasks": 2, "stages": [7], **executor}
    properties = {"spark.job.group": "g", "spark.sql.execution.id": "5"}
    records: list[dict[str, Any]] = [
        application_start(seq=1, main_class="com.acme.Main"),
        query_started("r1", "q1", seq=2),
        query_started("r2", "q2", seq=3),
        query_progress(0, "r1", "q1", sources=[source]) | {"seq": 4},
        SQL_START,
        {"kind": "job_start", "seq": 5, "job_id": 3, "time": START, "properties": properties},
        {"kind": "exclusion", "excluded": True, "executor_id": "7", "failures": 2, "stage_id": 7, "time": START},
        {"kind": "unschedulable", "unschedulable": True, "stage_id": 7, "time": START},
        added,
        lost,
        lost | {"executor_id": "8"},
    ]
    runs = [{"run_id": "r1", **job}, {"run_id": "r2", **about}]
    records.append({**answer, "queries": runs, "jobs": [[3, 7]], "stages": [running]})
    records.append({**answer, "idle_since": START, "stages": [stage]})
    events = translated(translator, records)
    return [*events, *translator.tick(hour)]


def of_a_pipeline() -> list[Event]:
    """Return events of a pipeline with all attributes."""
    uuid = "839c8b37-e5f1-4496-83ce-6ca71c9ee9bb"
    tags = f"SparkConnect_OperationTag_User_ada_Session_{uuid}_Operation_{uuid}"
    started = {"kind": "pipeline_command_started", "statement_id": uuid, "time": START}
    place = '    source_code_location {\n      file_name: "/a.py"\n      line_number: 14\n    }'
    defined = f'pipeline_command {{\n  define_flow {{\n    flow_name: "clicks"\n{place}\n  }}\n}}'
    records = [
        application_start(pipeline="shop", command="pyspark-shell"),
        {**started, "statement_id": "d", "statement": defined},
        {**started, "statement": "pipeline_command {\n  start_run {\n  }\n}"},
        query_started(name="clicks", tags=tags),
        query_terminated(exception="a.B: x"),
        {"kind": "sql_execution_start", "execution_id": 5, "time": START, "plan": PLAN, "tags": tags},
        {"kind": "job_start", "job_id": 1, "time": START, "properties": {"spark.sql.execution.id": "5"}},
        {"kind": "statement_failed", "statement_id": uuid, "time": START, "error": "a.B: x"},
        application_end(),
    ]
    return translated(Translator(TranslateConfig()), records)


def summed_up() -> list[Event]:
    """Return summaries with all attributes, and a job of a SQL execution that reads and writes tables."""
    config = TranslateConfig(summary=SummaryConfig(core_hour_price=0.5, min_duration=0.0))
    sql = {"spark.sql.execution.id": "5", "spark.job.description": "d", "callSite.short": "c", "spark.jobGroup.id": "g"}
    stage = {"stage_id": 3, "attempt": 0, "name": "s", "tasks": 2}
    totals = {"started": START, "ended": START + 99_999, "slowest_task": 1, "slowest_executor": "1"}
    totals |= {"slowest_host": "h", "run_ms": 9, "gc_ms": 9}
    failure = {"chain": [{"type": "java.io.IOException", "message": "No space left on device"}]}
    spending = {"spark.enrich.function": "lookup", "spark.enrich.usage": 9, "spark.enrich.cost": 0.5}
    spent = {"id": "7", "name": "EnrichmentEvent", "class_scope": "spark_events.enrich"}
    metrics = {"number of output rows": 1, "number of written files": 1, "written output": 1}
    metrics |= {"number of dynamic part": 1, "job commit time": 1, "number of updated rows": 1}
    written = {"kind": "data_written", "execution_id": 5, "time": START, "started": START, "metrics": metrics}
    records = [
        application_start(),
        {"kind": "executor_added", "executor_id": "1", "host": "h", "cores": 4, "time": START},
        SQL_START,
        {**written, "nodes": {"5": "Execute InsertIntoHadoopFsRelationCommand file:/a, Append, [id]"}},
        {"kind": "job_start", "job_id": 1, "time": START, "properties": sql},
        {"kind": "stage_submitted", "time": START, "properties": sql, **stage},
        {"kind": "stage_completed", "time": START + 99_999, "totals": totals, **stage},
        {"kind": "job_end", "job_id": 1, "time": START, "failure": failure},
        query_started(),
        query_progress(),
        {"kind": "added", "event": {**spent, "attributes": spending}},
        {"kind": "application_totals", "time": START, "final": True, "busy_ms": 1, "core_ms": 2, "cores_now": 4}
        | {
            f"peak_{who}_{memory}_bytes": 1
            for who in ("driver", "executor")
            for memory in ("heap", "offheap", "python")
        },
    ]
    events = translated(Translator(config), records)
    return [event for event in events if event.name != "EnrichmentEvent"]


def preceded() -> list[Event]:
    """Return events of an application with tags: a cancelled job, a failed job, and an end without a known cause."""
    python = 'Traceback (most recent call last):\n  File "/jobs/a.py", line 16, in book\n    raise x\nValueError: x\n'
    failures = {1: "[SPARK_JOB_CANCELLED] Job 1 cancelled by x", 2: f"a.B: {python}"}
    jobs = [
        {"kind": "job_end", "job_id": job, "time": START, "failure": {"chain": [], "trace": trace}}
        for job, trace in failures.items()
    ]
    identity = IdentityConfig("prod", (), {"team": "payments"})
    end = application_end("PROGRAM_FAILED", program_exit_code=1)
    config = TranslateConfig(identity=identity)
    query = [query_started(name="clicks"), query_terminated(exception="a.B: x")]
    return [
        *translated(Translator(config), [application_start(), *jobs, end]),
        *translated(Translator(config), [application_start(), *query, end]),
    ]


def enriched() -> dict[str, Any]:
    """Build the event that the driver's Python process adds for an enriched batch."""
    numbers = counted(EngineCounts(), []) | {"latency": {buckets([0.01])[0]: 3}, "limited": {"service": 0.1}}
    report = PartitionReport(0, 3, 1, (), numbers, {"ConnectionError": 1})
    budget = Budget(1000, cost=len, price_per_1000=0.002)
    return enrichment_event("lookup", MicroBatch("q1", 4, "r1"), [report], 0.1, None, budget)


def progressing() -> dict[str, Any]:
    """Build the event about the progress of a long batch."""
    progress = Progress("lookup", MicroBatch("q1", 4, "r1"), Limits(), 30.0)
    progress.update(TaskAttempt(), {"rows": 1, "failures": 0, **counters(EngineCounts())})
    event = progress.event()
    assert event is not None
    return event


def translated(translator: Translator, records: list[dict[str, object]]) -> list[Event]:
    return [event for record in records for event in translator.translate(decoded(record))]


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return story()


def sections_of(event: Event) -> set[str]:
    """Return the sections of the page that may document the attributes of an event."""
    own = {event.name, ALL} | ({FAILURES} if "incident.key" in event.attributes else set())
    if "spark.pipeline.flow" in event.attributes:
        own.add(FLOWS)
    if event.class_scope in ("spark.job", "spark.stage", "spark.sql.execution"):
        own |= {JOBS, QUERIES, CLIENTS}
    if event.class_scope.startswith(("spark.streaming", "spark_events.enrich")):
        own |= {QUERIES, CLIENTS}
    return own


def test_the_tables_are_complete() -> None:
    """Every row of an attribute table in docs/events/ has a key, a type, a meaning and an example."""
    for section, text in sections().items():
        tables = re.findall(r"^\| attribute \| type .+\n.+\n((?:\|.+\n)+)", text + "\n", re.MULTILINE)
        table = "".join(tables).splitlines()
        assert len(table) == len([row for row in ROWS if row.section == section]), section
    assert {row.type for row in ROWS} <= TYPES.keys()
    assert len({(row.section, row.key) for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.section}-{row.key}")
def test_examples_match_their_type(row: Row) -> None:
    """The example of an integer attribute consists of digits; the example of a boolean is true or false."""
    if row.type == "integer":
        assert re.fullmatch(r"-?\d+", row.example)
    elif row.type == "boolean":
        assert row.example in ("true", "false")


def test_every_reported_attribute_is_documented_with_its_type(events: list[Event]) -> None:
    for event in events:
        candidates = [row for row in ROWS if row.section in sections_of(event)]
        for key, value in event.attributes.items():
            # A full name has precedence over a pattern.
            fitting = sorted((row for row in candidates if row.stands_for(key)), key=lambda row: "<" in row.key)
            assert fitting, f"{event.name}: {key} = {value!r} is not documented"
            assert type(value) in TYPES[fitting[0].type], f"{event.name}: {key} = {value!r} is no {fitting[0].type}"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.section}-{row.key}")
def test_every_documented_attribute_is_reported(events: list[Event], row: Row) -> None:
    """docs/events/ documents only attributes that an event in this test contains."""
    names = {event.name for event in events}
    about = [event for event in events if event.name == row.section or row.section not in names]
    assert any(row.stands_for(key) for event in about for key in event.attributes)


def test_every_event_is_documented_with_its_scopes(events: list[Event]) -> None:
    names = {event.name for event in events}
    documented = {section for section in sections() if section.endswith("Event")}
    assert documented == names
    for name in names:
        line = re.search(r"^Scopes?: (.+)\.$", sections()[name], re.MULTILINE)
        assert line is not None, name
        assert set(re.findall(r"`([^`]+)`", line[1])) == {e.class_scope for e in events if e.name == name}


def test_the_page_on_delivery_names_every_event_about_delivery(events: list[Event]) -> None:
    page = (ROOT / "docs" / "delivery.md").read_text(encoding="utf-8")
    names = {event.name for event in events if event.class_scope == "spark_events.dispatch"}
    assert len(names) == 4
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_the_documented_failure_enricher_adds_its_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = re.search(r"```python\n(# owners\.py\n.*?)```", TEXT, re.DOTALL)
    setting = re.search(r"`spark\.(events\.failure\.enrichers)=([^`]+)`", TEXT)
    assert code is not None
    assert setting is not None
    (tmp_path / "owners.py").write_text(code[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    diagnostics = Diagnostics(read(Settings.of({setting[1]: setting[2]})).failure.enrichers)
    attributes = diagnostics.of_text("a.B: payment 1003 has no currency").attributes
    assert attributes["failure.label.owner"] == "payments"
    assert "failure.label.owner" not in diagnostics.of_text("a.B: disk full").attributes
