"""Tests of filters, which select the events of a reporter, and of variables, which add or remove attributes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from fakes import read_events

from spark_events import Event, EventBuilder, Severity
from spark_events.config import Settings
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.pipeline import build
from spark_events.dispatch.selection import SelectionConfig, selector
from spark_events.errors import ConfigError

Select: TypeAlias = Callable[[Sequence[Entry]], Sequence[Entry]]


def one(scope: str, name: str = "Commit", severity: str = "INFO") -> Event:
    return EventBuilder(scope, name).set_severity(severity).set_attributes({"a": 1, "b": 2}).build()


def selection(**values: str) -> Select:
    keys = {"includes": "filter.includes", "excludes": "filter.excludes", "severity": "filter.min-severity"}
    keys |= {"heartbeats": "heartbeats"}
    keys |= {"additional": "scope.variables.additional", "excluded": "scope.variables.excludes"}
    settings = Settings.of({f"r.{keys[key]}": value for key, value in values.items()})
    config = settings.read(SelectionConfig, "r")
    settings.check()
    assert config is not None
    return selector(config)


def passes(chosen: Select, event: Event) -> bool:
    return [entry.event for entry in chosen([Entry(1, event)])] == [event]


@pytest.mark.parametrize(
    ("includes", "scope", "name", "passed"),
    [
        ("*:*", "spark.job", "Commit", True),
        ("*", "spark.job", "Commit", True),
        ("spark.job", "spark.job", "Commit", True),
        ("spark.job", "spark.jobs", "Commit", False),
        ("spark.*", "spark.streaming.query", "Commit", True),
        ("park.job", "spark.job", "Commit", False),
        ("spark.job:Commit", "spark.job", "Commit", True),
        ("spark.job:Commit", "spark.job", "CommitMore", False),
        ("spark.job:*Commit,Start", "spark.job", "BatchCommit", True),
        ("spark.job:*Commit,Start", "spark.job", "Start", True),
        ("spark.job:*Commit,Start", "spark.stage", "Start", False),
        ("spark.job; spark.stage:Start", "spark.stage", "Start", True),
        ("spark.job; spark.stage:Start", "spark.stage", "End", False),
        ("spark?job", "spark.job", "Commit", None),
        ("spark.[j]ob", "spark.job", "Commit", None),
    ],
)
def test_patterns_match_whole_scopes_and_names(includes: str, scope: str, name: str, passed: bool | None) -> None:
    """A pattern is <scope>[:<name>[,<name>]], as in Flink. Semicolons separate patterns; only * is a wildcard."""
    if passed is None:
        with pytest.raises(ConfigError, match="pattern 1 is invalid"):
            selection(includes=includes)
    else:
        assert passes(selection(includes=includes), one(scope, name)) is passed


def test_excludes_override_includes() -> None:
    """An event that matches both the include filter and the exclude filter is excluded."""
    chosen = selection(includes="spark.*", excludes="*:Commit")
    assert passes(chosen, one("spark.job", "Start"))
    assert not passes(chosen, one("spark.job", "Commit"))


def test_severity_is_a_threshold() -> None:
    chosen = selection(severity="warn")
    passed = [severity.value for severity in Severity if passes(chosen, one("s", severity=severity.value))]
    assert passed == ["WARN", "ERROR", "FATAL"]


def test_added_and_removed_attributes_affect_one_reporter() -> None:
    """If a reporter's settings add or remove attributes, the event does not change for other reporters."""
    event = one("spark.job")
    (entry,) = selection(additional="team:shop, region:eu:west", excluded="a; nope")([Entry(7, event)])
    assert entry.event.attributes == {"b": 2, "team": "shop", "region": "eu:west"}
    assert event.attributes == {"a": 1, "b": 2}
    assert (entry.seq, entry.event.event_id, entry.event.sequence) == (7, event.event_id, event.sequence)


def test_without_settings_events_pass_unchanged() -> None:
    """Without settings, each event passes as the same object, so the default costs nothing."""
    event = one("anything", severity="TRACE")
    (entry,) = selection()([Entry(1, event)])
    assert entry.event is event


@pytest.mark.parametrize(
    "values",
    [{"additional": "team"}, {"additional": ":x"}, {"severity": "loud"}, {"includes": "a b"}, {"excludes": "a:b c"}],
)
def test_an_invalid_filter_is_rejected(values: dict[str, str]) -> None:
    """The message about an invalid filter contains the key, the value and the allowed values."""
    with pytest.raises(ConfigError, match=r"r\.(?:filter|scope)\S+: given .*expected"):
        selection(**values)


def test_filters_of_two_reporters_are_independent(tmp_path: Path) -> None:
    """Filters and variables of one reporter do not affect the file of another reporter, in either order."""
    reporters = {
        "red": {"scope.variables.additional": "team:red,a:mine", "filter.excludes": "*:Noise"},
        "blue": {"scope.variables.excludes": "b;secret", "filter.min-severity": "WARN"},
        "plain": {},
    }
    settings = {
        f"events.reporter.{name}.{key}": value
        for name, own in reporters.items()
        for key, value in {"type": "file", "path": str(tmp_path / name), **own}.items()
    }
    pipeline = build(Settings.of(settings))
    pipeline.dispatcher.start()
    events = [one("s", "Commit"), one("s", "Noise"), one("s", "Commit", "ERROR"), one("s", "Noise", "ERROR")]
    pipeline.dispatcher.dispatch([Entry(n, event) for n, event in enumerate(events, 1)], len(events))
    pipeline.dispatcher.stop(time.monotonic() + 20)
    seen = {
        name: [(e["name"], e["severity"], e["attributes"]) for e in read_events(tmp_path / name)] for name in reporters
    }
    untouched = {"a": 1, "b": 2}
    assert seen["red"] == [("Commit", severity, {"a": "mine", "b": 2, "team": "red"}) for severity in ("INFO", "ERROR")]
    assert seen["blue"] == [("Commit", "ERROR", {"a": 1}), ("Noise", "ERROR", {"a": 1})]
    assert seen["plain"] == [(event.name, event.severity.value, untouched) for event in events]
    assert all(event.attributes == untouched for event in events)


@pytest.mark.parametrize("given", ["", " ", ";"])
def test_an_empty_include_is_rejected(given: str) -> None:
    """An empty include filter is rejected; otherwise, the reporter would silently receive no events."""
    with pytest.raises(ConfigError, match=r"r\.filter\.includes: given .* \(nothing\), expected <scope>"):
        selection(includes=given)
    assert passes(selection(excludes=given), one("spark.job", "Commit"))


def test_an_invalid_pattern_is_rejected_with_one_message() -> None:
    """The message about an invalid pattern contains the full key, the value, the reason and the allowed values."""
    settings = Settings.of({"r.filter.includes": "spark.job:Commit; spark stage:X"})
    settings.read(SelectionConfig, "r")
    with pytest.raises(ConfigError) as raised:
        settings.check()
    (problem,) = raised.value.problems
    assert "r.filter.includes" in problem
    assert "pattern 2 is invalid" in problem
    assert "<scope>[:<name>[,<name>]]" in problem


def test_heartbeats_reach_only_reporters_that_enable_them() -> None:
    """Heartbeats reach only reporters that enable ``heartbeats``, regardless of their filters."""
    beat = one("spark.application", "HeartbeatEvent", "DEBUG")
    assert not passes(selection(), beat)
    assert not passes(selection(includes="*:HeartbeatEvent"), beat)
    assert passes(selection(heartbeats="true"), beat)
    assert passes(selection(heartbeats="true", includes="spark.job:*", severity="ERROR"), beat)
