"""Tests of the reporters ``verdict`` and ``termination-message``, with events of real records."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from fakes import application_end, application_start, decoded, query_progress, query_started, query_terminated
from unit.translate.test_incidents import BECAUSE, SITUATIONS

from spark_events import Event
from spark_events.config import Settings
from spark_events.dispatch.pipeline_plan import VERDICT_VARIABLE, read
from spark_events.reporters.verdict.verdict_reporters import (
    TERMINATION_LOG,
    TerminationMessageConfig,
    TerminationMessageReporter,
    VerdictConfig,
    VerdictReporter,
)
from spark_events.translate.translator import Translator


def events_of(*records: dict[str, Any]) -> list[Event]:
    translator = Translator()
    return [event for record in (application_start(), *records) for event in translator.translate(decoded(record))]


def verdict_of(folder: Path, events: list[Event]) -> dict[str, Any]:
    path = folder / "run" / "verdict.json"
    reporter = VerdictReporter(VerdictConfig(str(path)))
    for event in events:
        reporter.report([event])
    assert [one.name for one in path.parent.iterdir()] == ["verdict.json"]
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def message_of(folder: Path, events: list[Event]) -> str:
    path = folder / "termination-log"
    path.write_text("")
    reporter = TerminationMessageReporter(TerminationMessageConfig(str(path)))
    for event in events:
        reporter.report([event])
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", SITUATIONS)
def test_the_verdict_agrees_with_the_events(kind: str, tmp_path: Path) -> None:
    """Outcome, class, advice and incident are those of the application's events; a survived failure is not named."""
    records, _ = SITUATIONS[kind]
    events = events_of(*records)
    ends = [one for one in events if one.name == "JobStatusChangeEvent" and one.class_scope == "spark.application"]
    if ends[-1].attributes["spark.status.new"] == "RUNNING":
        assert not (tmp_path / "verdict.json").exists()
        return
    verdict = verdict_of(tmp_path, events)
    assert verdict["outcome"] == ends[-1].attributes["spark.status.new"]
    failures = [one for one in events if one.name == "JobFailureEvent" and one.class_scope == "spark.application"]
    if failures:
        about = failures[-1].attributes
        assert verdict["incident_id"] == about["incident.id"]
        assert verdict.get("class") == about.get("failure.class")
        assert verdict.get("retry_useful") == about.get("failure.retry_useful")
    if verdict["outcome"] == "FINISHED":
        assert "class" not in verdict
        assert message_of(tmp_path, events) == ""


def test_the_verdict_has_the_committed_offsets(tmp_path: Path) -> None:
    sources = [{"description": "rate", "endOffset": 41, "numInputRows": 5}]
    events = events_of(
        query_started(name="clicks"), query_progress(41, name="clicks", sources=sources), query_terminated(),
        application_end(program_exit_code=0),
    )  # fmt: skip
    assert verdict_of(tmp_path, events)["committed"] == {"clicks": {"batch": 41, "offsets": ["41"]}}


def test_a_batch_that_is_only_processed_is_not_committed(tmp_path: Path) -> None:
    """With asynchronous progress tracking, the verdict names the last written entry of ``commits/``."""
    records = [
        query_progress(
            batch, name="clicks", sink={"description": "noop"}, sources=[{"description": "rate", "endOffset": batch}]
        )
        | {"asynchronous": True, "committed_through": through}
        for batch, through in ((0, None), (1, 0), (2, 0))
    ]
    events = events_of(query_started(name="clicks"), *records, query_terminated(), application_end(program_exit_code=0))
    assert verdict_of(tmp_path, events)["committed"] == {"clicks": {"batch": 0, "offsets": ["0"]}}


def test_the_message_has_the_cause_first_and_fits_kubernetes(tmp_path: Path) -> None:
    end = application_end("PROGRAM_FAILED", program_exit_code=1, failure=BECAUSE)
    text = message_of(tmp_path, events_of(end))
    assert text.startswith("ValueError: payment 1003 has no currency – shop: application failed with exit code 1")
    assert "\nCode: " in text
    long = {"chain": [{"type": "ValueError", "message": "ü" * 9_000}], "trace": f"ValueError: {'ü' * 9_000}"}
    end = application_end("PROGRAM_FAILED", program_exit_code=1, failure=long)
    message_of(tmp_path, events_of(end))
    assert len((tmp_path / "termination-log").read_bytes()) <= 4_096


@pytest.mark.parametrize(
    ("settings", "variables", "added"),
    [
        ({}, {}, set()),
        ({"events.verdict.path": "/x/verdict.json"}, {}, {"verdict"}),
        ({}, {VERDICT_VARIABLE: "/x/verdict.json"}, {"verdict"}),
        ({"events.reporter.verdict.type": "memory"}, {VERDICT_VARIABLE: "/x/v.json"}, {"verdict", "verdict-file"}),
        (
            {"events.reporter.mine.type": "verdict", "events.reporter.mine.path": "/y"},
            {VERDICT_VARIABLE: "/x/v.json"},
            {"mine"},
        ),
    ],
)
def test_a_setting_or_a_variable_adds_the_verdict(
    settings: dict[str, str], variables: dict[str, str], added: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default reporter stays active, and a configured reporter of this type is not doubled."""
    monkeypatch.delenv(VERDICT_VARIABLE, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert set(read(Settings.of(settings)).reporters) - {"log"} == added


@pytest.mark.parametrize(
    ("host", "exists", "settings", "is_added"),
    [
        ("10.0.0.1", True, {}, True),
        ("10.0.0.1", True, {"events.termination-message.enabled": "false"}, False),
        ("10.0.0.1", True, {"events.reporter.mine.type": "termination-message"}, False),
        ("10.0.0.1", False, {}, False),
        ("", True, {}, False),
    ],
)
def test_the_message_is_on_by_default_in_kubernetes(
    host: str, exists: bool, settings: dict[str, str], is_added: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container of Docker has no such file, and a machine with the file need not be Kubernetes."""
    exists_elsewhere = os.path.exists
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setattr("os.path.exists", lambda path: exists if path == TERMINATION_LOG else exists_elsewhere(path))
    found = read(Settings.of(settings)).reporters.get("termination-message")
    assert (found is not None) == is_added
    if found is not None:
        assert found.config == TerminationMessageConfig(TERMINATION_LOG)
