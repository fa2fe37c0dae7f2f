"""The conversation with a driver, without one: what is answered, and when."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from fakes import FaultyReporter, GatedReporter, application_start, eventually, goodbye, hello

from spark_events.bridge.answers import Answers
from spark_events.conversation import Conversation
from spark_events.dispatch import dispatcher


class Lines:
    """Gives its lines, then waits for the last one, the goodbye."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self.closed = False
        self.over = threading.Event()
        self._first = [json.dumps(record).encode() for record in records]

    def read(self, timeout: float | None = None) -> list[bytes]:
        first, self._first = self._first, []
        if not first and self.over.wait(timeout):
            return [json.dumps(goodbye()).encode()]
        return first

    def wake(self) -> None:
        """Nobody needs to."""


def test_nobody_waits_for_a_reporter_that_hangs_on_what_others_do_not_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that guarantees delivery gets none of it, so the driver is answered at once, and by nobody who looks."""
    monkeypatch.setattr(dispatcher, "_WATCH_SECONDS", 3600.0)
    settings = {
        "events.dispatcher.type": "async-queued",
        "events.reporter.promised.delivery.guarantee": "guaranteed",
        "events.reporter.promised.filter.includes": "spark.job",
    }
    gated, promised, said = GatedReporter(), FaultyReporter(), []
    lines = Lines(hello(settings), {**application_start(), "seq": 1})
    conversation = Conversation(
        lines,
        Answers(lambda line: said.append(json.loads(line))),
        lambda: False,
        own={"hanging": lambda: gated, "promised": lambda: promised},
    )
    assert conversation.begin()
    running = threading.Thread(target=conversation.run)
    running.start()
    try:
        assert gated.entered.wait(20)
        eventually(lambda: any(answer == {"kind": "answered", "through": 1} for answer in said))
        assert not any(answer["kind"] == "ack" for answer in said)
    finally:
        gated.gate.set()
        lines.over.set()
        running.join(20)
    assert not running.is_alive()
    assert any(answer["kind"] == "ack" and answer["through"] == 1 for answer in said)
    assert promised.events == []
