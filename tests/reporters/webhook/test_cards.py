"""Tests of the content of alerts: cause first, nothing twice, within the limits of each service."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import msgspec
import pytest
from slack_sdk.models.blocks import Block

from reporters.webhook.sending import KEY, NOW, Sending, alert, recovery
from spark_events import Event, Severity
from spark_events.reporters.alerts.alert_requests import AlertFormat
from spark_events.reporters.alerts.alertmanager import ALERTMANAGER
from spark_events.reporters.alerts.card import failure_facts, title_of
from spark_events.reporters.alerts.pagerduty import pagerduty
from spark_events.reporters.alerts.slack import SLACK
from spark_events.reporters.alerts.teams import TEAMS
from spark_events.reporters.email.message import EMAIL
from spark_events.translate.enrichers import TypeEnricher
from spark_events.translate.failures import Diagnostics

CAUSE = "ValueError: payment 1003 has no currency"
STACK = f"Traceback (most recent call last):\n  File a.py, line 3\n{CAUSE}"
CARD_SCHEMA = json.loads((files("adaptive_cards") / "schemas" / "schema-1.4.json").read_text("utf-8"))


def failure(body: str = f"shop: query 'clicks' failed at batch 41: {CAUSE}", /, **changes: Any) -> Event:
    """Return the alarm of a failed query; ``changes`` may remove attributes with None."""
    attributes: dict[str, Any] = {
        "spark.app.id": "app-7",
        "spark.streaming.query.name": "clicks",
        "spark.streaming.query.committed_offsets": '["{\\"logOffset\\":40}"]',
        "spark.batch.id": 41,
        "failure.root_cause": CAUSE,
        "failure.location": "/jobs/a.py:3 in f",
        "failure.class": "USER_CODE",
        "failure.retry_useful": False,
        "exception.stacktrace": STACK,
        "exception.message": f"{CAUSE}\n{STACK}",
        "host.name": "h1",
        "spark.ui.url": "http://h1:4040",
        "spark.history.url": "http://history/app-7",
        "incident.runbook_url": "http://wiki/clicks",
        "spark.tag.team": "payments",
        "deployment.environment.name": "prod",
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    made = alert(NOW, KEY, Severity.ERROR, **{name: value for name, value in attributes.items() if value is not None})
    return msgspec.structs.replace(made, body=body, class_scope="spark.streaming.query")


def ended(event: Event) -> Event:
    return msgspec.structs.replace(event, name="JobFailureEvent", class_scope="spark.application")


def sent(form: AlertFormat, *events: Event) -> list[Any]:
    with Sending(form, least=Severity.TRACE) as run:
        run.send(*events)
    return run.bodies


def texts_of(thing: Any) -> list[str]:
    """Return all texts of a message that a person sees."""
    if isinstance(thing, dict):
        shown = {key: value for key, value in thing.items() if key not in ("type", "$schema", "url", "fallback")}
        return [text for value in shown.values() for text in texts_of(value)]
    if isinstance(thing, list):
        return [text for one in thing for text in texts_of(one)]
    return [thing] if isinstance(thing, str) else []


@pytest.mark.parametrize(
    ("body", "cause", "title"),
    [
        (
            f"shop: query 'clicks' failed at batch 41: {CAUSE}",
            CAUSE,
            f"{CAUSE} – shop: query 'clicks' failed at batch 41",
        ),
        (
            f"shop: application failed with exit code 1: {CAUSE} (a.py:3)",
            CAUSE,
            f"{CAUSE} – shop: application failed with exit code 1 (a.py:3)",
        ),
        ("shop: failed: java.io.IOException: full", "java.io.IOException: full", "IOException: full – shop: failed"),
        (
            "shop: failed: a cause that the body cuts off after sixty characters or so, with …",
            "a cause that the body cuts off after sixty characters or so, with more words",
            "a cause that the body cuts off after sixty characters or so, with more words – shop: failed",
        ),
        ("shop: driver died", None, "shop: driver died"),
        ("query 'clicks' is overdue", None, "shop: query 'clicks' is overdue"),
        ("shop: failed after query 'x'", "line one\nline two", "line one line two – shop: failed after query 'x'"),
        ("shop: failed: " + "x" * 200, "x" * 200, "x" * 119 + "… – shop: failed"),
    ],
)
def test_a_title_begins_with_the_cause(body: str, cause: str | None, title: str) -> None:
    assert title_of(failure(body, failure__root_cause=cause)) == title


@pytest.mark.parametrize(("useful", "said"), [(True, "may help"), (False, "does not help"), (None, "unknown whether")])
def test_a_chat_says_what_to_do_next(useful: bool | None, said: str) -> None:
    (body,) = sent(SLACK, failure(failure__retry_useful=useful))
    fields = dict(one["text"].split("\n", 1) for one in body["attachments"][0]["blocks"][0]["fields"])
    assert fields["*Rerun*"].startswith(said)
    assert list(fields) == [
        f"*{one}*" for one in ("Code", "Rerun", "Batch", "Committed", "Application", "Host", "Environment", "team")
    ]
    assert (fields["*Batch*"], fields["*Application*"]) == ("41 was not committed", "shop (app-7), still running")
    buttons = [one["text"]["text"] for one in body["attachments"][0]["blocks"][1]["elements"]]
    assert buttons == ["Runbook", "History", "Spark UI"]


def test_a_card_has_the_recommended_setting() -> None:
    setting = "spark.executor.memory 4g → 6g"
    assert failure_facts(failure(failure__recommendation=setting))["Try"] == setting
    assert not failure_facts(failure())["Try"]


def test_an_end_with_an_unknown_exit_code_has_the_line_of_the_failure_before_it() -> None:
    before = {"failure.preceding.location": "/jobs/payments.py:16 in book"}
    (body,) = sent(SLACK, failure(failure__location=None, **before))
    assert "/jobs/payments.py:16 in book" in json.dumps(body)


@pytest.mark.parametrize("form", [SLACK, TEAMS, pagerduty("R"), ALERTMANAGER, EMAIL])
def test_an_application_that_has_ended_has_no_link_to_its_ui(form: AlertFormat) -> None:
    (body,) = sent(form, ended(failure()))
    assert ("app-7, ended" if form is ALERTMANAGER else "shop (app-7), ended") in json.dumps(body)
    assert "http://h1:4040" not in json.dumps(body)


def diagnosed(scope: str, body: str, trace: str, /, **changes: Any) -> Event:
    """Return an alarm with the attributes that the translation derives from a stack trace."""
    details = {
        name.replace(".", "__"): value
        for name, value in Diagnostics([TypeEnricher()]).of_text(trace).attributes.items()
    }
    return msgspec.structs.replace(failure(body, **{**details, **changes}), class_scope=scope)


PYTHON = f'Traceback (most recent call last):\n  File "/jobs/a.py", line 3, in f\n    charge(row)\n{CAUSE}\n'
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/jobs/a.py", line 12, in main
  |     raise ExceptionGroup("two calls failed", errors)
  | ExceptionGroup: two calls failed (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: payment 1003 has no currency
    +---------------- 2 ----------------
    | TimeoutError: no answer within 30 s
    +------------------------------------
"""
JAVA = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most \
recent failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.1 executor 1): java.io.IOException: No space left on device
\tat com.acme.Shop.write(Shop.scala:12)
Caused by: java.io.IOException: No space left on device
\tat com.acme.Shop.write(Shop.scala:12)
"""
ENRICHED = f"""spark_events.errors.EnrichmentError: enrichment 'score' failed for 3 of 100 rows
Traceback (most recent call last):
  File "/jobs/score.py", line 8, in score
    answer = await client.post(row)
httpx.ReadTimeout: no answer of the service within {"a" * 200} 30 s
"""
NO_FAILURE: dict[str, Any] = dict.fromkeys(
    f"{part}__{name}"
    for part, names in {
        "failure": ("root_cause", "location", "class", "retry_useful"),
        "exception": ("stacktrace", "message"),
        "spark": ("batch__id", "streaming__query__committed_offsets"),
    }.items()
    for name in names
)
NO_BATCH = {"spark__batch__id": None, "spark__streaming__query__committed_offsets": None}
#: One alarm of each kind.
FAILURES = {
    "by hand": failure(),
    "without a cause": failure(failure__root_cause=None),
    "query": diagnosed("spark.streaming.query", f"shop: query 'clicks' failed at batch 41: {CAUSE} (a.py:3)", PYTHON),
    "application": ended(
        diagnosed("spark.application", f"Application 'shop' failed with exit code 1: {CAUSE}", PYTHON, **NO_BATCH)
    ),
    "job": diagnosed("spark.job", "Job 7 of group 'nightly' failed: java.io.IOException: No space", JAVA, **NO_BATCH),
    "exception group": diagnosed("spark.application", "Application 'shop' failed: two calls failed", GROUP, **NO_BATCH),
    "enrichment": diagnosed("spark.streaming.query", "Query 'clicks' failed: enrichment 'score' failed", ENRICHED),
    "overdue": msgspec.structs.replace(
        failure(
            "Batch 41 of query 'clicks' has run for 12 min",
            **NO_FAILURE,
            incident__key="shop/query=clicks/overdue",
            spark__deadline__location="/jobs/orders.py:16 in book",
        ),
        name="DeadlineStatusChangeEvent",
    ),
    "lost driver": msgspec.structs.replace(
        failure(
            "Application 'shop' is lost: its driver died without reporting its end",
            **NO_FAILURE,
            spark__app__end_reason="DRIVER_DIED",
            spark__status__new="LOST",
        ),
        name="JobStatusChangeEvent",
        class_scope="spark.application",
    ),
}
FORMS = [SLACK, TEAMS, pagerduty("R"), ALERTMANAGER, EMAIL]
NAMES = ["slack", "teams", "pagerduty", "alertmanager", "email"]


def parts_of(form: AlertFormat, body: Any) -> list[str]:
    """Return the texts of an alert, without its stack trace, which contains much of them."""
    if form in (SLACK, TEAMS):
        return [text for text in texts_of(body) if text not in ("Application", "Committed")]
    if form is EMAIL:
        lines = body["text"].partition("\nEvent: ")[0].split("\n")
        return [body["subject"], *(line.partition(": ")[2] for line in lines)]
    if form is ALERTMANAGER:
        (made,) = body
        annotations = {**made["annotations"]}
        told = [line.partition(": ")[2] for line in annotations.pop("description").split("\n")]
        labels = [value for name, value in made["labels"].items() if name != "incident_key"]
        assert not set(labels) & set(told)
        return [*annotations.values(), *told]
    details = body["payload"]["custom_details"]
    texts = (str(value) for name, value in details.items() if name != "exception.stacktrace")
    return [body["payload"]["summary"], *texts]


@pytest.mark.parametrize("event", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_no_text_stands_twice_in_a_message(form: AlertFormat, event: Event) -> None:
    """An identifier, such as the name of a query, may also stand in a sentence."""
    (body,) = sent(form, event)
    texts = [text for text in parts_of(form, body) if len(text) > 6]
    assert [text for text in texts if sum(text in other for other in texts) > 1] == []


@pytest.mark.parametrize("event", FAILURES.values(), ids=FAILURES)
def test_a_detail_of_pagerduty_is_a_fact_or_an_attribute(event: Event) -> None:
    (body,) = sent(pagerduty("R"), event)
    details = body["payload"]["custom_details"]
    facts = {"Environment": "prod", "team": "payments", "Host": "h1"}
    assert facts.items() <= details.items()
    assert not {"deployment.environment.name", "spark.tag.team", "host.name", "failure.class"} & details.keys()
    assert details["incident.key"] == event.attributes["incident.key"]
    assert [
        value for name, value in details.items() if name.startswith("spark.app.") and name[10:] in ("id", "name")
    ] == []


@pytest.mark.parametrize("event", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("form", FORMS, ids=NAMES)
def test_an_alert_says_whether_the_application_has_ended(form: AlertFormat, event: Event) -> None:
    """Work that has failed says so too: its application may go on."""
    is_over = event.name == "JobFailureEvent" and event.class_scope == "spark.application"
    is_over |= event.attributes.get("spark.status.new") == "LOST"
    text = json.dumps(sent(form, event))
    assert ("app-7), ended" in text or "app-7, ended" in text) is is_over
    assert ("app-7), still running" in text or "app-7, still running" in text) is not is_over


def test_a_recovery_and_an_event_without_an_application_do_not_say_whether_it_runs() -> None:
    """A recovery may be sent late."""
    with Sending(SLACK) as run:
        run.send(alert(), recovery(NOW, **{"spark.app.id": "app-7"}))
    assert "running" not in json.dumps(run.bodies)


def test_pagerduty_has_the_stack_trace_once() -> None:
    """Spark repeats the traceback of a task in the job's exception and in its cause."""
    trace = (
        f"a.SparkException: {STACK}\n\tat a.B.c(B.java:1)\nCaused by: a.PythonException: {STACK}\n\tat a.D.e(D.java:2)"
    )
    changes = {
        "failure__python_traceback": trace + " " * 80,
        "exception__stacktrace": trace,
        "exception__message": STACK,
    }
    (body,) = sent(pagerduty("R"), failure(**changes))
    details = body["payload"]["custom_details"]
    assert [name for name, value in details.items() if "line 3" in str(value)] == ["exception.stacktrace"]
    assert details["exception.stacktrace"].count("line 3") == 1
    assert "Caused by: a.PythonException: the traceback above" in details["exception.stacktrace"]
    assert details["Rerun"] == "does not help until the cause is corrected (USER_CODE)"
    assert body["payload"]["summary"].startswith(CAUSE)


@pytest.mark.parametrize("form", [SLACK, TEAMS], ids=["slack", "teams"])
def test_failures_that_are_sent_together_are_one_message_with_a_list(form: AlertFormat) -> None:
    """A recovery, a second failure with the same key and other events are separate messages."""
    events = [msgspec.structs.replace(alert(NOW, f"shop/query=q{n}/failure"), event_id=f"e{n}") for n in range(3)]
    bodies = sent(form, *events, recovery(NOW, "shop/query=q1/failure"), events[0])
    assert len(bodies) == 2
    texts = texts_of(bodies[0]) if form is TEAMS else bodies[0]["text"].split("\n")
    listed = [text for text in texts if "query=q" in text]
    assert [f"query=q{n}/" in text for n, text in enumerate(listed)] == [True] * 3
    assert "ERROR: 3 failures" in texts


@pytest.mark.parametrize("form", [SLACK, TEAMS, EMAIL], ids=["slack", "teams", "email"])
def test_a_list_tells_environments_and_kinds_of_alerts_apart(form: AlertFormat) -> None:
    """Work of several environments may share a chat; overdue work has not failed."""
    about = {"spark.app.name": "<b>shop</b> <!channel>"}
    key = "environment={}/shop/query=clicks/{}"
    events = [
        alert(NOW, key.format(name, kind), **about, **{"deployment.environment.name": name})
        for name, kind in (("prod", "failure"), ("staging", "failure"), ("prod", "overdue"))
    ]
    (body,) = sent(form, *events)
    text = body["text"] if "text" in body else "\n".join(texts_of(body))
    assert text.count("environment: prod") == 2
    assert text.count("environment: staging") == 1
    assert "ERROR: 3 alerts" in f"{text}{body.get('subject')}"
    assert ("<!channel>" in text) is (form is not SLACK)


def test_a_list_that_was_refused_is_sent_again_whole() -> None:
    """An alert counts as open only after the destination has accepted the list."""
    events = [alert(NOW, f"shop/query=q{n}/failure") for n in range(2)]
    answers = [OSError("no route"), None]

    def post(_: Any) -> None:
        if (error := answers.pop(0)) is not None:
            raise error

    with Sending(SLACK, post=post) as run:
        with pytest.raises(OSError, match="no route"):
            run.send(*events)
        run.send(*events)
        run.send(*events)
        assert [body["text"].count("query=q") for body in run.bodies] == [2]


@pytest.mark.parametrize("url", [10, 2_900, 3_100])
@pytest.mark.parametrize("part", ["&<>", "](", "x", "*", "\n", "🦊", "&amp;", "\u202e"])
def test_every_message_is_valid_and_within_the_limits(part: str, url: int) -> None:
    """Slack: the limits that its SDK checks, and 40,000 characters. Teams: the schema of cards, and 28 KB."""
    long = {f"spark__tag__t{n}": part * 7_000 for n in range(60)}
    long |= {f"failure__{name}": part * 7_000 for name in ("root_cause", "location", "source_line")}
    event = failure(part * 7_000, **long, incident__runbook_url="http://wiki/" + "x" * url)
    others = [msgspec.structs.replace(event, event_id=str(n)) for n in range(20)]
    keyed = [type(event.attributes)({**event.attributes, "incident.key": str(n)}) for n in range(20)]
    several = [msgspec.structs.replace(one, attributes=about) for one, about in zip(others, keyed, strict=True)]
    plain = [msgspec.structs.replace(one, attributes=type(event.attributes)({})) for one in others]
    for message in sent(SLACK, event, *plain) + sent(SLACK, *several):
        assert sum(map(len, texts_of(message))) <= 40_000
        for attachment in message.get("attachments", ()):
            for block in attachment["blocks"]:
                parsed = Block.parse(block)
                assert parsed is not None
                parsed.to_dict()
    for message in sent(TEAMS, event, *plain[: TEAMS.most]) + sent(TEAMS, *several):
        jsonschema.validate(message["attachments"][0]["content"], CARD_SCHEMA)
        assert len(msgspec.json.encode(message)) <= 28_000
