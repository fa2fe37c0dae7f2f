"""Tests of the numbers and ids of events, which stay the same if records are repeated."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fakes import (
    START,
    application_end,
    application_start,
    decoded,
    query_progress,
    query_started,
    query_terminated,
)

from spark_events import Event
from spark_events.records.types import Unknown
from spark_events.translate.translator import Translator

STORY = [
    application_start(),
    query_started(),
    query_progress(0),
    query_progress(1),
    query_terminated(exception="a.B: x"),
    query_started("r2"),
    query_progress(2, "r2"),
    {"kind": "job_end", "job_id": 3, "time": START, "failure": {"chain": [{"type": "a.B", "message": "m"}]}},
    {"kind": "dropped", "at": START, "records": {"job_end": 2, "job_start": 1}},
    application_end(),
]


def translate(translator: Translator, records: list[dict[str, Any]]) -> list[Event]:
    return [event for record in records for event in translator.translate(decoded(record))]


def test_the_same_records_give_the_same_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal records yield equal events, regardless of clock and random numbers."""
    first = translate(Translator(), STORY)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    monkeypatch.setattr(time, "time_ns", lambda: 4 * 10**18)
    monkeypatch.setattr(time, "monotonic", lambda: 4e9)
    assert first == translate(Translator(), STORY)
    assert len({event.event_id for event in first}) == len(first)


def test_every_body_names_its_application() -> None:
    """Every body begins with the application's name, because many applications may share a file.

    Custom events of the program are an exception.
    """
    own = {"id": "1", "name": "Imported", "class_scope": "shop", "severity": "INFO", "body": "Twelve orders"}
    enriched = {**own, "id": "2", "name": "EnrichmentEvent", "body": "SQL rows of batch 3"}
    executor = {"kind": "executor_added", "executor_id": "7", "host": "h", "cores": 4, "time": START}
    added = [{"kind": "added", "at": START, "event": event} for event in (own, enriched)]
    translator = Translator()
    events = translate(translator, [*STORY[:-1], executor, *added, STORY[-1]])
    bodies = {event.body for event in events if event.name != "Imported"}
    assert {body for body in bodies if not body.startswith(("Application 'shop' ", "shop: "))} == set()
    assert {"shop: query 'clicks' started", "shop: executor 7 was added on h with 4 cores"} <= bodies
    assert "shop: SQL rows of batch 3" in bodies
    assert "Twelve orders" in {event.body for event in events}


def test_the_id_of_the_application_stands_for_its_name() -> None:
    """If the log lacks the application's start, the body has the application id; without an id, it has no prefix."""
    (event,) = translate(Translator(), [query_started()])
    assert event.body == "Query 'clicks' started"
    translator = Translator()
    translator.assume_application("app-7", None)
    (event,) = translate(translator, [query_started()])
    assert event.body == "app-7: query 'clicks' started"


def test_events_are_numbered_without_gaps() -> None:
    """The sequence counts events, beginning with the first number of the sidecar."""
    events = translate(Translator(first_sequence=41), STORY)
    assert [event.sequence for event in events] == list(range(41, 41 + len(events)))


def test_identifiers_differ_between_applications_and_attempts() -> None:
    """The same query has different event ids in another application or attempt."""
    ids: set[str] = set()
    for who in ({"app_id": "a"}, {"app_id": "b"}, {"app_id": "a", "attempt_id": "2"}):
        translator = Translator()
        translator.translate(decoded(application_start(**who)))
        ids.update(event.event_id for event in translate(translator, [query_started()]))
    assert len(ids) == 3


def test_restored_records_make_no_event_but_restore_state() -> None:
    """Restored records cause no event. Later events equal the events of a sidecar that received all records."""
    whole = translate(Translator(), STORY)
    for cut in range(len(STORY) + 1):
        reported = translate(Translator(), STORY[:cut])
        second = Translator(first_sequence=len(reported) + 1)
        for record in STORY[:cut]:
            second.restore(decoded(record))
        assert translate(second, STORY[cut:]) == whole[len(reported) :]


def test_restored_records_that_are_resent_make_no_event() -> None:
    translator = Translator()
    for record in (application_start(), query_started()):
        translator.restore(decoded(record))
    assert translate(translator, [application_start(), query_started()]) == []


def test_restored_records_use_no_numbers() -> None:
    """Restored records use no sequence numbers. The next event continues after the previous sidecar's last number."""
    translator = Translator(first_sequence=7)
    translator.restore(decoded(application_start()))
    assert translator.next_sequence == 7


def test_records_without_meaning_make_no_event() -> None:
    """Records of unknown kinds, and the record of the JVM's shutdown, cause no event."""
    translator = Translator()
    assert translator.translate(Unknown(seq=3)) == []
    assert translator.translate(decoded({"kind": "jvm_shutdown"})) == []


def test_drops_are_reported_with_their_count() -> None:
    """The event about dropped records contains the number of lost records of each kind."""
    (event,) = translate(Translator(), [{"kind": "dropped", "at": START, "records": {"job_end": 2, "job_start": 1}}])
    assert (event.name, event.severity.value) == ("EventsDroppedEvent", "WARN")
    assert event.attributes["spark.events.dropped.count"] == 3
    assert "2 job_end, 1 job_start" in event.body


@pytest.mark.parametrize(
    ("where", "reason", "message"),
    [
        ("handoff", "queue-full", "the record queue was full (2 job_end)"),
        ("sidecar", "sidecar-died", "were lost: the sidecar died before it acknowledged them (2 job_end)"),
        (
            "unwritable",
            "unwritable",
            "reading an object of the application raised an error; see the driver's log (2 job_end)",
        ),
        ("spark-listener-queue", "queue-full", "its listener queue was full"),
        ("elsewhere", "unknown", "2 records were lost for an unknown reason (2 job_end)"),
    ],
)
def test_drops_are_reported_with_their_cause(where: str, reason: str, message: str) -> None:
    """The event about dropped records contains the reason, because a larger queue helps only if the queue was full."""
    record = {"kind": "dropped", "at": START, "where": where, "records": {"job_end": 2}}
    (event,) = translate(Translator(), [record])
    assert event.attributes["spark.events.dropped.reason"] == reason
    assert event.body.endswith(message)
