"""Real Alertmanager that records its notifications, and models of Alertmanager's and PagerDuty's rules."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import urllib.request
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from fakes import eventually
from missing import missing
from ports import free_port

from reporters.peers.processes import Server, private_folder
from reporters.peers.webhook import Receiver

__all__ = ["Alertmanager", "AlertmanagerModel", "Incident", "incidents"]

COMMAND = "prometheus-alertmanager"


class Alertmanager:
    """Real Alertmanager without clustering, as a context manager."""

    def __init__(self) -> None:
        if shutil.which(COMMAND) is None:
            missing("no Alertmanager: run `make alertmanager`")
        self._receiver = Receiver()
        self._folder = private_folder("alertmanager")
        self.url = f"http://127.0.0.1:{free_port()}"
        listen = f"--web.listen-address={self.url.removeprefix('http://')}"
        options = ["--config.file=config.json", "--storage.path=data", "--cluster.listen-address="]
        self._server = Server(self._folder, [COMMAND, *options, listen])

    def __enter__(self) -> Alertmanager:
        self._receiver.start()
        route = {"receiver": "hook", "group_by": ["..."], "group_wait": "10ms", "group_interval": "50ms"}
        hook = {"url": self._receiver.url, "send_resolved": True}
        config = {"route": route, "receivers": [{"name": "hook", "webhook_configs": [hook]}]}
        # Alertmanager reads YAML, and every JSON document is valid YAML.
        (self._folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        self._server.start()
        eventually(self._is_ready, what="the Alertmanager")
        return self

    def __exit__(self, *_: object) -> None:
        self._server.remove()
        self._receiver.stop()

    def _is_ready(self) -> bool:
        assert self._server.is_running, self._server.output
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/-/ready") as answer:
            return bool(answer.status == 200)
        return False

    def post(self, alerts: Sequence[dict[str, Any]], now: float = 0.0) -> None:
        """Post alerts; Alertmanager uses its own clock instead of ``now``."""
        body, headers = json.dumps(alerts).encode(), {"Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.url}/api/v2/alerts", body, headers)) as answer:
            assert answer.status == 200

    def active(self, application: str) -> list[dict[str, Any]]:
        """Return the open alerts of an application."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts") as answer:
            return [one for one in json.load(answer) if one["labels"]["spark_app_name"] == application]

    def notifications(self, application: str) -> list[tuple[str, str]]:
        """Return the status and summary of the notifications about an application, in order."""
        alerts = [alert for body in self._receiver.bodies() for alert in body["alerts"]]
        about = [alert for alert in alerts if alert["labels"]["spark_app_name"] == application]
        return [(alert["status"], alert["annotations"].get("summary", "")) for alert in about]


class Incident(NamedTuple):
    """Incident at PagerDuty. The first trigger opens the incident; each later trigger only extends its log."""

    key: str
    summary: str
    is_open: bool


def incidents(requests: Sequence[dict[str, Any]]) -> list[Incident]:
    """Apply PagerDuty's rules to requests.

    A key has at most one open incident. A resolve without an open incident has no effect.
    """
    found: list[Incident] = []
    for one in requests:
        key = one["dedup_key"]
        opened = next((number for number, incident in enumerate(found) if incident[::2] == (key, True)), None)
        if one["event_action"] == "trigger" and opened is None:
            found.append(Incident(key, one["payload"]["summary"], True))
        elif one["event_action"] == "resolve" and opened is not None:
            found[opened] = found[opened]._replace(is_open=False)
    return found


@dataclasses.dataclass(frozen=True)
class _Stored:
    starts: float
    ends: float
    is_timeout: bool


class AlertmanagerModel:
    """Model of Alertmanager's rules for posted alerts; its clock is an argument.

    See ``postAlertsHandler``, ``Alerts.Put`` and ``Alert.Merge`` in Alertmanager's source.
    """

    resolve_timeout = 300.0

    def __init__(self) -> None:
        self._stored: dict[frozenset[tuple[str, str]], _Stored] = {}

    def post(self, alerts: Sequence[dict[str, Any]], now: float) -> None:
        """Store alerts that are posted at a time, in seconds since the epoch."""
        for alert in alerts:
            starts, ends = (_seconds(alert.get(name)) for name in ("startsAt", "endsAt"))
            if starts is None:
                starts = now if ends is None else ends
            new = _Stored(starts, now + self.resolve_timeout if ends is None else ends, ends is None)
            assert new.starts <= new.ends, "start time must be before end time"
            labels = frozenset(alert["labels"].items())
            old = self._stored.get(labels)
            if old is not None and (old.starts < new.ends < old.ends or old.starts < new.starts < old.ends):
                new = self._merged(old, new, now)
            self._stored[labels] = new

    def open_keys(self, now: float) -> set[str]:
        """Return the label ``incident_key`` of the open alerts."""
        return {dict(labels)["incident_key"] for labels, alert in self._stored.items() if alert.ends > now}

    @staticmethod
    def _merged(old: _Stored, new: _Stored, now: float) -> _Stored:
        starts, ends = min(old.starts, new.starts), new.ends
        if new.ends <= now:
            ends = max(old.ends, new.ends) if old.ends <= now else new.ends
        elif old.ends > new.ends and not old.is_timeout:
            ends = old.ends
        return _Stored(starts, ends, new.is_timeout)


def _seconds(time: str | None) -> float | None:
    return None if time is None else datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
