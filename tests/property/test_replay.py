"""Tests that after the death of a sidecar at any record, the next sidecar creates the same events with the same ids."""

from __future__ import annotations

from typing import Any

from fakes import (
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_events import Event
from spark_events.translate.translator import Translator


@st.composite
def stories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Generate records of one application with jobs and with queries that run, commit, fail and restart."""
    story = [application_start()]
    batches: dict[str, int] = {}
    running: dict[str, str] = {}
    runs = jobs = 0
    for what in draw(st.lists(st.sampled_from(["start", "commit", "end", "fail", "job", "job", "drop"]), max_size=20)):
        query = draw(st.sampled_from(["q1", "q2"]))
        if what == "start" and query not in running:
            runs += 1
            running[query] = f"r{runs}"
            story.append(query_started(running[query], query))
        elif what == "commit" and query in running:
            batches[query] = batches.get(query, -1) + 1
            story.append(query_progress(batches[query], running[query], query))
        elif what in ("end", "fail") and query in running:
            exception = "java.io.IOException: disk" if what == "fail" else None
            story.append(query_terminated(running.pop(query), query, exception=exception))
        elif what == "job":
            jobs += 1
            failure = {"chain": [{"type": "a.B", "message": "m"}]} if draw(st.booleans()) else None
            story.append({"kind": "job_start", "job_id": jobs, "time": START})
            story.append({"kind": "job_end", "job_id": jobs, "time": START, "failure": failure})
        elif what == "drop":
            story.append({"kind": "dropped", "at": START + len(story), "records": {"job_end": 1}})
    return [*story, application_end()] if draw(st.booleans()) else story


def translate(translator: Translator, records: list[dict[str, Any]]) -> list[Event]:
    return [event for record in records for event in translator.translate(decoded(record))]


@settings(max_examples=100, deadline=None)
@given(story=stories(), data=st.data())
def test_successor_continues_the_events_of_its_predecessor(story: list[dict[str, Any]], data: st.DataObject) -> None:
    """After a restart of the sidecar, the events equal the events without a restart."""
    cut = data.draw(st.integers(0, len(story)))
    whole = translate(Translator(), story)
    before = translate(Translator(), story[:cut])
    successor = Translator(first_sequence=len(before) + 1)
    for record in story[:cut]:
        successor.restore(decoded(record))
    assert translate(successor, story[cut:]) == whole[len(before) :]


@settings(max_examples=100, deadline=None)
@given(story=stories(), data=st.data())
def test_resent_records_make_the_same_event_ids(story: list[dict[str, Any]], data: st.DataObject) -> None:
    """Records that are reported but not acknowledged are sent again, and cause events with the same ids."""
    acknowledged = data.draw(st.integers(0, len(story)))
    whole = translate(Translator(), story)
    # The memory may be newer than the acknowledged records.
    reported = data.draw(st.integers(acknowledged, len(story)))
    first, memory = Translator(), None
    for record in story[:reported]:
        first.translate(decoded(record))
        memory = first.take_memory() or memory
    successor = Translator()
    if memory is not None:
        successor.load_memory(memory)
    # The driver keeps the records that the next sidecar needs; of jobs, it keeps only running jobs
    # (`RestoreState.java`).
    over = [record["job_id"] for record in story[:acknowledged] if record["kind"] == "job_end"]
    for record in story[:acknowledged]:
        if record.get("job_id") in over:
            continue
        if record["kind"] in ("application_start", "query_started", "query_progress", "query_terminated", "job_start"):
            successor.restore(decoded(record))
    again = translate(successor, story[acknowledged:])
    known = [event.event_id for event in whole]
    assert len(set(known)) == len(known)
    assert [event.event_id for event in again] == known[len(known) - len(again) :]
    assert len(again) == len(whole) - len(translate(Translator(), story[:acknowledged]))
