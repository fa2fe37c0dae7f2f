"""Tests of recoveries, and of the incidents that they close."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from fakes import (
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)
from property.applications import iso

from spark_events import Event, Severity
from spark_events.translate.deadlines.deadline_config import DeadlineConfig
from spark_events.translate.dispatch_reports import reporter_status
from spark_events.translate.incidents.incident_config import AlarmConfig, IdentityConfig
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

SINK = "java.io.IOException: No space left on device"


def translated(*records: dict[str, Any], translator: Translator | None = None) -> list[Event]:
    translator = translator or Translator()
    return [event for one in (application_start(), *records) for event in translator.translate(decoded(one))]


def closed(events: list[Event]) -> list[list[str]]:
    """Return the keys that each recovery closes."""
    found = [event.attributes for event in events if event.attributes.get("incident.role") == "recovery"]
    keys = [[str(one["incident.key"]), *json.loads(str(one.get("incident.more_keys", "[]")))] for one in found]
    return [[key for key in some if not key.endswith("/overdue")] for some in keys]


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
    assert closed(events) == [
        ["shop/query=clicks/failure", "shop/failure"],
        ["shop/query=clicks/failure"],
        ["shop/query=other/failure"],
    ]
    assert [event.name for event in events if event.attributes.get("incident.role") == "recovery"] == [
        "BatchCommitEvent"
    ] * 3


def commits_that_close_the_application(interval: float | None, *seconds: float, queries: int = 1) -> list[float]:
    """Return those of the times of commits, in seconds after the start, whose event closes the application."""
    translator = Translator(TranslateConfig(heartbeat_interval=interval))
    translated(*(query_started(f"r{n}", f"q{n}", f"n{n}") for n in range(queries)), translator=translator)
    found = []
    for batch, at in enumerate(seconds):
        n, time = batch % queries, START + round(at * 1000)
        record = query_progress(batch, f"r{n}", f"q{n}", name=f"n{n}", timestamp=iso(time), at=time)
        found += [at for keys in closed(translator.translate(decoded(record))) if "shop/failure" in keys]
    return found


def test_a_commit_after_a_pause_closes_the_application() -> None:
    """A watcher may report the loss of an earlier run after two heartbeat intervals without a commit of this run."""
    assert commits_that_close_the_application(60, 10, 20, 130, 251, 500, 560) == [10, 251, 500]
    assert commits_that_close_the_application(10, 10, 20, 35, 56, 60) == [10, 56]


@pytest.mark.parametrize("interval", [None, 60.0])
def test_a_commit_closes_the_application_every_ten_minutes(interval: float | None) -> None:
    """The sidecar of an earlier run may report its loss at once, whatever this run has committed before."""
    assert commits_that_close_the_application(interval, *range(10, 1830, 60)) == [10, 610, 1210, 1810]


def test_commits_in_the_wrong_order_and_a_changed_clock_delay_no_recovery() -> None:
    assert commits_that_close_the_application(60, 10, 20, 19, 21, 20, queries=2) == [10]
    assert commits_that_close_the_application(60, 4000, 400, 410, 4010, 4020) == [4000, 400, 4010]


def test_a_later_commit_does_not_close_overdue_work_of_the_application() -> None:
    """The first commit of a run closes what a killed run has left; later, the application itself may be overdue."""
    translator = Translator(TranslateConfig(deadline=DeadlineConfig(application=3600.0)))
    translated(query_started(), translator=translator)
    times = (START + 10_000, START + 700_000)
    records = [query_progress(n, timestamp=iso(at), at=at) for n, at in enumerate(times)]
    first, later = [
        [event.attributes for event in translator.translate(decoded(one)) if event.name == "BatchCommitEvent"]
        for one in records
    ]
    assert "shop/overdue" in json.loads(str(first[0]["incident.more_keys"]))
    assert later[0]["incident.key"] == "shop/failure"
    assert "incident.more_keys" not in later[0]


def jobs_of(group: str, *ends: bool, first: int = 0, description: str = "") -> list[dict[str, Any]]:
    """Return the records of jobs of a group, one after the other; each succeeds or fails."""
    found: list[dict[str, Any]] = []
    failure = {"chain": [{"type": "java.io.IOException", "message": "disk"}], "trace": SINK}
    properties = {
        **({"spark.jobGroup.id": group} if group else {}),
        **({"spark.job.description": description} if description else {}),
    }
    for number, succeeds in enumerate(ends, first):
        moment = {"job_id": number, "time": START + number, "at": START + number}
        end = {"kind": "job_end", **moment, **({} if succeeds else {"failure": failure})}
        found += [{"kind": "job_start", **moment, "properties": properties}, end]
    return found


ALL_JOBS = TranslateConfig(alarms=AlarmConfig(jobs=re.compile("^group")))


def test_a_successful_end_closes_the_application_and_queries_that_failed_or_had_no_data() -> None:
    events = translated(
        query_started(),
        query_terminated(),
        query_started("r2", "q2", "broken"),
        query_terminated("r2", "q2", exception=SINK),
        *jobs_of("nightly", True),
        application_end(program_exit_code=0),
    )
    assert closed(events) == [["shop/failure", "shop/query=clicks/failure", "shop/query=broken/failure"]]


@pytest.mark.parametrize(
    ("later", "status", "is_alarm"),
    [
        pytest.param([], "ENDED", True, id="nothing"),
        pytest.param(["job in b"], "ENDED", True, id="another-group"),
        pytest.param(["commit"], "ENDED", True, id="a-commit"),
        pytest.param(["job in a"], "FINISHED", False, id="the-same-group"),
        pytest.param(["job in a", "job in b"], "FINISHED", False, id="the-same-group-and-another"),
    ],
)
def test_only_a_job_of_the_same_group_is_a_success_after_a_failed_job(
    later: list[str], status: str, is_alarm: bool
) -> None:
    assert end_after(jobs_of("a", False), later) == (status, is_alarm)


@pytest.mark.parametrize("later", ["job in a", "job in b", "job", "commit"])
def test_any_success_follows_a_failed_job_without_a_group(later: str) -> None:
    assert end_after(jobs_of("", False), [later]) == ("FINISHED", False)


@pytest.mark.parametrize(
    ("later", "status"),
    [("", "ENDED"), ("job in a", "ENDED"), ("job", "ENDED"), ("commit", "ENDED"), ("own commit", "FINISHED")],
)
def test_only_a_commit_of_the_same_query_is_a_success_after_a_failed_query(later: str, status: str) -> None:
    """The failed query is an alarm already, so the end is none."""
    failed = [query_started("r1", "q1", "broken"), query_terminated("r1", "q1", exception=SINK, at=START)]
    assert end_after(failed, [later] if later else []) == (status, False)


def end_after(failed: list[dict[str, Any]], later: list[str]) -> tuple[str, bool]:
    """Return the status of an application that ends by stop(), and whether its end is an alarm."""
    stamp = iso(START + 5_000)
    successes = {
        "job in a": jobs_of("a", True, first=10),
        "job in b": jobs_of("b", True, first=20),
        "job": jobs_of("", True, first=30),
        "commit": [query_started("r9", "q9", "other"), query_progress(0, "r9", "q9", name="other", timestamp=stamp)],
        "own commit": [
            query_started("r2", "q1", "broken"),
            query_progress(0, "r2", "q1", name="broken", timestamp=stamp),
        ],
    }
    events = translated(*failed, *(one for name in later for one in successes[name]), application_end("STOPPED"))
    of_end = [event.attributes for event in events if event.attributes.get("spark.entity") == "application"]
    status = next(str(one["spark.status.new"]) for one in of_end if one.get("spark.status.old") == "RUNNING")
    return status, any(one.get("incident.role") == "alarm" for one in of_end)


def test_the_end_after_another_group_names_the_group_that_failed() -> None:
    events = translated(*jobs_of("a", False), *jobs_of("b", True, first=10), application_end("STOPPED"))
    assert events[-1].body == (
        "shop: application ended after job 0 failed, and nothing in its job group 'a' succeeded after it: "
        f"{SINK}; exit code unknown"
    )


def test_the_first_success_of_a_job_group_closes_what_an_earlier_run_left_open() -> None:
    events = translated(*jobs_of("group a", True, True), *jobs_of("other", True), translator=Translator(ALL_JOBS))
    assert closed(events) == [["shop/job=group a/failure"]]


def test_a_success_after_a_failed_job_closes_its_group() -> None:
    translator = Translator(ALL_JOBS)
    events = translated(*jobs_of("group a", False, True, False, True), application_end(), translator=translator)
    found = [e for e in events if e.attributes.get("incident.role") in ("alarm", "recovery")]
    assert [(e.severity.value, e.attributes["incident.role"]) for e in found] == [
        ("ERROR", "alarm"),
        ("DEBUG", "recovery"),
        ("ERROR", "alarm"),
        ("DEBUG", "recovery"),
        ("INFO", "recovery"),
    ]
    assert closed(events)[-1] == ["shop/failure"]


def test_the_success_of_a_job_that_started_before_the_failure_closes_nothing() -> None:
    (one, one_end), (two, two_end) = jobs_of("group a", True), jobs_of("group a", False, first=1)
    translator = Translator(ALL_JOBS)
    assert closed(translated(one, two, two_end, one_end, translator=translator)) == []


@pytest.mark.parametrize("groups", [1, 20, 21, 200])
def test_success_closes_every_job_group(groups: int) -> None:
    jobs = [record for n in range(groups) for record in jobs_of(f"group {n} \u00fc", False, first=n)]
    translator = Translator(ALL_JOBS)
    events = translated(*jobs, application_end("STOPPED", program_exit_code=0), translator=translator)
    assert closed(events) == [["shop/failure", *(f"shop/job=group {n} \u00fc/failure" for n in range(groups))]]


@pytest.mark.parametrize(
    ("group", "description", "subject"),
    [
        ("group a", "load", "group a"),
        ("group/a=b", "", "group%2Fa%3Db"),
        ("group 0c5b1c3e-7a34-4b9c-8f2d-0123456789ab", "load", "load"),
        ("other", "group of mine", "other"),
    ],
)
def test_a_failed_job_is_an_alarm_only_on_request(group: str, description: str, subject: str) -> None:
    """The key of a job contains its group or, if a server generates the groups, its description."""
    records = jobs_of(group, False, description=description)
    (alarm,) = [e for e in translated(*records, translator=Translator(ALL_JOBS)) if e.severity >= Severity.ERROR]
    assert alarm.attributes["incident.key"] == f"shop/job={subject}/failure"
    assert all(event.severity < Severity.ERROR for event in translated(*records))


def test_an_unsuccessful_end_closes_nothing() -> None:
    for ending in ("PROGRAM_FAILED", "SIGTERM", "EXITED"):
        assert closed(translated(application_end(ending))) == []


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
        ("alarm", "shop/job=nightly/overdue"),
        ("recovery", "shop/job=nightly/overdue"),
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
    assert [(one["spark.job.id"], one["incident.role"]) for one in edges] == [
        *[(0, "alarm"), (1, "member"), (2, "alarm")] * 2,
        *[(0, "member"), (1, "recovery"), (2, "recovery")],
    ]
    recovered = [one["incident.key"] for one in edges if one["incident.role"] == "recovery"]
    assert recovered == ["shop/job=nightly/overdue", "shop/job=export/overdue"]


def test_the_last_topic_behind_closes_the_incident_of_its_query() -> None:
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
        ("b", "member"),
        ("a", "member"),
        ("b", "recovery"),
    ]


def test_a_breaker_closes_its_own_incident() -> None:
    """The incident of a breaker closes when the breaker closes, not when the breaker admits one batch."""
    translator = Translator()
    translated(translator=translator)
    drafts = [reporter_status("audit", old, new, "why", START) for old, new in STATES]
    events = [translator.emit(draft) for draft in drafts]
    assert [event.attributes.get("incident.role") for event in events] == ["alarm", None, "recovery"]
    assert {event.attributes.get("incident.key") for event in events} == {None, "shop/reporter=audit/reporter"}


STATES = [("closed", "open"), ("open", "half-open"), ("half-open", "closed")]


def hang(rules: DeadlineConfig, *inspections: dict[str, Any], records: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return rule, severity, role and key of each deadline event."""
    events = translated(*records, *inspections, translator=Translator(TranslateConfig(deadline=rules)))
    found = [event for event in events if event.name == "DeadlineStatusChangeEvent"]
    return [
        (
            str(event.attributes["spark.deadline.rule"]),
            event.severity.value,
            str(event.attributes["incident.role"]),
            str(event.attributes["incident.key"]),
        )
        for event in found
    ]


def inspected(seconds: int, **about: Any) -> dict[str, Any]:
    at = START + seconds * 1000
    facts = {"queries": [], "jobs": [], "stages": [], "executors": 1, "cores": 1, "idle_since": START}
    return {"kind": "inspection", "seq": 9, "asked": at, "at": at, **facts, **about}


def test_one_hang_of_a_query_is_one_incident_whatever_rule_notices_it() -> None:
    rules = DeadlineConfig(batch=60.0, progress=60.0, resources=None)
    thread = {"run_id": "r1", "busy_since": START, "frames": ["a.B.c(B.java:1)"]}
    late = [inspected(seconds, queries=[thread]) for seconds in (61, 181)]
    records = [query_started()]
    key = "shop/query=clicks/overdue"
    found = hang(rules, *late, query_progress(0, at=START + 200_000), records=records)
    assert found == [
        ("batch", "WARN", "alarm", key),
        ("progress", "INFO", "member", key),
        ("batch", "ERROR", "alarm", key),
        ("progress", "INFO", "member", key),
        ("batch", "INFO", "member", key),
        ("progress", "INFO", "recovery", key),
    ]


@pytest.mark.parametrize(("job", "application"), [(60.0, 120.0), (120.0, 60.0)])
def test_a_hanging_job_and_its_application_are_one_incident(job: float, application: float) -> None:
    """An application that runs too long because a job hangs is the same hang, whatever limit passes first."""
    rules = DeadlineConfig(job=job, application=application, resources=None)
    start = {"kind": "job_start", "job_id": 3, "time": START, "at": START, "properties": {"spark.jobGroup.id": "n"}}
    end = {"kind": "job_end", "job_id": 3, "time": START + 150_000, "at": START + 150_000}
    late = [inspected(seconds, jobs=[[3]]) for seconds in (61, 121)]
    at = START + 151_000
    found = hang(rules, *late, end, application_end(at=at, time=at), records=[start])
    assert [(severity, role) for _, severity, role, _ in found] == [
        ("WARN", "alarm"),
        ("INFO", "member"),
        ("INFO", "member"),
        ("INFO", "recovery"),
    ]
    assert len({key for *_, key in found}) == 1


def test_a_restarted_sidecar_knows_the_incidents_of_overdue_work() -> None:
    """If two jobs of a group are overdue, the recovery of one after a restart closes nothing."""
    config = TranslateConfig(deadline=DeadlineConfig(job=60.0, resources=None))
    first = Translator(config)
    jobs = [{"job_id": n, "time": START, "properties": {"spark.jobGroup.id": "nightly"}} for n in range(2)]
    starts = [{"kind": "job_start", **one} for one in jobs]
    translated(*starts, inspected(61, jobs=[[0], [1]]), translator=first)
    first.deadlines.schedule()
    first.deadlines.tick(START + 10_000_000)
    question = first.deadlines.take_question()
    assert question is not None
    successor = Translator(config)
    for record in (application_start(), *starts, inspected(62, jobs=[[0], [1]], overdue=question["overdue"])):
        successor.restore(decoded(record))
    ends = [{"kind": "job_end", **one, "time": START + 70_000, "at": START + 70_000} for one in jobs]
    events = [event for one in ends for event in successor.translate(decoded(one))]
    found = [event.attributes["incident.role"] for event in events if event.name == "DeadlineStatusChangeEvent"]
    assert found == ["member", "recovery"]


def test_the_identity_is_part_of_every_key() -> None:
    """A run in another environment closes nothing here: all its keys differ."""
    identity = IdentityConfig("prod", ("team",), {"team": "a/b", "owner": "ada"})
    config = TranslateConfig(identity=identity)
    events = translated(query_started(), query_progress(0), translator=Translator(config))
    prefix = "environment=prod/team=a%2Fb/shop"
    assert closed(events) == [[f"{prefix}/query=clicks/failure", f"{prefix}/failure"]]
    tags = {"deployment.environment.name": "prod", "spark.tag.team": "a/b", "spark.tag.owner": "ada"}
    assert all(tags.items() <= event.attributes.items() for event in events)


def test_a_query_and_a_job_group_of_one_name_have_different_keys() -> None:
    translator = Translator(TranslateConfig(alarms=AlarmConfig(jobs=re.compile("clicks"))))
    events = translated(*jobs_of("clicks", False), query_started(), query_progress(0), translator=translator)
    (alarm,) = [event for event in events if event.attributes.get("incident.role") == "alarm"]
    assert alarm.attributes["incident.key"] == "shop/job=clicks/failure"
    assert closed(events) == [["shop/query=clicks/failure", "shop/failure"]]


@pytest.mark.parametrize("has_recovered", [False, True])
def test_an_earlier_run_that_is_reported_as_lost_late(has_recovered: bool) -> None:
    """A loss that is reported after this run's success is no alarm; otherwise, the next success closes it."""
    translator = Translator()
    lost = Translator().driver_lost(START, orderly=False)
    assert lost == []
    before = Translator()
    translated(translator=before)
    (event,) = before.driver_lost(START, orderly=False)
    translated(query_started(), *([query_progress(0)] if has_recovered else []), translator=translator)
    found = translator.predecessor_ended(event)
    assert found.event_id == event.event_id
    later = [one for record in (query_progress(1),) for one in translator.translate(decoded(record))]
    if has_recovered:
        assert (found.severity, found.attributes["incident.role"]) == (Severity.WARN, "member")
        assert closed(later) == []
    else:
        assert (found.severity, found.attributes["incident.role"]) == (Severity.FATAL, "alarm")
        assert closed(later) == [["shop/query=clicks/failure", "shop/failure"]]
