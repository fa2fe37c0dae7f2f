"""Tests that the table of events by kind of record agrees with the translation."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fakes import START, application_end, decoded
from hypothesis import given, settings
from hypothesis import strategies as st
from property.applications import Application, applications

from spark_events import Event
from spark_events.translate.possible_events import POSSIBLE_EVENTS
from spark_events.translate.translation_config import BatchCommitConfig, TranslateConfig, WatermarkConfig
from spark_events.translate.translator import Translator

DROPPED = {"kind": "dropped", "at": START, "where": "spark", "records": {"appStatus": 3}}
ADDED = {"kind": "added", "at": START, "event": {"id": "1", "name": "Own", "class_scope": "shop", "severity": "FATAL"}}
SQL_FAILED = {"kind": "sql_execution_end", "at": START, "execution_id": 1, "time": START}
SQL_FAILED |= {"error": "java.lang.OutOfMemoryError: x"}
TIMED_OUT = {"kind": "statement_timed_out", "statement_id": "a", "time": START}
WRITTEN = {"kind": "data_written", "execution_id": 3, "time": START, "started": START}
STATEMENT_FAILED = {"kind": "statement_failed", "statement_id": "b", "time": START, "error": "a.B: x"}
STARVED = {
    "kind": "inspection",
    "idle_since": START,
    "stages": [{"stage_id": 900, "attempt": 0, "name": "s", "tasks": 2, "time": START}],
}
SUMMED_UP = {"kind": "application_totals", "time": START, "final": True}
ARRIVED = {"kind": "executor_added", "executor_id": "9", "host": "h", "cores": 2}
EXCLUDED = {"kind": "exclusion", "excluded": True, "executor_id": "9", "failures": 2}
STUCK = {"kind": "unschedulable", "unschedulable": True, "stage_id": 3}
ENDINGS = ["STOPPED", "RETURNED", "PROGRAM_FAILED", "SIGTERM", "something new"]


def events(records: list[dict[str, Any]], config: TranslateConfig) -> list[tuple[str, Event]]:
    """Return every event with the kind of its record, except events that a timer causes."""
    translator = Translator(config)
    found = []
    for number, record in enumerate(records, 1):
        timed = translator._timed
        while (deadline := timed.next_due) is not None and deadline - timed.behind <= record["at"]:
            translator.tick(deadline)
        found += [(record["kind"], event) for event in translator.translate(decoded({"seq": number, **record}))]
    assert not translator.defects
    return found


def is_listed(kind: str, event: Event) -> bool:
    return any(
        one.scope in (None, event.class_scope)
        and one.name in (None, event.name)
        and event.severity.number <= one.severity.number
        for one in POSSIBLE_EVENTS.get(kind, ())
    )


@settings(max_examples=100, deadline=None)
@given(
    application=applications(),
    ending=st.sampled_from(ENDINGS),
    exit_code=st.sampled_from([None, 0, 3]),
    interval=st.sampled_from([0.0, 60.0]),
    longest=st.sampled_from([None, 10.0]),
    patience=st.sampled_from([1.0, 60.0]),
)
def test_no_record_makes_an_event_that_is_not_listed(
    application: Application,
    ending: str,
    exit_code: int | None,
    interval: float,
    longest: float | None,
    patience: float,
) -> None:
    """A record causes only the events and severities in the table. The driver uses the table to decide when to wait."""
    config = TranslateConfig(
        batch_commit=BatchCommitConfig(min_interval=interval, max_duration=longest),
        watermark=WatermarkConfig(idle_timeout=patience),
        streaming_jobs=True,
        streaming_stages=True,
    )
    end = application_end(ending, at=application.now, time=application.now, exit_code=exit_code)
    records = [
        *application.records[:-1],
        {**SQL_FAILED, "at": application.now},
        {**TIMED_OUT, "at": application.now},
        {**STATEMENT_FAILED, "at": application.now},
        {**WRITTEN, "at": application.now},
        {**DROPPED, "at": application.now},
        {**ADDED, "at": application.now},
        {**EXCLUDED, "at": application.now, "time": application.now},
        {**STUCK, "at": application.now, "time": application.now},
        {**SUMMED_UP, "at": application.now},
        end,
    ]
    assert [(kind, event) for kind, event in events(records, config) if not is_listed(kind, event)] == []


def test_every_kind_of_record_that_is_translated_is_listed() -> None:
    """The table lists the kinds that cause events. The other kinds only update state; one occurs only in logs."""
    translated = {kind.__struct_config__.tag for kind in Translator()._router._handlers}  # type: ignore[attr-defined]
    assert translated - set(POSSIBLE_EVENTS) == {
        *("batch_started", "sql_execution_start", "stage_submitted", "stage_waited", "statement_started"),
        *("pipeline_command_started", "pipeline_command_ended", "pipeline_command_cancelled"),
    }
    assert not set(POSSIBLE_EVENTS) - translated


def test_every_listed_kind_makes_an_event() -> None:
    """Every kind in the table causes an event. A kind without events would make the driver wait for no reason."""
    config = TranslateConfig(watermark=WatermarkConfig(idle_timeout=1.0), streaming_jobs=True, streaming_stages=True)
    made = defaultdict(set)
    for kind, event in events(_everything("STOPPED"), config):
        made[kind].add(event.name)
    assert set(made) == set(POSSIBLE_EVENTS)
    assert made["job_end"] == {"JobStatusChangeEvent", "JobFailureEvent"}
    assert made["query_progress"] == {"BatchCommitEvent", "WatermarkStatusChangeEvent"}


def _everything(ending: str) -> list[dict[str, Any]]:
    application = Application()
    for fails in (False, True):
        application.job({}, fails, 2)
    for which in (0, 1, 2):
        for rows in ([4, 4], [4, 0], [0, 0], [4, 4]):
            application.trigger(which, rows, 1, 90_000)
            application.passes(500)
            application.nothing_to_do(which)
            application.passes(20_000)
            application.nothing_to_do(which)
        application.ends(which, which == 1)
        application.trigger(which, [4, 4], 1, 30)
    end = application_end(ending, at=application.now, time=application.now)
    now = application.now
    return [
        *application.records,
        {**ARRIVED, "at": now, "time": now},
        {**EXCLUDED, "at": now, "time": now},
        {**STUCK, "at": now, "time": now},
        {**STARVED, "at": now, "asked": now},
        {**SQL_FAILED, "at": application.now},
        {**TIMED_OUT, "at": application.now},
        {**STATEMENT_FAILED, "at": application.now},
        {**WRITTEN, "at": application.now},
        {**DROPPED, "at": application.now},
        {**ADDED, "at": application.now},
        {**SUMMED_UP, "at": application.now},
        end,
    ]
