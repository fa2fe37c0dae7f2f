"""Tests of the reporter ``openlineage`` with a real HTTP receiver. Every OpenLineage run event is validated."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from fakes import START, application_end, application_start, decoded, query_progress, query_started, query_terminated

from reporters.peers.webhook import Answer, Receiver
from reporters.running import IMPATIENT, Running
from spark_events import Event
from spark_events.cli.send_test import event_for
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

RUN = str(uuid4())
PARENT = {
    "parentRun": "0196f3a2-7c1e-7d3b-9c39-2f6a3d1b7a10",
    "parentNamespace": "airflow",
    "parentJob": "nightly.spark",
}


@functools.cache
def schema() -> Draft202012Validator:
    """Return a validator of run events. The slow import of jsonschema is in this function, to keep collection fast."""
    from jsonschema import Draft202012Validator, FormatChecker

    specification = json.loads(Path(__file__).with_name("schema.json").read_text(encoding="utf-8"))
    return Draft202012Validator(specification, format_checker=FormatChecker())


def translated(*records: dict[str, Any], heartbeats: int = 0) -> list[Event]:
    translator = Translator(TranslateConfig(heartbeat_interval=60.0))
    events: list[Event] = []
    for record in records:
        events += translator.translate(decoded(record))
    for beat in range(1, heartbeats + 1):
        events += translator.tick(START + beat * 60_000)
    return [*events, *translator.tick(START + 10**9)] if not heartbeats else events


def sent(events: list[Event], **settings: str) -> list[dict[str, Any]]:
    """Deliver the events, and return the received run events. Each must match the schema of the specification."""
    with Receiver() as receiver, Running("openlineage", {"url": receiver.url, **IMPATIENT, **settings}) as running:
        running.deliver(events)
        assert running.counters.delivered == len(events)
        assert {request.path for request in receiver.taken} <= {"/hook/api/v1/lineage"}
        found = [request.json for request in receiver.taken]
    for one in found:
        schema().validate(one)
    return found


def types(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["job"]["name"], one["eventType"]) for one in found]


@pytest.mark.parametrize(
    ("end", "last"),
    [("STOPPED", "COMPLETE"), ("PROGRAM_FAILED", "FAIL"), ("SIGTERM", "ABORT"), ("GATEWAY_CLOSED", "ABORT")],
)
def test_an_application_is_a_run(end: str, last: str) -> None:
    """An application is one run, which ends with COMPLETE only after a known success, and with FAIL after a failure."""
    found = sent(translated(application_start(), application_end(end)))
    assert types(found) == [("shop", "START"), ("shop", last)]
    assert len({one["run"]["runId"] for one in found}) == 1
    assert ("errorMessage" in found[-1]["run"]["facets"]) is (last == "FAIL")


def test_a_failed_query_is_a_failed_run_with_its_error() -> None:
    """A failed query is a failed run with the root cause as error message and the application's run as parent."""
    failed = query_terminated(run=RUN, exception="ValueError: payment 1003 has no currency")
    found = sent(translated(application_start(), query_started(run=RUN), failed, application_end("PROGRAM_FAILED")))
    assert types(found)[:3] == [("shop", "START"), ("shop.clicks", "START"), ("shop.clicks", "FAIL")]
    assert types(found)[-1] == ("shop", "FAIL")
    failure = found[2]["run"]["facets"]
    assert "payment 1003 has no currency" in failure["errorMessage"]["message"]
    assert failure["parent"]["run"]["runId"] == found[0]["run"]["runId"]


@pytest.mark.parametrize(("end", "state"), [("STOPPED", "COMPLETE"), ("PROGRAM_FAILED", "ABORT")])
def test_queries_that_spark_ends_with_the_application_have_an_end(end: str, state: str) -> None:
    """A query without an end event ends with its application: COMPLETE if the application finished, else ABORT."""
    found = sent(translated(application_start(), query_started(run=RUN), application_end(end)))
    assert ("shop.clicks", state) in types(found)


def test_commits_are_throttled() -> None:
    """Per interval, only one commit of a query is sent as RUNNING."""
    commits = [query_progress(batch, run=RUN, timestamp=f"2026-11-21T12:14:{batch + 31}.000Z") for batch in range(29)]
    events = [
        event
        for event in translated(application_start(), query_started(run=RUN), *commits)
        if event.name in ("JobStatusChangeEvent", "BatchCommitEvent")
    ]
    assert sum(event.name == "BatchCommitEvent" for event in events) > 5
    running = [one for one in types(sent(events, interval="10s")) if one[1] == "RUNNING"]
    assert 1 <= len(running) <= 4


def test_heartbeats_keep_a_run_alive() -> None:
    """A heartbeat of an application is sent as RUNNING if the interval has passed."""
    found = sent(translated(application_start(), heartbeats=3), interval="100s")
    assert [state for _, state in types(found)] == ["START", "RUNNING"]


def test_the_parent_is_the_run_that_submitted_the_application() -> None:
    """The parent run comes from spark.openlineage.parent…, and the nominal time comes from the setting."""
    start = application_start(links=PARENT)
    found = sent(translated(start, query_started(run=RUN)), **{"nominal-time": "2026-01-31T03:00:00Z"})
    facets = found[0]["run"]["facets"]
    assert facets["parent"]["run"]["runId"] == PARENT["parentRun"]
    assert facets["parent"]["job"]["name"] == "nightly.spark"
    assert facets["nominalTime"]["nominalStartTime"] == "2026-01-31T03:00:00Z"
    query = found[1]["run"]["facets"]["parent"]
    assert query["run"]["runId"] == found[0]["run"]["runId"]
    assert query["root"]["run"]["runId"] == PARENT["parentRun"]


def test_send_test_sends_a_run_without_a_state() -> None:
    """`spark-events send-test` sends a run event without a state, to test the server."""
    assert types(sent([event_for("lineage", {})])) == [("TestEvent", "OTHER")]


@pytest.mark.parametrize(
    ("path", "requested"),
    [
        ("", "/api/v1/lineage"),
        ("/", "/api/v1/lineage"),
        ("/marquez", "/marquez/api/v1/lineage"),
        ("/marquez/", "/marquez/api/v1/lineage"),
        ("/marquez/api/v1/lineage", "/marquez/api/v1/lineage"),
    ],
)
def test_the_url_may_have_a_path(path: str, requested: str) -> None:
    """Requests go below the path of ``url``, for example of a gateway; the path of the API may be included."""
    with Receiver() as receiver:
        url = f"http://localhost:{receiver.port}{path}"
        with Running("openlineage", {"url": url, **IMPATIENT}) as running:
            running.deliver(translated(application_start()))
        assert {request.path for request in receiver.taken} == {requested}


def test_a_refused_run_event_drops_no_other_run_event() -> None:
    """If an event becomes several run events and the server refuses one, the others are sent, each once."""
    events = translated(application_start(), query_started(run=RUN), application_end("STOPPED"))
    script = [Answer(), Answer(), Answer(422, "no such job"), Answer(503), Answer()]
    with (
        Receiver(script) as receiver,
        Running("openlineage", {"url": receiver.url, **IMPATIENT}) as running,
    ):
        running.deliver(events)
        assert running.counters.dropped == {"rejected": 1}
        assert running.counters.delivered == len(events) - 1
        sent_events = [request.json for request in receiver.requests]
    assert types(sent_events)[2:] == [("shop.clicks", "COMPLETE"), ("shop", "COMPLETE"), ("shop", "COMPLETE")]


def test_the_api_key_is_a_bearer_token() -> None:
    with Receiver() as receiver:
        settings = {"url": receiver.url, "api-key": "s3cret", **IMPATIENT}
        with Running("openlineage", settings) as running:
            running.deliver(translated(application_start()))
        assert {request.headers["Authorization"] for request in receiver.taken} == {"Bearer s3cret"}


def test_a_failing_server_gets_every_run_event_once() -> None:
    """After a server error, the dispatcher retries. A run event that the server rejects is dropped and counted."""
    events = translated(application_start(), application_end("STOPPED"))
    script = [Answer(503, headers={"Retry-After": "0"}), Answer(500), Answer(200), Answer(422, "no such namespace")]
    with Receiver(script) as receiver:
        with Running("openlineage", {"url": receiver.url, **IMPATIENT}) as running:
            running.deliver(events)
            counters = running.counters
        states = [request.json["eventType"] for request in receiver.requests]
    assert states == ["START", "START", "START", "COMPLETE"]
    assert counters.delivered == len(events) - 1
