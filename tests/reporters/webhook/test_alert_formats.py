"""Tests of the requests for PagerDuty, Alertmanager, Slack and Teams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reporters.awkward import AWKWARD, awkward_event
from reporters.webhook.sending import KEY, MINUTE, NOW, Sending, alert, recovery
from spark_events import Event, Severity
from spark_events.reporters.alerts.alert_requests import AlertFormat
from spark_events.reporters.alerts.alertmanager import ALERTMANAGER
from spark_events.reporters.alerts.pagerduty import pagerduty
from spark_events.reporters.alerts.slack import SLACK
from spark_events.reporters.alerts.teams import TEAMS

PAGERDUTY = pagerduty("R")
LINKS = {"incident.runbook_url": "https://wiki/shop", "spark.ui.url": "http://h:4040", "spark.history.url": "no link"}
TAGS = {"deployment.environment.name": "prod", "spark.tag.team": "payments", "spark.tag.severity": "gold"}


def sent(form: AlertFormat, *events: Event) -> list[Any]:
    with Sending(form, least=Severity.TRACE) as run:
        run.send(*events)
    return run.bodies


def test_pagerduty_receives_cause_line_and_links() -> None:
    """Keys and summaries stay within PagerDuty's limits."""
    detail = {
        "failure.root_cause": "ValueError: no",
        "failure.location": "/jobs/a.py:3 in f",
        "failure.source_line": "raise ValueError(row)",
        "error.type": "ValueError",
        "host.name": "h1",
        "spark.streaming.query.name": "clicks",
    }
    made = alert(NOW, "k" * 300, Severity.FATAL, **detail, **LINKS)
    one, other = sent(PAGERDUTY, msgspec.structs.replace(made, body="x" * 3000), alert(NOW, KEY, Severity.WARN))
    assert (one["routing_key"], one["event_action"], len(one["dedup_key"])) == ("R", "trigger", 255)
    payload = one["payload"]
    assert (payload["severity"], payload["source"], payload["component"]) == ("critical", "h1", "shop / clicks")
    assert (payload["class"], payload["summary"][:8], len(payload["summary"])) == ("ValueError", "ValueErr", 1024)
    assert payload["custom_details"]["Code"] == "/jobs/a.py:3 in f: raise ValueError(row)"
    assert one["links"] == [
        {"href": "https://wiki/shop", "text": "Runbook"},
        {"href": "http://h:4040", "text": "Spark UI"},
    ]
    assert (other["dedup_key"], other["payload"]["severity"]) == ("spark-events:shop/query=clicks/failure", "warning")
    assert other["payload"]["timestamp"] == "2027-01-15T08:00:00.000Z"


def test_alertmanager_receives_labels_annotations_and_an_end() -> None:
    """An alert that no event closes has neither start nor end."""
    own = msgspec.structs.replace(alert(NOW, "", **{"incident.role": ""}), body="own")
    (made,), (other,) = sent(ALERTMANAGER, alert(NOW, **LINKS), own)
    assert made["labels"] == {
        "alertname": "SparkFailure",
        "severity": "critical",
        "incident_key": "shop/query=clicks/failure",
        "spark_app_name": "shop",
    }
    assert made["annotations"]["runbook_url"] == "https://wiki/shop"
    assert (made["generatorURL"], made["annotations"]["summary"]) == (
        "http://h:4040",
        "shop: shop/query=clicks/failure",
    )
    assert (made["startsAt"], made["endsAt"]) == ("2027-01-15T08:00:00.000Z", "2027-01-22T09:00:00.000Z")
    assert (other["labels"]["alertname"], other["labels"]["incident_key"]) == ("SparkEvent", "shop/Test")
    assert not {"startsAt", "endsAt"} & other.keys()


@pytest.mark.parametrize(
    ("kind", "name"), [("failure", "SparkFailure"), ("overdue", "SparkDeadline"), ("reporter", "SparkReporter")]
)
def test_the_name_of_an_alert_follows_from_its_kind(kind: str, name: str) -> None:
    ((opened,), closed) = sent(
        ALERTMANAGER, alert(NOW, f"shop/query=a%2Fb/{kind}"), recovery(NOW, f"shop/query=a%2Fb/{kind}")
    )
    assert opened["labels"]["alertname"] == name
    assert opened["labels"] in [one["labels"] for one in closed]
    assert {one["endsAt"] for one in closed} == {"1970-01-01T00:00:00.000Z"}
    assert {one["annotations"]["ended"] for one in closed} == {"2027-01-15T08:00:00.000Z"}


# --- identity --------------------------------------------------------------------------------------


def test_alertmanager_has_a_label_for_the_environment_and_for_each_tag() -> None:
    """The names are valid, no tag hides a label, and two tags never share a label."""
    odd = {
        "spark.tag.cost-centre": "7",
        "spark.tag.cost centre": "8",
        "spark.tag.1st": "x",
        "spark.tag.environment": "y",
    }
    ((made,),) = sent(ALERTMANAGER, alert(NOW, **TAGS, **odd))
    assert made["labels"] == {
        "alertname": "SparkFailure",
        "severity": "critical",
        "incident_key": "shop/query=clicks/failure",
        "spark_app_name": "shop",
        "environment": "prod",
        "team": "payments",
        "severity_": "gold",
        "cost_centre": "8",
        "cost_centre_": "7",
        "_1st": "x",
        "environment_": "y",
    }


@pytest.mark.parametrize(
    ("user", "session"),
    [
        ("spark.connect.user_id", "spark.connect.session_id"),
        ("spark.thriftserver.user", "spark.thriftserver.session_id"),
    ],
)
def test_alertmanager_can_route_by_user_and_session(user: str, session: str) -> None:
    """The labels name the client of a shared server, and the recovery closes the alert with these labels."""
    (opened,), closed = sent(ALERTMANAGER, alert(NOW, **{user: "ada", session: "839c8b37"}), recovery(NOW + 1))
    assert (opened["labels"]["user"], opened["labels"]["session"]) == ("ada", "839c8b37")
    assert opened["labels"] in [one["labels"] for one in closed]


def test_changed_tags_close_the_alert_of_the_earlier_run(tmp_path: Path) -> None:
    """Labels identify an alert, so a known alert keeps its labels until it is closed."""
    with Sending(ALERTMANAGER, tmp_path) as run:
        run.fail(**{"spark.tag.team": "a"})
        run.passes(11 * MINUTE)
        run.fail(**{"spark.tag.team": "b"})
        run.recover(**{"spark.tag.team": "b"})
        run.passes(11 * MINUTE)
        run.fail(**{"spark.tag.team": "b"})
    teams = [[one["labels"]["team"] for one in body] for body in run.bodies]
    assert teams == [["a"], ["a"], ["a", "a"], ["b"]]


def test_pagerduty_has_the_environment_and_the_tags_as_details() -> None:
    (made,) = sent(PAGERDUTY, alert(NOW, "environment=prod/shop/failure", **TAGS))
    details = made["payload"]["custom_details"]
    assert {"Environment": "prod", "team": "payments", "severity": "gold"}.items() <= details.items()
    assert not TAGS.keys() & details.keys()
    assert made["dedup_key"] == "spark-events:environment=prod/shop/failure"


@pytest.mark.parametrize("is_recovery", [True, False])
def test_chats_have_the_environment_and_the_tags_as_fields(is_recovery: bool) -> None:
    tags = {**TAGS, "spark.tag.<!here>": "<!channel>", "spark.tag.Time": "tea"}
    events = [alert(NOW, **tags), recovery(NOW, **tags)]
    (section, *_) = sent(SLACK, *events)[is_recovery]["attachments"][0]["blocks"]
    shown = {field["text"] for field in section["fields"]}
    assert {"*Environment*\nprod", "*team*\npayments", "*&lt;!here&gt;*\n&lt;!channel&gt;"} <= shown
    card = sent(TEAMS, *events)[is_recovery]["attachments"][0]["content"]["body"][1]
    fields = {one["title"]: one["value"] for one in card["facts"]}
    assert {"Environment": "prod", "team": "payments", "Time_": "tea"}.items() <= fields.items()


# --- text ------------------------------------------------------------------------------------------


def test_a_chat_may_have_all_events(tmp_path: Path) -> None:
    """Each alert is a separate message; a recovery without an open alert is a plain line."""
    plain = [
        msgspec.structs.replace(alert(NOW, "", **{"incident.role": role}), body=role) for role in ("a", "consequence")
    ]
    with Sending(TEAMS, tmp_path, least=Severity.INFO) as run:
        run.send(plain[0], recovery(), alert(), plain[1])
    texts = [[block.get("text") for block in body["attachments"][0]["content"]["body"]] for body in run.bodies]
    key = "shop: shop/query=clicks/failure"
    assert [text for message in texts for text in message if text] == [
        "ERROR: a",
        f"INFO: {key}",
        f"ERROR: {key}",
        "ERROR: consequence",
    ]


@pytest.mark.parametrize(
    "form", [SLACK, TEAMS, PAGERDUTY, ALERTMANAGER], ids=["slack", "teams", "pagerduty", "alertmanager"]
)
def test_every_character_of_an_alert_arrives(form: AlertFormat) -> None:
    """Strings in an event cannot mention people or create links."""
    text = {"failure.root_cause": f"[x](http://evil) {AWKWARD}", "incident.role": "alarm", "incident.key": "a\ud800/b"}
    (body,) = sent(form, msgspec.structs.replace(awkward_event(text), severity=Severity.ERROR))
    assert "emoji:🦊" in json.dumps(body, ensure_ascii=False)
    if form in (SLACK, TEAMS):
        assert "<!channel>" not in json.dumps(body) or form is TEAMS
        assert "[x](http" not in json.dumps(body) or form is SLACK
