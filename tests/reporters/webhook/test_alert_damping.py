"""Tests of what is sent: cooldown, flapping work, clocks that differ or jump, several drivers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reporters.peers.alertmanager import AlertmanagerModel, incidents
from reporters.webhook.sending import KEY, MINUTE, NOW, Sending, alert, recovery
from spark_events import Severity
from spark_events.reporters.alerts.alert_requests import AlertFormat
from spark_events.reporters.alerts.alertmanager import ALERTMANAGER
from spark_events.reporters.alerts.pagerduty import pagerduty
from spark_events.reporters.alerts.slack import SLACK
from spark_events.reporters.alerts.teams import TEAMS
from spark_events.reporters.email.message import EMAIL

PAGERDUTY = pagerduty("R")
OVERDUE = "shop/query=clicks/overdue"


def actions(sending: Sending) -> list[str]:
    return [body["event_action"] for body in sending.bodies]


def facts(body: Any) -> str:
    """Return the facts of a Slack message, without the application and the number of openings."""
    fields = [field["text"].replace("*\n", ":* ") for field in body["attachments"][0]["blocks"][0]["fields"]]
    return "\n".join(text for text in fields if not text.startswith(("*Application", "*Times")))


def test_a_repeated_failure_is_sent_once_per_cooldown_with_the_number_of_failures(tmp_path: Path) -> None:
    """The cooldown continues in the next run; after the expiry, the alert is new."""
    sent = []
    with Sending(SLACK, tmp_path) as run:
        for minutes in (0, 3, 3, 6, 8 * 1440):
            run.passes(minutes * MINUTE)
            with Sending(SLACK, tmp_path, loop=run.loop) as next_run:
                next_run.fail()
                sent.append([facts(body) for body in next_run.bodies])
    assert sent == [[""], [], [], ["*Failures:* 4 in 12 min"], [""]]


def test_an_alert_is_sent_at_once_if_it_becomes_more_severe() -> None:
    with Sending(ALERTMANAGER) as run:
        run.fail(OVERDUE, Severity.WARN)
        run.passes(1)
        run.fail(OVERDUE, Severity.ERROR)
        run.fail(OVERDUE, Severity.WARN)
    assert [body[0]["labels"]["severity"] for body in run.bodies] == ["warning", "critical"]


# --- flapping --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "most"), [(PAGERDUTY, 7), (ALERTMANAGER, 7), (SLACK, 7), (TEAMS, 7)], ids=lambda value: None
)
def test_a_query_that_fails_and_commits_every_minute_is_damped(form: AlertFormat, most: int, tmp_path: Path) -> None:
    """Forty failures and recoveries in forty minutes: two alerts, one message per cooldown, two recoveries."""
    with Sending(form, tmp_path) as run:
        for _ in range(40):
            run.fail()
            run.passes(MINUTE / 2)
            run.recover()
            run.passes(MINUTE / 2)
        assert len(run.bodies) == most - 1
        run.passes(9 * MINUTE)
        assert len(run.bodies) == most - 1
        run.passes(2 * MINUTE)
        assert len(run.bodies) == most
        run.passes(1440 * MINUTE)
        assert len(run.bodies) == most
    if form is SLACK:
        assert facts(run.bodies[2]) == "*Failures:* 2 in 60 s, flapping"
        assert facts(run.bodies[-1]).startswith("*Failures:* 40 in ")
        assert run.bodies[-1]["text"].startswith("Recovered: ")
    if form is PAGERDUTY:
        assert [one.is_open for one in incidents(run.bodies)] == [False, False]


def test_an_application_that_restarts_and_fails_again_is_damped(tmp_path: Path) -> None:
    """The alert stays open while each run commits and then fails."""
    bodies = []
    with Sending(PAGERDUTY, tmp_path) as run:
        for _ in range(40):
            run.passes(MINUTE)
            with Sending(PAGERDUTY, tmp_path, loop=run.loop) as next_run:
                next_run.recover()
                next_run.fail()
                next_run.close()
                bodies += next_run.bodies
    triggers = [body for body in bodies if body["event_action"] == "trigger"]
    assert len(incidents(bodies)) == 2
    assert len(triggers) == 2 + 3


def test_work_that_fails_more_rarely_than_the_cooldown_does_not_flap() -> None:
    with Sending(PAGERDUTY) as run:
        for _ in range(3):
            run.fail()
            run.passes(5 * MINUTE)
            run.recover()
            run.passes(6 * MINUTE)
    assert actions(run) == ["trigger", "resolve"] * 3


def test_failures_that_arrive_late_do_not_flap() -> None:
    """After an outage of the destination, events of several days arrive within a second."""
    day = 1440 * MINUTE
    with Sending(PAGERDUTY) as run:
        for number in range(3):
            run.send(alert(NOW + number * day), recovery(NOW + number * day + MINUTE))
    assert actions(run) == ["trigger", "resolve"] * 3


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_deferred_recovery_is_sent_when_the_process_ends_or_by_the_next_one(is_killed: bool, tmp_path: Path) -> None:
    with Sending(PAGERDUTY, tmp_path) as run:
        for _ in range(2):
            run.fail()
            run.recover()
        assert actions(run) == ["trigger", "resolve", "trigger"]
        if not is_killed:
            run.close()
            assert actions(run)[3:] == ["resolve"]
    run.passes(5 * MINUTE)
    with Sending(PAGERDUTY, tmp_path, loop=run.loop) as next_run:
        next_run.passes(4 * MINUTE)
        assert actions(next_run) == []
        next_run.passes(2 * MINUTE)
        assert actions(next_run) == ["resolve"] * is_killed


def test_an_unrelated_process_does_not_end_the_damping(tmp_path: Path) -> None:
    """Other applications report to the same destination while a query flaps; each message is sent once."""
    with Sending(SLACK, tmp_path) as run:
        for _ in range(3):
            run.fail()
            run.recover()
        others = [Sending(SLACK, tmp_path, loop=run.loop) for _ in range(3)]
        for other in others[:2]:
            other.open()
        others[0].close()
        run.passes(5 * MINUTE)
        run.fail()
        run.recover()
        others[2].open()
        run.passes(20 * MINUTE)
        assert [len(one.bodies) for one in (run, *others)] == [4, 0, 0, 0]


def test_a_deferred_recovery_is_repeated_until_the_destination_accepts_it() -> None:
    failures = [OSError("unreachable")] * 3

    def post(body: Any) -> None:
        if body["event_action"] == "resolve" and run.loop.time() > MINUTE and failures:
            raise failures.pop()

    with Sending(PAGERDUTY, post=post) as run:
        for _ in range(2):
            run.fail()
            run.recover()
        run.passes(10 * MINUTE + 1)
        assert actions(run)[3:] == []
        run.passes(2 * MINUTE)
        assert actions(run)[3:] == ["resolve"]


def test_a_failure_cancels_the_deferred_recovery() -> None:
    with Sending(PAGERDUTY) as run:
        for _ in range(3):
            run.fail()
            run.recover()
        run.passes(MINUTE)
        run.fail()
        run.passes(1440 * MINUTE)
        run.close()
    assert incidents(run.bodies)[-1].is_open


# --- how often ------------------------------------------------------------------------------------


def times(body: Any) -> str:
    """Return how often the alert was opened, according to a Slack message."""
    fields = [field["text"] for field in body["attachments"][0]["blocks"][0]["fields"]]
    return next((text.partition("\n")[2] for text in fields if text.startswith("*Times*")), "")


@pytest.mark.parametrize("pause", [20 * MINUTE, 60 * MINUTE, 1440 * MINUTE, 6 * 1440 * MINUTE])
def test_a_message_says_the_n_th_time_after_the_alert_was_closed(pause: float, tmp_path: Path) -> None:
    """Each failure is one of another run, after the recovery of the one before."""
    bodies = []
    with Sending(SLACK, tmp_path) as run:
        for _ in range(4):
            with Sending(SLACK, tmp_path, loop=run.loop) as one:
                one.fail()
                one.passes(MINUTE)
                one.recover()
                bodies += one.bodies
            run.passes(pause)
    since = "time since 2027-01-15 08:00 UTC"
    assert [times(body) for body in bodies] == ["", "", f"2nd {since}", "", f"3rd {since}", "", f"4th {since}", ""]
    # Apart from that, each alert is new.
    assert {facts(body) for body in bodies[::2]} == {""}


def test_an_alert_is_forgotten_after_its_expiry_without_a_failure(tmp_path: Path) -> None:
    with Sending(SLACK, tmp_path) as run:
        for days in (0, 6, 6, 8):
            run.passes(days * 1440 * MINUTE)
            run.fail()
            run.passes(20 * MINUTE)
            run.recover()
    assert [times(body).partition(" ")[0] for body in run.bodies[::2]] == ["", "2nd", "3rd", ""]


def test_failures_of_an_open_alert_are_one_opening(tmp_path: Path) -> None:
    """Openings of a flapping alert count too, as in a report."""
    with Sending(SLACK, tmp_path) as run:
        for _ in range(3):
            run.fail()
            run.passes(11 * MINUTE)
        run.recover()
        run.passes(60 * MINUTE)
        for _ in range(2):
            run.fail()
            run.passes(MINUTE)
            run.recover()
    opened = [body for body in run.bodies if body["text"].startswith("ERROR")]
    assert [times(body).partition(" ")[0] for body in opened] == ["", "", "", "2nd", "3rd"]


def test_a_late_copy_of_a_failure_is_no_further_time(tmp_path: Path) -> None:
    """A process that was killed may deliver an event again when its alert was closed long ago."""
    failure = alert(NOW)
    with Sending(SLACK, tmp_path) as run:
        run.send(failure)
        run.passes(60 * MINUTE)
        run.recover()
        run.passes(60 * MINUTE)
        run.send(failure)
        assert len(run.bodies) == 2
        run.fail()
    assert times(run.bodies[-1]).startswith("2nd time since ")


@pytest.mark.parametrize("form", [PAGERDUTY, ALERTMANAGER, SLACK, TEAMS, EMAIL])
def test_every_channel_says_the_n_th_time(form: AlertFormat) -> None:
    with Sending(form) as run:
        for _ in range(2):
            run.fail()
            run.recover()
            run.passes(60 * MINUTE)
    assert ["2nd time since 2027-01-15 08:00 UTC" in json.dumps(body) for body in run.bodies] == [0, 0, 1, 0]


@pytest.mark.parametrize("form", [SLACK, TEAMS, EMAIL])
def test_a_list_of_alerts_says_the_n_th_time_of_each(form: AlertFormat) -> None:
    """However long the titles are."""
    long = {"failure.root_cause": "ValueError: " + "x" * 500}
    with Sending(form) as run:
        run.fail(OVERDUE)
        run.recover(OVERDUE)
        run.passes(60 * MINUTE)
        bodies = [msgspec.structs.replace(alert(run.wall, key, **long), body="y" * 500) for key in (KEY, OVERDUE)]
        run.send(*bodies)
        run.passes(12 * MINUTE)
        run.send(
            *(
                msgspec.structs.replace(one, event_id=f"{n}", observed_ts_millis=round(run.wall * 1000))
                for n, one in enumerate(bodies)
            )
        )
    assert json.dumps(run.bodies[-2]).count("(2nd time since 2027-01-15 08:00 UTC)") == 1
    assert json.dumps(run.bodies[-1]).count("(failures: 2 in 12 min)") == 1
    assert json.dumps(run.bodies[-1]).count("(overdue: for 12 min, 2nd time since 2027-01-15 08:00 UTC)") == 1


# --- clocks ----------------------------------------------------------------------------------------


def test_a_clock_that_is_set_back_suppresses_nothing(tmp_path: Path) -> None:
    """One failure every ten minutes; after the first one, the clock is set back by an hour."""
    with Sending(SLACK, tmp_path) as run:
        run.fail()
        run.skew -= 3600
        for _ in range(7):
            run.passes(10 * MINUTE)
            run.fail()
    assert len(run.bodies) == 8


def test_times_of_events_that_go_back_suppress_nothing(tmp_path: Path) -> None:
    with Sending(SLACK, tmp_path) as run:
        run.send(alert(NOW), *(alert(NOW - 3600 + number * 600) for number in range(1, 8)))
    assert len(run.bodies) == 8


@pytest.mark.parametrize(("ahead", "sent"), [(300.0, 6), (3600.0, 7), (86_400.0 * 365, 7)])
def test_an_alert_of_a_driver_whose_clock_is_ahead(ahead: float, sent: int, tmp_path: Path) -> None:
    """The difference extends the cooldown once, and only by less than the cooldown."""
    with Sending(SLACK, tmp_path, skew=ahead) as first:
        first.fail()
    with Sending(SLACK, tmp_path, loop=first.loop) as second:
        for _ in range(7):
            second.passes(10 * MINUTE)
            second.fail()
        assert len(second.bodies) == sent
        second.recover()
        assert second.bodies[-1]["text"].startswith("Recovered: ")


@pytest.mark.parametrize(("ahead", "minutes"), [(-3600.0, 0), (3600.0, 1), (0.0, 11)])
def test_a_recovery_that_was_deferred_by_another_clock_is_not_late(ahead: float, minutes: int, tmp_path: Path) -> None:
    """A time in the future has an unknown age, so the recovery does not wait longer."""
    with Sending(PAGERDUTY, tmp_path, skew=ahead) as first:
        for _ in range(2):
            first.fail()
            first.recover()
    with Sending(PAGERDUTY, tmp_path, loop=first.loop) as second:
        for _ in range(minutes):
            assert actions(second) == []
            second.passes(MINUTE)
        second.passes(1)
        assert actions(second) == ["resolve"]


# --- several drivers -------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["driver", "hand"])
def test_a_failure_after_another_driver_has_closed_the_alert_is_sent(by: str, tmp_path: Path) -> None:
    with Sending(PAGERDUTY, tmp_path) as first, Sending(PAGERDUTY, tmp_path, loop=first.loop) as second:
        first.fail()
        if by == "driver":
            second.recover()
        else:
            for file in tmp_path.iterdir():
                file.unlink()
        first.fail()
        assert actions(first) == ["trigger", "trigger"]
        assert actions(second) == ["resolve"] * (by == "driver")


def test_a_healthy_run_in_another_environment_closes_nothing(tmp_path: Path) -> None:
    """Only the environment differs, in the keys and in the labels."""
    model = AlertmanagerModel()
    production = {"deployment.environment.name": "prod"}
    with Sending(ALERTMANAGER, tmp_path, post=lambda body: model.post(body, NOW)) as run:
        run.fail("environment=prod/shop/failure", **production)
        run.recover("environment=staging/shop/failure", **{"deployment.environment.name": "staging"})
        assert model.open_keys(NOW) == {"environment=prod/shop/failure"}
        run.fail("environment=staging/shop/failure")
        assert len(run.bodies) == 3


def test_own_events_of_two_environments_are_two_alerts(tmp_path: Path) -> None:
    with Sending(PAGERDUTY, tmp_path) as run:
        for environment in ("prod", "staging"):
            about = {"incident.role": "", "deployment.environment.name": environment}
            run.send(alert(NOW, "", **about))
    assert [body["dedup_key"] for body in run.bodies] == [
        "spark-events:environment=prod/shop/Test",
        "spark-events:environment=staging/shop/Test",
    ]


def test_a_late_copy_of_a_failure_does_not_open_its_alert_again(tmp_path: Path) -> None:
    """A lost application may be reported by a watcher and by the next run, with the same event id."""
    lost = alert(NOW)
    with Sending(PAGERDUTY, tmp_path) as watcher, Sending(PAGERDUTY, tmp_path, loop=watcher.loop) as run:
        watcher.send(lost)
        run.recover()
        run.send(lost)
        watcher.send(lost)
        assert actions(watcher) + actions(run) == ["trigger", "resolve"]


# --- one hang ----------------------------------------------------------------------------------------


def test_one_hang_is_one_alert_that_is_escalated_and_closed() -> None:
    """Both deadline rules are on: a chat receives the warning, the escalation and the recovery."""
    with Sending(SLACK, least=Severity.WARN) as run:
        for severity, minutes in ((Severity.WARN, 0), (Severity.ERROR, 30)):
            run.passes(minutes * MINUTE)
            run.fail(OVERDUE, severity)
            run.fail(OVERDUE, Severity.WARN, **{"incident.role": "member"})
        run.passes(5 * MINUTE)
        run.recover(OVERDUE)
    assert [body["text"].partition(":")[0] for body in run.bodies] == ["WARN", "ERROR", "Recovered"]
    assert [facts(body) for body in run.bodies] == ["", "*Overdue:* for 30 min", "*Overdue:* for 35 min"]


def test_a_hang_that_is_reported_late_has_its_real_duration() -> None:
    """The events of half an hour arrive within a second, after an outage of the destination."""
    with Sending(SLACK, least=Severity.WARN) as run:
        run.send(alert(NOW, OVERDUE, Severity.WARN), alert(NOW + 30 * MINUTE, OVERDUE))
    assert [facts(body) for body in run.bodies] == ["", "*Overdue:* for 30 min"]


@pytest.mark.parametrize("form", [PAGERDUTY, ALERTMANAGER], ids=["pagerduty", "alertmanager"])
@pytest.mark.parametrize("role", ["member", "consequence"])
def test_parts_of_a_failure_open_no_alert(form: AlertFormat, role: str) -> None:
    with Sending(form, least=Severity.INFO) as run:
        run.fail(**{"incident.role": role})
    assert run.bodies == []


def test_a_member_without_an_open_alert_is_a_line_in_a_chat() -> None:
    with Sending(SLACK, least=Severity.WARN) as run:
        run.fail(KEY, Severity.WARN, **{"incident.role": "member"})
    assert [body["text"] for body in run.bodies] == [f"WARN: shop: {KEY}"]


def test_each_failure_counts_but_a_lasting_problem_does_not() -> None:
    """A query that fails again has failed twice; a circuit breaker that is reported again is still open."""
    with Sending(SLACK, least=Severity.WARN) as run:
        for key in (KEY, "shop/reporter=audit/reporter"):
            run.fail(key)
        run.passes(12 * MINUTE)
        for key in (KEY, "shop/reporter=audit/reporter"):
            run.fail(key)
        for _ in range(2):
            run.recover(OVERDUE)
            run.fail(OVERDUE, Severity.WARN)
    assert [facts(body) for body in run.bodies[2:4]] == ["*Failures:* 2 in 12 min", "*Unavailable:* for 12 min"]
    assert facts(run.bodies[-1]) == "*Overdue:* 2 times, flapping"
