"""Tests of the requests that the ``webhook`` reporter sends to a real receiver."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from fakes import ROOT, event

from reporters.awkward import AWKWARD, awkward_event
from reporters.peers.webhook import Answer, Receiver, Request
from reporters.running import IMPATIENT, Running
from spark_events import Event, Severity
from spark_events.event import encode_event

ABOUT = {"spark.app.id": "app 1/ü", "spark.app.name": "shop", "spark.streaming.query.name": "clicks"}


def sent(*events: Event, **settings: str) -> list[Request]:
    """Deliver the events and return the requests."""
    with (
        Receiver() as receiver,
        Running("webhook", {"url": receiver.url, **IMPATIENT, **settings}) as running,
    ):
        running.deliver(events)
        assert (running.counters.delivered, running.counters.failures) == (len(events), 0)
        return list(receiver.taken)


def test_a_batch_is_one_array_of_events() -> None:
    """A batch is one JSON array of events, each equal to the file reporter's line. The URL keeps its query string."""
    events = [event(n, text=AWKWARD) for n in range(3)]
    with Receiver() as receiver, Running("webhook", {"url": receiver.url, **IMPATIENT}) as running:
        running.put(events)
        running.deliver()
        found = [one for request in receiver.taken for one in request.json]
        assert found == [json.loads(encode_event(one)) for one in events]
        assert {request.path for request in receiver.taken} == {"/hook?token=t0psecret"}
        assert receiver.taken[0].headers["Content-Type"] == "application/json"
        assert re.fullmatch(r"spark-events/\d+\.\d+\S*", receiver.taken[0].headers["User-Agent"])


def test_one_connection_is_used_for_all_requests() -> None:
    """All requests use one connection, because a TLS handshake per batch would be slower than the request."""
    with Receiver() as receiver, Running("webhook", {"url": receiver.url, "format": "json-each"}) as running:
        running.deliver([event(n) for n in range(20)])
        assert [one["body"] for one in receiver.bodies()] == [str(n) for n in range(20)]
        assert receiver.connections == 1


def test_every_character_arrives() -> None:
    """Every format keeps every character; only lone surrogates become question marks."""
    odd = awkward_event({"k\udfff": AWKWARD})
    for format in ("json", "json-each", "slack", "teams", "cloudevents", "cloudevents-batch"):
        (request,) = sent(odd, format=format, **{"filter.min-severity": "INFO"})
        assert "emoji:🦊" in request.body.decode()
        assert "\\u0000" in request.body.decode()
        assert request.json


def test_slack_messages_are_readable_and_cannot_mention_or_link() -> None:
    """A Slack message has up to twenty events, one line each. Their text cannot mention users or create links."""
    events = [event(n, **ABOUT) for n in range(24)]
    events.append(Event.builder("s", "Failed").set_body("<!channel> & line").set_severity("ERROR").build())
    with Receiver([Answer(503)]) as receiver:
        settings = {"url": receiver.url, "format": "slack", "filter.min-severity": "INFO", **IMPATIENT}
        with Running("webhook", settings) as running:
            running.put(events[:1])
            running.await_failures()
            running.deliver(events[1:])
        messages = receiver.bodies()
    lines = [message["text"].splitlines() for message in messages]
    assert [len(each) for each in lines] == [1, 20, 4]
    assert lines[2] == ["INFO: 21", "INFO: 22", "INFO: 23", "ERROR: &lt;!channel&gt; &amp; line"]


def test_cloudevents_are_sent_structured_or_batched() -> None:
    """CloudEvents 1.0 contain the required attributes, extensions for severity and sequence, and the event as data."""
    made = event(1, Severity.ERROR, **ABOUT)
    (one,) = sent(made, format="cloudevents")
    assert one.headers["Content-Type"] == "application/cloudevents+json"
    assert one.json == {
        "specversion": "1.0",
        "id": made.event_id,
        "source": "/spark/app%201%2F%C3%BC",
        "type": "io.sparkevents.Test",
        "time": "2023-11-14T22:13:20.001Z",
        "subject": "shop / clicks",
        "datacontenttype": "application/json",
        "severitytext": "ERROR",
        "severitynumber": 17,
        "sequence": "00000000000000000000",
        "data": json.loads(encode_event(made)),
    }
    (batch,) = sent(made, format="cloudevents-batch")
    assert batch.headers["Content-Type"] == "application/cloudevents-batch+json"
    assert batch.json == [one.json]


def test_placeholders_of_a_custom_template_are_replaced(tmp_path: Path) -> None:
    """A string that is one placeholder keeps the value's type. A missing value is null, or empty within a string."""
    template = tmp_path / "template.json"
    template.write_text(
        json.dumps(
            {
                "title": "[${severity}] ${attributes.spark.app.name}: ${body}",
                "rows": "${attributes.spark.batch.rows_input}",
                "missing": "${attributes.nope}",
                "in words": "<${attributes.nope}> ${attributes.ok} ${observed_ts_millis}",
                "all": ["${attributes}", 1, None, {"at": "${timestamp}"}],
            }
        )
    )
    made = event(1, Severity.ERROR, **{**ABOUT, "spark.batch.rows_input": 6, "ok": True, "text": AWKWARD})
    (request,) = sent(made, format="template", template=str(template))
    assert request.json == {
        "title": "[ERROR] shop: 1",
        "rows": 6,
        "missing": None,
        "in words": "<> true 1700000000001",
        "all": [dict(made.attributes), 1, None, {"at": "2023-11-14T22:13:20.001Z"}],
    }


def test_headers_are_sent_and_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Configured headers are sent with every request. The log contains neither headers nor secrets of the URL."""
    with Receiver([Answer(401, "who are you?")]) as receiver:
        settings = {"url": receiver.url, "headers": "Authorization: Bearer s3cr3t; X-Team: payments", **IMPATIENT}
        with Running("webhook", settings) as running:
            running.deliver([event(1)])
        assert receiver.taken[0].headers["Authorization"] == "Bearer s3cr3t"
        assert receiver.taken[0].headers["X-Team"] == "payments"
    assert "TransientError: HTTP 401: who are you?" in caplog.text
    assert "s3cr3t" not in caplog.text
    assert "t0psecret" not in caplog.text


def test_the_documented_code_verifies_signatures() -> None:
    """The documented code accepts the reporter's requests, and rejects altered, old and unsigned requests."""
    text = (ROOT / "docs/reporters/webhook.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import [\w, ]+\n\ndef is_genuine.*?)```", text, re.DOTALL)
    assert len(code.partition("def")[2].strip().splitlines()) <= 6, "a line to define it, and five"
    scope: dict[str, object] = {}
    exec(code, scope)
    is_genuine = scope["is_genuine"]
    assert callable(is_genuine)
    (request,) = sent(event(1, text=AWKWARD), **{"signature.secret": "whsec"})
    header = request.headers["X-Spark-Events-Signature"]
    assert re.fullmatch(r"t=\d{10},v1=[0-9a-f]{64}", header)
    assert is_genuine("whsec", header, request.body)
    assert not is_genuine("other", header, request.body)
    assert not is_genuine("whsec", header, request.body + b" ")
    old = f"t={int(time.time()) - 3600}," + header.partition(",")[2]
    assert not is_genuine("whsec", old, request.body)
