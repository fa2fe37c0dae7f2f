"""Sender of alerts in virtual time, with a clock that the test sets, and recorded requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from fakes import event
from virtual_time import VirtualLoop

from spark_events import Event, Severity
from spark_events.loops import unwind
from spark_events.reporters.alerts.alert_files import AlertFiles
from spark_events.reporters.alerts.alert_memory import AlertMemory
from spark_events.reporters.alerts.alert_requests import AlertFormat
from spark_events.reporters.alerts.sender import AlertSender, SenderConfig
from spark_events.reporters.alerts.states import AlertsConfig
from spark_events.reporters.alerts.store import Alerts

__all__ = ["MINUTE", "NOW", "Sending", "alert", "recovery"]

#: Start of the tests, in seconds since the epoch.
NOW = 1_800_000_000.0
MINUTE = 60.0
KEY = "shop/query=clicks/failure"


def alert(at: float = NOW, key: str = KEY, severity: Severity = Severity.ERROR, /, **attributes: Any) -> Event:
    """Return an alarm at a time in seconds since the epoch; ``attributes`` may change its role."""
    about = {"incident.key": key, "incident.role": "alarm", "spark.app.name": "shop", **attributes}
    made = event(0, severity, **about)
    return msgspec.structs.replace(made, body=f"shop: {key}", observed_ts_millis=round(at * 1000))


def recovery(at: float = NOW, key: str = KEY, /, *more: str, **attributes: Any) -> Event:
    """Return the recovery of one or more alerts."""
    others: dict[str, Any] = {"incident.more_keys": json.dumps(more)} if more else {}
    return alert(at, key, Severity.INFO, **{"incident.role": "recovery", **others, **attributes})


class Sending:
    """Process that sends alerts, as a context manager.

    Args:
        form: format of the requests.
        folder: folder of the files; None: only memory.
        loop: the loop of another process, to run both in the same time.
        skew: how far the process's wall clock is ahead, in seconds; a test may change it.
        start: time of the other machines at the loop's start, in seconds since the epoch.
        post: accepts a request, or raises an error; default: accepts.
        config: limits.
        least: lowest severity.
        files: replaces the files.
    """

    def __init__(
        self,
        form: AlertFormat,
        folder: Path | None = None,
        *,
        loop: VirtualLoop | None = None,
        skew: float = 0.0,
        start: float = NOW,
        post: Callable[[Any], None] = lambda body: None,
        config: AlertsConfig | None = None,
        least: Severity = Severity.ERROR,
        files: AlertFiles | None = None,
    ) -> None:
        self.loop = loop or VirtualLoop()
        self.skew = skew
        self.bodies: list[Any] = []
        self._start = start
        self._accept = post
        if files is None and folder is not None:
            files = AlertFiles("destination", folder)
        limits = config or AlertsConfig()
        alerts = Alerts(AlertMemory(files, limits, self.loop.time, lambda: self.wall), limits)
        self._sender = AlertSender(form, alerts, self._post, SenderConfig(least))

    def __enter__(self) -> Sending:
        self.open()
        return self

    def open(self) -> None:
        async def open_sender() -> None:
            self._sender.open()

        self.loop.run_until_complete(open_sender())

    def __exit__(self, *_: object) -> None:
        """Kill the process: it sends nothing more."""
        unwind(self.loop)

    @property
    def wall(self) -> float:
        """The process's wall clock, in seconds since the epoch."""
        return self._start + self.loop.time() + self.skew

    def send(self, *events: Event) -> None:
        for part in self._sender.parts(events)[::-1]:
            self.loop.run_until_complete(self._sender.send(part))

    def fail(self, key: str = KEY, severity: Severity = Severity.ERROR, /, **attributes: Any) -> None:
        """Report a failure at the present time of the process's wall clock."""
        self.send(alert(self.wall, key, severity, **attributes))

    def recover(self, key: str = KEY, /, *more: str, **attributes: Any) -> None:
        self.send(recovery(self.wall, key, *more, **attributes))

    def passes(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        """Close the sender, as at the end of an application."""
        self.loop.run_until_complete(self._sender.close())

    async def _post(self, body: bytes) -> None:
        request = json.loads(body)
        self._accept(request)
        self.bodies.append(request)
