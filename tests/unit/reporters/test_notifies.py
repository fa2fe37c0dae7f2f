"""Tests of which reporters notify people, so that a replay leaves them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_events.config import Settings
from spark_events.dispatch.pipeline_plan import read
from spark_events.reporters.reporter_types import BUILT_IN
from spark_events.reporters.webhook.webhook_config import ALERTS, FORMATS

SILENT = (
    "termination-message",
    "verdict",
    "database",
    "file",
    "kafka",
    "log",
    "memory",
    "openlineage",
    "otlp",
    "otlp-traces",
)
KINDS = {
    **dict.fromkeys((f"webhook {format}" for format in FORMATS), False),
    **dict.fromkeys((f"webhook {format}" for format in (*ALERTS, "template")), True),
    **dict.fromkeys(SILENT, False),
    "heartbeat": True,
    "email": True,
}
URL, ENDPOINT = {"url": "http://localhost:1"}, {"endpoint": "http://localhost:1"}
#: Required settings of a type, or of a type and format.
REQUIRED = {
    "database": {"url": "sqlite:////tmp/events.db"},
    "file": {"path": "/tmp/events.jsonl"},
    "verdict": {"path": "/tmp/verdict.json"},
    "kafka": {"topic": "events", "bootstrap.servers": "localhost:1"},
    "heartbeat": URL,
    "email": {"host": "localhost", "from": "a@b", "to": "c@d"},
    "openlineage": URL,
    "otlp": ENDPOINT,
    "otlp-traces": ENDPOINT,
    "webhook": URL,
    "webhook template": {"template": "/tmp/template.json"},
    "webhook pagerduty": {"routing-key": "R"},
}


def test_every_type_has_been_considered() -> None:
    """A new type or format must decide whether it notifies people."""
    assert {kind.split()[0] for kind in KINDS} == set(BUILT_IN)


@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize(("kind", "notifies"), KINDS.items())
def test_a_type_or_format_notifies_people(kind: str, notifies: bool, isolation: str) -> None:
    name, _, format = kind.partition(" ")
    given = {"type": name, "isolation": isolation, **REQUIRED.get(name, {}), **REQUIRED.get(kind, {})}
    given |= {"format": format} if format else {}
    plan = read(Settings.of({f"events.reporter.page.{key}": value for key, value in given.items()}))
    assert plan.reporters["page"].notifies is notifies


def test_a_type_of_the_user_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "from spark_events import Reporter\n"
        "class Quiet(Reporter):\n    def report(self, events): pass\n"
        "class Loud(Quiet):\n    notifies = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plan = read(Settings.of({f"events.reporter.{name}.type": f"mine:{name}" for name in ("Quiet", "Loud")}))
    assert {name: reporter.notifies for name, reporter in plan.reporters.items()} == {"Quiet": False, "Loud": True}
