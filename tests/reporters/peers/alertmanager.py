"""Real Alertmanager that records its notifications, and a model of PagerDuty's rules for incidents."""

from __future__ import annotations

import contextlib
import json
import shutil
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

from fakes import eventually
from ports import free_port

from reporters.peers.processes import Server, missing, private_folder
from reporters.peers.webhook import Receiver

__all__ = ["Alertmanager", "Incident", "incidents"]

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
