"""Tests with a real Alertmanager: clocks that differ, and generated sequences of failures and recoveries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from fakes import eventually
from hypothesis.stateful import run_state_machine_as_test
from property.alert_rules import AlertRules, Destination

from reporters.peers.alertmanager import Alertmanager
from reporters.webhook.sending import Sending, alert
from spark_events.reporters.alerts.alertmanager import ALERTMANAGER
from spark_events.reporters.alerts.states import AlertsConfig

SKEWS = (-86_400.0, -3600.0, -2.0, -0.2, 0.2, 2.0, 3600.0, 86_400.0)


@pytest.fixture(scope="module")
def alertmanager() -> Iterator[Alertmanager]:
    with Alertmanager() as started:
        yield started


@pytest.mark.parametrize("closing", SKEWS)
@pytest.mark.parametrize("opening", SKEWS)
def test_an_alert_opens_and_closes_whatever_the_drivers_clocks(
    opening: float, closing: float, alertmanager: Alertmanager, tmp_path: Path
) -> None:
    """One driver opens the alert, another driver without its file closes it, and a third failure opens it again."""
    name = f"skew {opening} {closing}"
    drivers: list[Any] = [
        Sending(ALERTMANAGER, tmp_path / str(skew), skew=skew, start=time.time(), post=alertmanager.post)
        for skew in (opening, closing)
    ]
    with drivers[0] as first, drivers[1] as second:
        first.fail(**{"spark.app.name": name})
        assert len(alertmanager.active(name)) == 1
        second.recover(**{"spark.app.name": name})
        assert alertmanager.active(name) == []
        second.fail(**{"spark.app.name": name})
        assert len(alertmanager.active(name)) == 1


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_an_alert_with_a_short_expiry_is_open_whatever_the_drivers_clock(
    skew: float, alertmanager: Alertmanager
) -> None:
    config = AlertsConfig(expires_after=60.0)
    with Sending(ALERTMANAGER, skew=skew, start=time.time(), post=alertmanager.post, config=config) as run:
        run.fail(**{"spark.app.name": f"short {skew}"})
    assert len(alertmanager.active(f"short {skew}")) == 1


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_events_that_nothing_closes_are_accepted_whatever_the_drivers_clock(
    skew: float, alertmanager: Alertmanager
) -> None:
    with Sending(ALERTMANAGER, start=time.time(), post=alertmanager.post) as run:
        run.send(alert(time.time() + skew, "", **{"incident.role": "", "spark.app.name": f"own {skew}"}))
    assert len(alertmanager.active(f"own {skew}")) == 1


def test_a_recovery_without_an_alert_opens_none(alertmanager: Alertmanager) -> None:
    with Sending(ALERTMANAGER, skew=3600.0, start=time.time(), post=alertmanager.post) as run:
        run.recover(**{"spark.app.name": "healthy"})
        run.fail(**{"spark.app.name": "healthy"})
    eventually(lambda: alertmanager.notifications("healthy"))
    assert [status for status, _ in alertmanager.notifications("healthy")] == ["firing"]
    assert len(alertmanager.active("healthy")) == 1


def test_generated_failures_and_recoveries(alertmanager: Alertmanager) -> None:
    """The rules of the property test, against the real server; its clock is that of this machine."""
    number = 0

    class Real:
        form = ALERTMANAGER

        def __init__(self) -> None:
            nonlocal number
            number += 1
            self._run = str(number)

        def post(self, body: Any, now: float) -> None:
            labelled = [{**one, "labels": {**one["labels"], "spark_app_name": f"rules {self._run}"}} for one in body]
            alertmanager.post(labelled)

        def open_keys(self, now: float) -> set[str]:
            return {one["labels"]["incident_key"] for one in alertmanager.active(f"rules {self._run}")}

    class AtRealAlertmanager(AlertRules):
        start = time.time()

        def make(self) -> Destination:
            return Real()

    run_state_machine_as_test(AtRealAlertmanager, settings=hypothesis.settings(max_examples=10, stateful_step_count=30))
    # Each example has compared the open alerts with the causes that hold, at least at its end.
    assert number >= 10
