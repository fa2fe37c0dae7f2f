"""Requests of Alertmanager's API v2.

Alertmanager compares the times in a request with its own clock, and merges alerts with equal labels:

- An alert is over if its end is not later than Alertmanager's clock.
- If the start or the end of a new alert lies within the stored alert, the two are merged, and unless the new alert is
  over, the later end applies. Otherwise the new alert replaces the stored one.
- An alert whose start is later than its end is refused. Without an end, the end is Alertmanager's time plus
  ``resolve_timeout``.

Therefore a recovery ends its alert at a fixed time long ago: with the time of the driver's clock, a clock that is one
second ahead would keep the alert open until the alert's first end. The annotation ``ended`` contains the real time.
"""

from __future__ import annotations

import re
from typing import Any

from spark_events.event import Severity
from spark_events.event.text import rfc3339
from spark_events.reporters.alerts.alert_requests import AlertFormat, AlertRequest
from spark_events.reporters.alerts.card import card_of, tags_of
from spark_events.reporters.alerts.incident import application_of, client_of, kind_of
from spark_events.reporters.alerts.store import Notice

__all__ = ["ALERTMANAGER", "LONG_AGO"]

#: End of alerts that are over, whatever the difference between the clocks.
LONG_AGO = rfc3339(0)
_NAMES = {"failure": "SparkFailure", "overdue": "SparkDeadline", "reporter": "SparkReporter"}
_INVALID = re.compile(r"[^a-zA-Z0-9_]")


def _requests(notice: Notice) -> list[AlertRequest]:
    # The labels contain the environment, the tags and the application's name.
    event, card = notice.event, card_of(notice, with_tags=False, with_name=False)
    links = dict(card.links)
    about = {
        "summary": card.title,
        "description": "\n".join(f"{name}: {value}" for name, value in card.facts.items()),
    }
    if notice.is_recovery:
        # These annotations replace those of the open alert.
        end = {"annotations": {**about, "ended": rfc3339(event.observed_ts_millis)}, "endsAt": LONG_AGO}
        # Close the alerts of both severities: severity is a label, and the recovery does not know the alert's severity.
        alerts = [
            {"labels": _labels(notice, key, severity), **end}
            for key in notice.keys
            for severity in ("warning", "critical")
        ]
        return [AlertRequest(notice.keys, alerts)]
    annotations = {
        **about,
        "runbook_url": links.pop("Runbook", ""),
        "event_id": event.event_id,
        **{name.lower().replace(" ", "_"): url for name, url in links.items()},
    }
    made: dict[str, Any] = {
        "labels": _labels(notice, notice.keys[0], "critical" if event.severity >= Severity.ERROR else "warning"),
        "annotations": {name: value for name, value in annotations.items() if value},
        "generatorURL": next(iter(links.values()), ""),
    }
    if notice.can_close:
        # Prometheus repeats its alerts, but a failed application cannot. Therefore the end is far in the future.
        made |= {"startsAt": rfc3339(event.observed_ts_millis), "endsAt": rfc3339(notice.expires_ms)}
    # An alert that no event closes has neither start nor end, so that Alertmanager's clock alone determines them.
    return [AlertRequest(notice.keys, [made])]


def _labels(notice: Notice, key: str, severity: str) -> dict[str, str]:
    """Return the labels, which identify the alert; those of a known alert do not change while it is open."""
    identity = notice.identity(key)
    own = {
        "alertname": _NAMES.get(kind_of(key), "SparkEvent"),
        "severity": severity,
        "incident_key": key,
        "spark_app_name": application_of(identity),
        **client_of(identity),
    }
    return {**tags_of(identity, own, "environment", _label), **own}


def _label(name: str) -> str:
    """Return a valid name of a label."""
    valid = _INVALID.sub("_", name)
    return valid if valid and not valid[0].isdigit() else f"_{valid}"


ALERTMANAGER = AlertFormat(_requests)
