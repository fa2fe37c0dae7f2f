"""Tests of the invariants of the translation: no crash, no invalid transition, no repeated event."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, decoded
from hypothesis import given, settings
from hypothesis import strategies as st

from property.applications import Application, applications, check
from spark_events import Event
from spark_events.translate.translation_config import BatchCommitConfig, TranslateConfig, WatermarkConfig
from spark_events.translate.translator import Translator

EVERYTHING = TranslateConfig(streaming_jobs=True, streaming_stages=True)
COALESCED = TranslateConfig(batch_commit=BatchCommitConfig(min_interval=30), watermark=WatermarkConfig(idle_timeout=2))


def translate(records: list[dict[str, Any]], translator: Translator) -> list[Event]:
    return [event for record in records for event in translator.translate(decoded(record))]


@settings(max_examples=60, deadline=None)
@given(application=applications(), config=st.sampled_from([TranslateConfig(), EVERYTHING, COALESCED]))
def test_complete_records_give_complete_events(application: Application, config: TranslateConfig) -> None:
    """Complete records in order cause no invalid transition, and each commit is reported exactly once."""
    translator = Translator(config)
    events = translate(application.records, translator)
    check(events)
    assert translator.illegal == 0
    commits = [event.attributes for event in events if event.name == "BatchCommitEvent"]
    assert sum(int(attributes["spark.batch.count"]) for attributes in commits) == len(application.committed)
    last = {(attributes["spark.streaming.query.run_id"], attributes["spark.batch.id"]) for attributes in commits}
    assert len(last) == len(commits)
    assert last <= application.committed
    assert translator.next_due is None


@settings(max_examples=100, deadline=None)
@given(application=applications(), config=st.sampled_from([TranslateConfig(), EVERYTHING, COALESCED]), data=st.data())
def test_invariants_hold_for_any_records(
    application: Application, config: TranslateConfig, data: st.DataObject
) -> None:
    """The invariants hold for any selection of records in any order, with ticks at any time between them."""
    # A record keeps its number if the driver sends it again.
    records = [{"seq": number, **record} for number, record in enumerate(application.records, 1)]
    chosen = data.draw(st.lists(st.sampled_from(records), max_size=2 * len(records)))
    if data.draw(st.booleans()):
        chosen = sorted(chosen, key=records.index)
    ticks = data.draw(st.lists(st.tuples(st.integers(0, len(chosen)), st.integers(0, 6_000_000)), max_size=6))
    translator = Translator(config)
    events: list[Event] = []
    for number, record in enumerate(chosen):
        for _, after in (tick for tick in ticks if tick[0] == number):
            events += translator.tick(START + after)
        events += translator.translate(decoded(record))
    events += translator.driver_lost(application.now, orderly=False)
    check(events)


@settings(max_examples=60, deadline=None)
@given(application=applications(), config=st.sampled_from([EVERYTHING, COALESCED]), data=st.data())
def test_ticks_change_no_event(application: Application, config: TranslateConfig, data: st.DataObject) -> None:
    """Ticks between records, however frequent, change neither the events nor their order."""
    plain = translate(application.records, Translator(config))
    translator, events, now = Translator(config), [], START
    for record in application.records:
        for moment in sorted(data.draw(st.lists(st.integers(now, record["at"]), max_size=3))):
            # A tick may precede or follow records of the same time, but must not follow records of a later time.
            if moment < began(record):
                events += translator.tick(moment)
        now = record["at"]
        events += translator.translate(decoded(record))
    assert events == plain


def began(record: dict[str, Any]) -> int:
    """Return the earliest possible time of a change in the record."""
    if record["kind"] != "query_progress":
        return int(record["at"])
    took = record["progress"]["durationMs"].get("triggerExecution", 0)
    return int(record["at"]) - int(took)


def test_the_generator_covers_every_event() -> None:
    """Control: the generated applications of these tests cause every kind of event."""
    application = Application()
    for second in range(30):
        application.passes(1_000)
        application.trigger(0, [4, 4 if second < 5 else 0], 1, 10)
    application.passes(200_000)
    application.nothing_to_do(0)
    application.trigger(0, [4, 4], 0, 0)
    application.ends(0, True)
    application.trigger(0, [4, 4], 0, 0)
    application.job({}, True, 1)
    application.over()
    names = {event.name for event in translate(application.records, Translator(EVERYTHING))}
    assert names == {
        "AllSubtasksStatusChangeEvent",
        "BatchCommitEvent",
        "ExecutorStatusChangeEvent",
        "JobFailureEvent",
        "JobStatusChangeEvent",
        "StageSummaryEvent",
        "WatermarkStatusChangeEvent",
    }


@pytest.mark.parametrize("jobs", [0, 4])
def test_a_stream_of_360_batches_has_360_commits_a_start_and_a_stop(jobs: int) -> None:
    """A stream emits one event per commit, one at its start and one at its stop, and none for its jobs and stages."""
    application = Application()
    for _ in range(360):
        application.passes(10_000)
        application.trigger(0, [4, 4], jobs, 900)
    application.over()
    events = translate(application.records, Translator())
    assert len([event for event in events if event.name == "BatchCommitEvent"]) == 360
    partitions = [event for event in events if event.attributes.get("spark.watermark.subject") == "partition"]
    rest = [event for event in events if event.name != "BatchCommitEvent" and event not in partitions]
    assert [(event.attributes["spark.entity"], event.attributes["spark.status.new"]) for event in rest] == [
        ("application", "RUNNING"),
        ("query", "RUNNING"),
        ("query", "FINISHED"),
        ("application", "FINISHED"),
    ]
    # Each source has one partition without data, which is reported once instead of every minute.
    assert len(partitions) == 2


def test_settings_report_jobs_and_stages_of_batches() -> None:
    """events.streaming-jobs.enabled and events.streaming-stages.enabled do not depend on each other."""
    application = Application()
    application.trigger(0, [4, 4], 3, 10)
    application.over()

    def counts(streaming_jobs: bool = False, streaming_stages: bool = False) -> tuple[int, int]:
        config = TranslateConfig(streaming_jobs=streaming_jobs, streaming_stages=streaming_stages)
        events = translate(application.records, Translator(config))
        jobs = [event for event in events if event.attributes.get("spark.entity") == "job"]
        return len(jobs), len([event for event in events if event.name == "AllSubtasksStatusChangeEvent"])

    assert counts() == (0, 0)
    assert counts(streaming_jobs=True) == (6, 0)
    assert counts(streaming_stages=True) == (0, 12)
