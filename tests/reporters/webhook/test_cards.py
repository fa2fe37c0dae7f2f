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
    assert (fields["*Batch*"], fields["*Application*"]) == ("41 was not committed", "shop (app-7)")
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
    assert "shop (app-7), ended" in json.dumps(body)
    assert "http://h1:4040" not in json.dumps(body)


@pytest.mark.parametrize("form", [SLACK, TEAMS], ids=["slack", "teams"])
def test_no_text_stands_twice_in_a_message(form: AlertFormat) -> None:
    for event in (failure(), ended(failure()), failure(failure__root_cause=None)):
        (body,) = sent(form, event)
        texts = [text for text in texts_of(body) if len(text) > 6]
        assert [text for text in texts if sum(text in other for other in texts) > 1] == []


def test_pagerduty_has_the_stack_trace_once() -> None:
    (body,) = sent(pagerduty("R"), failure(failure__python_traceback=STACK + " " * 80))
    details = body["payload"]["custom_details"]
    assert [name for name, value in details.items() if "line 3" in str(value)] == ["exception.stacktrace"]
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
