"""Signals about an application (start, alive, success, failure, end), and the requests that send them to a monitor."""

from __future__ import annotations

import enum
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit
from uuid import NAMESPACE_URL, uuid5

import msgspec

from spark_events.event import Event
from spark_events.event.heartbeat import HEARTBEAT, INTERVAL
from spark_events.event.text import rfc3339

#: How long the watchdog alert outlives a heartbeat, in heartbeat intervals; tolerates two missing heartbeats.
_INTERVALS = 3
#: End of an alert that is over, in the past of every clock.
_LONG_AGO = rfc3339(0)


class Signal(enum.Enum):
    """State of an application in a ping."""

    START = "start"
    ALIVE = "alive"
    SUCCESS = "success"
    FAILURE = "failure"
    #: The application has ended with an unknown outcome.
    END = "end"


_OF_STATUS = {
    "RUNNING": Signal.START,
    "FINISHED": Signal.SUCCESS,
    "FAILED": Signal.FAILURE,
    "LOST": Signal.FAILURE,
    "CANCELLED": Signal.END,
    "ENDED": Signal.END,
}


def signal_of(event: Event) -> Signal | None:
    """Return the signal of an event; None for an event that is not a signal."""
    if event.name == HEARTBEAT:
        return Signal.ALIVE
    if event.name != "JobStatusChangeEvent" or event.attributes.get("spark.entity") != "application":
        return None
    return _OF_STATUS.get(str(event.attributes.get("spark.status.new")))


class Ping(NamedTuple):
    """One POST request to a monitor."""

    url: str
    body: bytes
    content_type: str


def _healthchecks(url: str, signal: Signal, event: Event, _: int | None) -> Ping:
    """Return a ping for healthchecks.io: the URL of the check, with a suffix for start, failure and log signals."""
    suffix = {Signal.START: "/start", Signal.FAILURE: "/fail", Signal.END: "/log"}.get(signal, "")
    # Send the run id, so that the monitor can measure runs that overlap.
    about = event.attributes
    run = uuid5(NAMESPACE_URL, f"{about.get('spark.app.id')} {about.get('spark.app.attempt_id')}")
    body = event.body.encode("utf-8", "replace")
    return Ping(_below(url, suffix, f"rid={run}"), body, "text/plain; charset=utf-8")


def _pushgateway(url: str, signal: Signal, event: Event, _: int | None) -> Ping:
    """Return metrics in Prometheus' text format, grouped by the application's name."""
    at = event.observed_ts_millis / 1000
    is_running = signal in (Signal.START, Signal.ALIVE)
    metrics: dict[str, Any] = {"last_seen_timestamp_seconds": at, "running": int(is_running)}
    if signal is not Signal.ALIVE:
        metrics[f"last_{signal.value}_timestamp_seconds"] = at
    for key, name in _GAUGES.items():
        if key in event.attributes:
            metrics[name] = event.attributes[key]
    lines = [f"# TYPE spark_app_{name} gauge\nspark_app_{name} {value}\n" for name, value in metrics.items()]
    target = f"/metrics/job/spark-events/application@base64/{_label(_name(event))}"
    return Ping(_below(url, target), "".join(lines).encode(), "text/plain; version=0.0.4; charset=utf-8")


_GAUGES = {
    "spark.heartbeat.queries": "running_queries",
    "spark.heartbeat.jobs": "running_jobs",
    "spark.heartbeat.batches": "committed_batches",
    "spark.heartbeat.lag": "lag_rows",
    "spark.heartbeat.executors_removed": "removed_executors",
}


def _label(value: str) -> str:
    """Encode a grouping label; a label may contain slashes or be empty."""
    return urlsafe_b64encode(value.encode("utf-8", "replace")).decode() or "="


def _alertmanager(url: str, signal: Signal, event: Event, now: int | None) -> Ping:
    """Return two alerts for Alertmanager.

    The watchdog alert is active while heartbeats arrive. The other alert is active after a failure. Alertmanager
    compares all times with its own clock, so no alert contains a time of the driver's clock: an end in the future could
    not be taken back, and would hide the death of the application.
    """
    labels = {"spark_app_name": _name(event)}
    alive: dict[str, Any] = {"labels": {"alertname": "SparkApplicationAlive", "severity": "none", **labels}}
    interval = event.attributes.get(INTERVAL)
    if signal not in (Signal.ALIVE, Signal.START):
        alive["endsAt"] = _LONG_AGO
    elif type(interval) is int and now is not None:
        alive["endsAt"] = rfc3339(now + _INTERVALS * interval)
    alive["annotations"] = {"summary": event.body}
    alerts = [alive]
    if signal is Signal.FAILURE:
        failed = {"alertname": "SparkApplicationFailed", "severity": "critical", **labels}
        alerts.append({"labels": failed, "annotations": {"summary": event.body}})
    return Ping(_below(url, "/api/v2/alerts"), msgspec.json.encode(alerts), "application/json")


def _below(url: str, path: str, query: str = "") -> str:
    """Return the URL with its path and query extended."""
    parts = urlsplit(url)
    queries = "&".join(filter(None, (parts.query, query)))
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, query=queries))


def _name(event: Event) -> str:
    return str(event.attributes.get("spark.app.name") or event.attributes.get("spark.app.id") or "")


#: Functions that create the request for a signal, by ``format``. The arguments are the monitor's URL, the signal, its
#: event, and the time by the monitor's own clock in milliseconds since the epoch, None if unknown.
FORMATS: dict[str, Callable[[str, Signal, Event, int | None], Ping]] = {
    "healthchecks": _healthchecks,
    "pushgateway": _pushgateway,
    "alertmanager": _alertmanager,
}
