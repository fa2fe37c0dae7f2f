"""Tests of job tags, of the context of lineage, and of the driver's place on Kubernetes, as attributes."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, application_start, decoded

from spark_events.translate.job_tags import job_tags
from spark_events.translate.translator import Translator

SESSION, OPERATION = "839c8b37-e5f1-4496-83ce-6ca71c9ee9bb", "017d1ebc-5fb8-4545-b00e-2d6ac82a7004"
CONNECT = f"SparkConnect_OperationTag_User_ada_Session_x_Session_{SESSION}_Operation_{OPERATION}"
OF_CONNECT = {
    "spark.connect.user_id": "ada_Session_x",
    "spark.connect.session_id": SESSION,
    "spark.connect.operation_id": OPERATION,
}


@pytest.mark.parametrize(
    ("tags", "attributes", "session"),
    [
        ("", {}, ""),
        ("nightly", {"spark.job.tags": '["nightly"]'}, ""),
        ("a,b,a", {"spark.job.tags": '["a","b"]'}, ""),
        (f"spark-session-{SESSION},spark-session-{SESSION}-execution-root-id-7", {}, SESSION),
        (f"spark-session-{SESSION}-thread-{OPERATION}-my-tag", {"spark.job.tags": '["my-tag"]'}, SESSION),
        ("spark-session-mine", {"spark.job.tags": '["spark-session-mine"]'}, ""),
        (CONNECT, OF_CONNECT, ""),
        (
            f"{CONNECT},SparkConnect_SessionTag_User_ada_Session_{SESSION}_Tag_nightly,spark-session-{OPERATION}",
            {**OF_CONNECT, "spark.job.tags": '["nightly"]'},
            OPERATION,
        ),
    ],
)
def test_tags_are_told_apart(tags: str, attributes: dict[str, str], session: str) -> None:
    found = job_tags(tags)
    assert (found.attributes, found.session) == (attributes, session)


def test_events_of_jobs_and_stages_have_the_tags() -> None:
    translator = Translator()
    properties = {"spark.job.tags": f"nightly,{CONNECT}", "spark.openlineage.context": "orders/v2"}
    failed = {"chain": [{"type": "java.io.IOException", "message": "x"}]}
    stage = {"stage_id": 3, "attempt": 0, "name": "s", "tasks": 1, "time": START}
    records: list[dict[str, Any]] = [
        application_start(),
        {"kind": "job_start", "job_id": 1, "time": START, "properties": properties, "stages": [3]},
        {"kind": "stage_submitted", "properties": properties, **stage},
        {"kind": "stage_completed", "totals": {"started": START, "ended": START}, **stage},
        {"kind": "job_end", "job_id": 1, "time": START, "failure": failed},
    ]
    _, *events = [event for record in records for event in translator.translate(decoded(record))]
    assert {event.class_scope for event in events} == {"spark.job", "spark.stage"}
    for event in events:
        expected = {**OF_CONNECT, "spark.job.tags": '["nightly"]', "openlineage.context": "orders/v2"}
        assert {key: event.attributes.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("links", "place"),
    [
        ({}, {}),
        ({"namespace": "streaming"}, {}),
        ({"pod": "p", "namespace": "s", "node": "n"}, {"pod": "p", "namespace": "s", "node": "n"}),
        ({"pod": "p", "submitInDriver": "true"}, {"pod": "p", "container": "spark-kubernetes-driver"}),
        ({"pod": "p", "submitInDriver": "true", "container": "c"}, {"pod": "p", "container": "c"}),
    ],
)
def test_every_event_has_the_driver_s_place(links: dict[str, str], place: dict[str, str]) -> None:
    translator = Translator()
    records = [application_start(links=links), {"kind": "job_start", "job_id": 1, "time": START}]
    events = [event for record in records for event in translator.translate(decoded(record))]
    for event in events:
        found = {key: value for key, value in event.attributes.items() if key.startswith("k8s.")}
        assert found == {f"k8s.{key}.name": value for key, value in place.items()}
