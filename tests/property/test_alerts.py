"""Property test: when all is quiet, each destination shows exactly the causes that still hold."""

from __future__ import annotations

from typing import Any

import hypothesis
from reporters.peers.alertmanager import AlertmanagerModel, incidents

from property.alert_rules import AlertRules, Destination
from spark_events.reporters.alerts.alertmanager import ALERTMANAGER
from spark_events.reporters.alerts.pagerduty import pagerduty
from spark_events.reporters.alerts.slack import SLACK


class PagerDuty:
    """PagerDuty's incidents."""

    form = pagerduty("R")

    def __init__(self) -> None:
        self._requests: list[dict[str, Any]] = []

    def post(self, body: Any, now: float) -> None:
        self._requests.append(body)

    def open_keys(self, now: float) -> set[str]:
        return {one.key.removeprefix("spark-events:") for one in incidents(self._requests) if one.is_open}


class ModelOfAlertmanager(AlertmanagerModel):
    """Alertmanager's alerts."""

    form = ALERTMANAGER


class Chat:
    """Chat, whose reader believes the last message about a key."""

    form = SLACK

    def __init__(self) -> None:
        self._is_open: dict[str, bool] = {}

    def post(self, body: Any, now: float) -> None:
        verdict, _, key = body["text"].split(": ", 2)
        self._is_open[key] = verdict != "Recovered"

    def open_keys(self, now: float) -> set[str]:
        return {key for key, is_open in self._is_open.items() if is_open}


class AtPagerDuty(AlertRules):
    def make(self) -> Destination:
        return PagerDuty()


class AtAlertmanager(AlertRules):
    def make(self) -> Destination:
        return ModelOfAlertmanager()


class InAChat(AlertRules):
    """A message about a recovery needs the file of the alert, and does not name all keys."""

    has_disk_faults = False
    has_several_keys = False

    def make(self) -> Destination:
        return Chat()


TestPagerDuty, TestAlertmanager, TestChat = (one.TestCase for one in (AtPagerDuty, AtAlertmanager, InAChat))
TestPagerDuty.settings = TestAlertmanager.settings = TestChat.settings = hypothesis.settings(stateful_step_count=40)
