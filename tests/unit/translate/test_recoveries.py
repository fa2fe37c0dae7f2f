"""Tests of recoveries, and of the incidents that they close."""

from __future__ import annotations

import json
from typing import Any

from fakes import (
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)

from spark_events import Event
from spark_events.translate.config import TranslateConfig
from spark_events.translate.deadlines.config import DeadlineConfig
from spark_events.translate.dispatch_reports import reporter_status
from spark_events.translate.translator import Translator

SINK = "java.io.IOException: No space left on device"


def translated(*records: dict[str, Any], translator: Translator | None = None) -> list[Event]:
    translator = translator or Translator()
    events = [event for one in (application_start(), *records) for event in translator.translate(decoded(one))]
    return [*events, *translator.decide()]


def closed(events: list[Event]) -> list[list[str]]:
    """Return the keys that each recovery closes."""
    found = [event.attributes for event in events if event.attributes.get("incident.role") == "recovery"]
    return [[str(one["incident.key"]), *json.loads(str(one.get("incident.more_keys", "[]")))] for one in found]


def test_the_first_commit_of_each_run_closes_the_query() -> None:
    """The first commit of a run closes the query's incident; the application's first commit closes its incident."""
    events = translated(
        query_started(),
        *map(query_progress, range(3)),
        query_terminated(exception=SINK),
        query_started("r2"),
        query_progress(3, "r2"),
        query_progress(4, "r2"),
        query_started("r3", "q2", "other"),
        query_progress(0, "r3", "q2", name="other"),
    )
    assert closed(events) == [["shop/clicks/failure", "shop/failure"], ["shop/clicks/failure"], ["shop/other/failure"]]
    assert [event.name for event in events if event.attributes.get("incident.role") == "recovery"] == [
        "BatchCommitEvent"
    ] * 3


def test_a_successful_end_closes_incidents_without_a_failure_in_this_run() -> None:
    """An application's success closes incidents of named job groups, and of queries that did not fail in this run."""
    groups = ["nightly", "0c5b1c3e-7a34-4b9c-8f2d-0123456789ab", "nightly"]
    jobs = [
        {"kind": "job_start", "job_id": n, "time": START, "properties": {"spark.jobGroup.id": group}}
        for n, group in enumerate(groups)
    ]
    events = translated(
        query_started(),
        query_terminated(),
        query_started("r2", "q2", "broken"),
        query_terminated("r2", "q2", exception=SINK),
        *jobs,
        application_end(),
    )
    assert closed(events) == [["shop/failure", "shop/clicks/failure", "shop/nightly/failure"]]


def test_an_unsuccessful_end_closes_nothing() -> None:
    for ending in ("PROGRAM_FAILED", "SIGTERM", "EXITED"):
        assert closed(translated(application_end(ending))) == []


def test_the_keys_of_many_groups_are_limited() -> None:
    """The number of keys in a recovery is limited, because each key causes a request."""
    groups = [{"spark.jobGroup.id": f"group {n} \u00fc"} for n in range(100)]
    jobs = [{"kind": "job_start", "job_id": n, "time": START, "properties": one} for n, one in enumerate(groups)]
    (keys,) = closed(translated(*jobs, application_end()))
    assert len(keys) == 21


def test_a_restarted_sidecar_knows_which_runs_have_committed() -> None:
    """A restarted sidecar repeats no recovery: the next commit of a restored run is not the first commit."""
    successor = Translator()
    for record in (application_start(), query_started(), query_progress(0)):
        successor.restore(decoded(record))
    assert closed(translated(query_progress(1), translator=successor)) == []


def test_a_deadline_closes_when_the_work_is_on_time() -> None:
    translator = Translator(TranslateConfig(deadline=DeadlineConfig(job=60.0)))
    job = {"job_id": 3, "time": START, "properties": {"spark.jobGroup.id": "nightly"}}
    about = {"kind": "inspection", "seq": 9, "asked": START + 61_000, "at": START + 61_000, "idle_since": START}
    late = {**about, "queries": [], "jobs": [[3]], "stages": [], "executors": 1, "cores": 1}
    events = translated(
        {"kind": "job_start", **job}, late, {"kind": "job_end", **job, "at": START + 90_000}, translator=translator
    )
    edges = [event.attributes for event in events if event.name == "DeadlineStatusChangeEvent"]
    assert [(one["incident.role"], one["incident.key"]) for one in edges] == [
        ("alarm", "shop/nightly/deadline-job"),
        ("recovery", "shop/nightly/deadline-job"),
    ]


def test_the_last_overdue_job_of_a_group_closes_its_incident() -> None:
    """If jobs of a group are overdue, the recovery of one job closes nothing, until no job of the group is overdue."""
    translator = Translator(TranslateConfig(deadline=DeadlineConfig(job=60.0)))
    groups = ["nightly", "nightly", "export"]
    jobs = [{"job_id": n, "time": START, "properties": {"spark.jobGroup.id": one}} for n, one in enumerate(groups)]
    about = {"kind": "inspection", "seq": 9, "idle_since": START, "queries": [], "stages": [], "jobs": [[0], [1], [2]]}
    # Each job is reported twice: at the limit, and at three times the limit.
    late = [{**about, "asked": at, "at": at, "executors": 1, "cores": 1} for at in (START + 61_000, START + 181_000)]
    starts = [{"kind": "job_start", **one} for one in jobs]
    ends = [{"kind": "job_end", **one, "at": START + 190_000} for one in jobs]
    events = translated(*starts, *late, *ends, translator=translator)
    edges = [event.attributes for event in events if event.name == "DeadlineStatusChangeEvent"]
    assert [one.get("incident.role") for one in edges] == ["alarm"] * 6 + [None, "recovery", "recovery"]
    assert closed(events) == [["shop/nightly/deadline-job"], ["shop/export/deadline-job"]]


def test_the_last_topic_behind_closes_the_incident_of_its_query() -> None:
    """If two topics of a query have a backlog, the incident closes when both have recovered."""
    translator = Translator(TranslateConfig(deadline=DeadlineConfig(lag=10, lag_time=60.0)))

    def progress(batch: int, a: int, b: int) -> dict[str, Any]:
        read, latest = {"a": {"0": 5}, "b": {"0": 5}}, {"a": {"0": a}, "b": {"0": b}}
        source = {"description": "K", "startOffset": read, "endOffset": read, "latestOffset": latest, "numInputRows": 4}
        return {**query_progress(batch, sources=[source]), "seq": 8}

    thread = {"run_id": "r1", "busy_since": START, "frames": ["a.B.c(B.java:1)"]}
    about = {"kind": "inspection", "seq": 9, "idle_since": START, "stages": [], "jobs": [], "queries": [thread]}
    late = {**about, "asked": START + 90_000, "at": START + 90_000, "executors": 1, "cores": 1}
    records = [query_started(), progress(0, 500, 500), late, progress(1, 5, 700), progress(2, 5, 5)]
    events = translated(*records, translator=translator)
    edges = [event.attributes for event in events if event.name == "DeadlineStatusChangeEvent"]
    assert [(one["spark.deadline.topic"], one.get("incident.role")) for one in edges] == [
        ("a", "alarm"),
        ("b", "alarm"),
        ("a", None),
        ("b", "recovery"),
    ]


def test_a_breaker_closes_its_own_incident() -> None:
    """The incident of a breaker closes when the breaker closes, not when the breaker admits one batch."""
    translator = Translator()
    translated(translator=translator)
    drafts = [reporter_status("audit", old, new, "why", START) for old, new in STATES]
    events = [event for draft in drafts for event in translator.emit(draft)]
    assert [event.attributes.get("incident.role") for event in events] == ["alarm", None, "recovery"]
    assert {event.attributes.get("incident.key") for event in events} == {None, "shop/audit/reporter"}


STATES = [("closed", "open"), ("open", "half-open"), ("half-open", "closed")]
