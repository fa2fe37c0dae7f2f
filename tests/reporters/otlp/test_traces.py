"""Tests of the reporter ``otlp-traces`` with a real HTTP receiver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from fakes import START, application_end, application_start, decoded, event, query_progress, query_started
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from reporters.peers.webhook import Answer, Receiver, Request
from reporters.running import IMPATIENT, Running
from spark_events import Event
from spark_events.reporters.otlp.spans import Parent, Spans, ids, traceparent
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
FAILED = {"chain": [{"type": "java.io.IOException", "message": "disk full"}]}


def job(number: int, failure: Any = None) -> list[dict[str, Any]]:
    return [
        {"kind": "job_start", "at": START, "job_id": number, "time": START + 10, "properties": {}},
        {"kind": "job_end", "at": START, "job_id": number, "time": START + 60, "failure": failure},
    ]


def life() -> list[Event]:
    """Return the events of an application with a successful job, a failed job and a micro-batch."""
    translator = Translator(TranslateConfig())
    records = [
        application_start(),
        *job(1),
        *job(2, FAILED),
        query_started(),
        query_progress(0),
        application_end("STOPPED"),
    ]
    return [one for record in records for one in translator.translate(decoded(record))]


def spans_of(requests: list[ExportTraceServiceRequest]) -> dict[str, Span]:
    return {
        span.name: span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }


def traces_of(receiver: Receiver) -> str:
    return f"{receiver.url.partition('/hook')[0]}/v1/traces"


def exported(events: list[Event], **settings: str) -> dict[str, Span]:
    with (
        Receiver(decide=lambda _: Answer(200, "")) as receiver,
        Running("otlp-traces", {"endpoint": traces_of(receiver), **IMPATIENT, **settings}) as running,
    ):
        running.deliver(events)
        return spans_of([ExportTraceServiceRequest.FromString(request.body) for request in receiver.taken])


def test_finished_jobs_and_batches_are_spans() -> None:
    """Finished jobs and batches are spans of one trace. A failed job has the status ERROR.

    Queries and applications cause no spans.
    """
    spans = exported(life())
    assert set(spans) == {"job 1", "job 2", "batch 0"}
    assert len({span.trace_id for span in spans.values()}) == 1
    assert len({span.span_id for span in spans.values()}) == 3
    first = spans["job 1"]
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == ((START + 10) * 10**6, (START + 60) * 10**6)
    assert first.status.code == Status.STATUS_CODE_UNSET
    assert spans["job 2"].status.code == Status.STATUS_CODE_ERROR
    batch = spans["batch 0"]
    assert batch.end_time_unix_nano - batch.start_time_unix_nano == 100 * 10**6
    assert {one.key for one in batch.attributes} >= {"spark.batch.id", "spark.streaming.query.name"}


def test_the_parent_s_trace_is_continued() -> None:
    """With a traceparent, all spans have its trace id, and their parent is the span in the traceparent."""
    spans = exported(life(), parent=TRACEPARENT)
    assert {span.trace_id.hex() for span in spans.values()} == {"4bf92f3577b34da6a3ce929d0e0e4736"}
    assert {span.parent_span_id.hex() for span in spans.values()} == {"00f067aa0ba902b7"}


def commits(numbers: Iterable[int], **attributes: Any) -> list[Event]:
    """Return the events of committed batches; each event completes a span."""
    about = {"spark.app.id": "a", "spark.streaming.query.run_id": "r", "spark.batch.duration.trigger_execution_ms": 5}
    return [_named(event(n, **{**about, **attributes, "spark.batch.id": n}), "BatchCommitEvent") for n in numbers]


@pytest.mark.parametrize(
    "status", [pytest.param(400, id="refused"), pytest.param(422, id="invalid"), pytest.param(413, id="too large")]
)
def test_only_the_refused_span_is_dropped(status: int, caplog: pytest.LogCaptureFixture) -> None:
    """The reporter halves a refused request until it finds the span that the receiver refuses."""

    def decide(request: Request) -> Answer:
        is_refused = len(request.body) > 5_000 if status == 413 else b"poison" in request.body
        return Answer(status, "no", {"Content-Type": "text/plain"}) if is_refused else Answer(200, "")

    events = [*commits(range(10)), *commits([10], text="poison" * 1_000), *commits(range(11, 21))]
    with Receiver(decide=decide) as receiver:
        with Running("otlp-traces", {"endpoint": traces_of(receiver), **IMPATIENT}) as running:
            running.deliver(events)
            assert (running.counters.delivered, running.counters.dropped) == (20, {"rejected": 1})
        assert len(spans_of([ExportTraceServiceRequest.FromString(request.body) for request in receiver.taken])) == 20
    assert {record.name for record in caplog.records} == {"spark_events.dispatch.health"}


@pytest.mark.parametrize("is_json", [False, True])
def test_a_partial_success_is_counted(is_json: bool) -> None:
    """Spans that the receiver rejects in a partial success do not count as delivered."""
    partial = ExportTracePartialSuccess(rejected_spans=3, error_message="too old")
    body = ExportTraceServiceResponse(partial_success=partial).SerializeToString().decode()
    kind = "application/x-protobuf"
    if is_json:
        body, kind = '{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too old"}}', "application/json"
    with Receiver([Answer(200, body, {"Content-Type": kind})]) as receiver:
        settings = {"endpoint": traces_of(receiver), **IMPATIENT}
        with Running("otlp-traces", settings) as running:
            running.deliver(commits(range(10)))
            assert (running.counters.delivered, running.counters.dropped) == (7, {"rejected": 3})
        assert len(receiver.requests) == 1


def test_a_failed_export_is_repeated() -> None:
    """If the receiver is unavailable, the dispatcher repeats the export with the same span ids."""
    with Receiver([Answer(503, "no"), Answer(200, "")]) as receiver:
        settings = {"endpoint": traces_of(receiver), **IMPATIENT}
        with Running("otlp-traces", settings) as running:
            running.deliver(life())
        bodies = [ExportTraceServiceRequest.FromString(request.body) for request in receiver.requests]
    assert len(bodies) >= 2
    assert spans_of(bodies[:1]) == spans_of(bodies[1:2])


def test_a_job_and_a_stage_of_a_batch_are_its_children() -> None:
    """Jobs and stages of a batch are children of the batch's span, whose id is derived from the query run and batch."""
    spans = Spans(None)
    about: dict[str, Any] = {"spark.app.id": "a", "spark.streaming.query.run_id": "r", "spark.batch.id": 3}
    batch = event(**{**about, "spark.batch.duration.trigger_execution_ms": 5})
    stage = event(**{**about, "spark.stage.id": 1, "spark.stage.attempt": 0, "spark.stage.duration_ms": 2})
    of_batch = spans.of(_named(batch, "BatchCommitEvent"))
    of_stage = spans.of(_named(stage, "StageSummaryEvent"))
    assert of_batch is not None
    assert of_stage is not None
    assert of_stage.parent == of_batch.span
    assert of_stage.trace == of_batch.trace


def test_events_name_the_span_of_their_job() -> None:
    """Before a job's span is exported, the job's events already contain its id. Application events have no span id."""
    first, *_ = [one for one in life() if one.attributes.get("spark.job.id") == 1]
    assert ids(first, None) == ids(first, None)
    assert ids(first, Parent(7, 9))[0] == 7
    assert ids(life()[0], None)[1] is None


@pytest.mark.parametrize("given", ["", "abc", TRACEPARENT[:-3], f"00-{'0' * 32}-{'1' * 16}-01", f"ff{TRACEPARENT[2:]}"])
def test_an_invalid_traceparent_is_rejected(given: str) -> None:
    """An invalid traceparent raises a ValueError, whose text is part of the message about the setting."""
    with pytest.raises(ValueError, match="traceparent"):
        traceparent.parse(given)


def _named(given: Event, name: str) -> Event:
    return Event(**{**{field: getattr(given, field) for field in given.__struct_fields__}, "name": name})
