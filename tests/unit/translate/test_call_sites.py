"""Tests of call sites and descriptions in the bodies of events."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fakes import START, application_start, decoded, query_started, query_terminated

from spark_events.translate.call_sites import described, user_call_site
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

REFLECTION = "sql at NativeMethodAccessorImpl.java:0"
RUN = "id = 3f0a21bc-0000-4732-9d1e-01d23ed89ab7{0}runId = 6f595dfe-64f8-4732-9d1e-01d23ed89ab7{0}batch = {1}"
RAW = re.compile(r"MethodAccessor|MethodHandle|<br|runId|batch = |\n")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (REFLECTION, "sql"),
        ("csv at DirectMethodHandleAccessor.java:103", "csv"),
        ("csv at DelegatingMethodAccessorImpl.java:43", "csv"),
        ("count at GeneratedMethodAccessor33.<unknown>", "count"),
        ("csv at Native.scala:7", "csv at Native.scala:7"),
        (f"{REFLECTION}\nnightly", "sql nightly"),
        ("clicks<br/>" + RUN.format("<br/>", 4), "query 'clicks', batch 4"),
        ("clicks\n" + RUN.format("\n", "init"), "query 'clicks'"),
        (RUN.format("<br/>", "init"), "query '3f0a21bc'"),
        ("my clicks<BR />per hour", "my clicks per hour"),
        ("select a<b from t", "select a<b from t"),
        ("x" * 200, "x" * 120),
        ("", ""),
    ],
)
def test_descriptions(raw: str, text: str) -> None:
    assert described(raw) == text


def test_a_thread_of_spark_is_no_call_site() -> None:
    assert user_call_site("$anonfun$withThreadLocalCaptured$1 at CompletableFuture.java:1768") == ""


@pytest.mark.parametrize("description", [REFLECTION, *("q<br/>" + RUN.format("<br/>", batch) for batch in (4, "init"))])
@pytest.mark.parametrize("query", [None, "q1"])
def test_no_body_has_a_raw_description(description: str, query: str | None) -> None:
    """The bodies of jobs, stages, SQL executions, queries and applications are sentences for people."""
    failure = {"chain": [{"type": "java.io.IOException", "message": "disk"}]}
    properties: dict[str, Any] = {"spark.job.description": description, "callSite.short": REFLECTION}
    properties |= {"spark.sql.execution.id": "1"} if query is None else {"sql.streaming.queryId": query}
    stage = {"stage_id": 4, "attempt": 0, "name": REFLECTION, "tasks": 1, "time": START}
    edge = {"status": "ALL_FINISHED", "running": 0, "finished": 1, "failed": 0}
    execution = {"execution_id": 1, "root_id": 1, "time": START, "description": description}
    records: list[dict[str, Any]] = [
        application_start(),
        query_started(),
        {"kind": "sql_execution_start", **execution},
        {"kind": "job_start", "job_id": 0, "time": START, "properties": properties, "stages": [4]},
        {"kind": "stage_submitted", **stage, "properties": properties},
        {"kind": "stage_tasks", **stage, **edge},
        {"kind": "stage_completed", **stage, "failure_reason": "disk", "task_failure": "java.io.IOException: disk"},
        {"kind": "sql_execution_end", **execution, "error": "java.io.IOException: other"},
        {"kind": "job_end", "job_id": 0, "time": START, "failure": failure},
        query_terminated(exception="java.io.IOException: disk"),
        {"kind": "application_end", "time": START + 9, "ending": "UNKNOWN"},
    ]
    translator = Translator(TranslateConfig(streaming_jobs=True, streaming_stages=True))
    bodies = [event.body for record in records for event in translator.translate(decoded(record))]
    assert translator.defects == 0
    assert len(bodies) >= 9
    assert [body for body in bodies if RAW.search(body)] == []
