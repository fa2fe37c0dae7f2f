"""Tests that an abandoned reporter leaves no connection, and sends nothing that its replacement sends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from fakes import application_start, decoded

from reporters.abandoned import deliver_abandoned
from reporters.peers.webhook import Answer, Receiver
from reporters.webhook.sending import NOW, alert, recovery
from spark_events import Reporter
from spark_events.config import Settings
from spark_events.reporters.reporter_types import factory
from spark_events.reporters.webhook.webhook_reporter import WebhookReporter
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

#: A valid answer in each protocol.
EMPTY = Answer(text="", headers={"Content-Type": "application/x-protobuf"})


def created(**settings: str) -> Reporter:
    made_by = factory(settings["type"])
    found = Settings.of({f"events.reporter.peer.{key}": value for key, value in settings.items()})
    return made_by(found.read(made_by.Config, "events.reporter.peer"))


@pytest.mark.parametrize("kind", ["webhook", "slack", "heartbeat", "openlineage", "otlp"])
def test_an_abandoned_thread_closes_its_connection(kind: str, tmp_path: Path) -> None:
    events = Translator(TranslateConfig()).translate(decoded(application_start()))
    settings = {"type": kind}
    if kind == "slack":
        settings = {"type": "webhook", "format": "slack", "alerts.directory": str(tmp_path)}
        events = [alert()]
    elif kind == "otlp":
        settings["protocol"] = "http/protobuf"
    with Receiver(decide=lambda _: EMPTY) as receiver:
        settings["endpoint" if kind == "otlp" else "url"] = f"http://127.0.0.1:{receiver.port}"
        deliver_abandoned(created(**settings), events, receiver.port)
        assert len(receiver.taken) == 1


def test_a_released_reporter_leaves_deferred_recoveries_to_its_replacement(tmp_path: Path) -> None:
    flaps = [[alert(NOW)], [recovery(NOW + 1)], [alert(NOW + 2)], [recovery(NOW + 3)]]
    with Receiver() as receiver:
        reporter = created(type="webhook", format="slack", url=receiver.url, **{"alerts.directory": str(tmp_path)})
        assert isinstance(reporter, WebhookReporter)

        async def live() -> list[int]:
            reporter.open()
            for events in flaps:
                await reporter.report(events)
            counts = [len(receiver.taken)]
            for end in (reporter.release, reporter.close):
                await end()
                counts.append(len(receiver.taken))
            return counts

        assert asyncio.run(live()) == [3, 3, 4]
