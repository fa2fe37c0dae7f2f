"""Tests of heartbeats: one per interval, from the start of an application to its end."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, application_end, application_start, decoded, query_progress, query_started

from spark_events import Event
from spark_events.translate.deadlines.deadline_config import DeadlineConfig
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

MINUTE = 60_000
#: Beginning of the first full interval after the application's start.
SLOT = (START // MINUTE + 1) * MINUTE


def translator(*records: dict[str, Any], interval: float | None = 60.0) -> Translator:
    made = Translator(TranslateConfig(heartbeat_interval=interval, deadline=DeadlineConfig(resources=None)))
    for record in records:
        made.translate(decoded(record))
    return made


def beats(made: Translator, now: int) -> list[Event]:
    return [event for event in made.tick(now) if event.name == "HeartbeatEvent"]


def test_the_first_heartbeat_follows_the_start_at_once() -> None:
    """The first heartbeat follows the start at once, so that the receiver knows the interval from the beginning."""
    made = translator(application_start())
    assert made.next_due is not None
    assert made.next_due <= START
    (first,) = beats(made, START)
    assert first.attributes["spark.heartbeat.interval_ms"] == MINUTE
    assert first.attributes["spark.app.name"] == "shop"
    assert beats(made, SLOT - 1) == []
    assert made.next_due == SLOT


def test_each_interval_has_at_most_one_heartbeat() -> None:
    """Each interval has at most one heartbeat. After a pause, the sidecar does not send the missed heartbeats."""
    made = translator(application_start())
    assert len([beat for minute in range(10) for beat in beats(made, SLOT + minute * MINUTE)]) == 10
    assert len(beats(made, SLOT + 100 * MINUTE)) == 1


def test_the_state_of_the_application() -> None:
    """A heartbeat contains the numbers of queries, of batches since the last heartbeat, and of unread rows."""
    source = {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 5}}, "numInputRows": 1}
    made = translator(application_start(), query_started(), *(query_progress(n, sources=[source]) for n in range(3)))
    first, second = beats(made, SLOT)[0], beats(made, SLOT + MINUTE)[0]
    assert first.attributes["spark.heartbeat.queries"] == 1
    assert [beat.attributes["spark.heartbeat.batches"] for beat in (first, second)] == [3, 0]
    assert second.attributes["spark.heartbeat.lag"] == 4
    assert first.body == (
        "Application 'shop' is alive: 1 query and 0 jobs running, 3 batches committed since the last heartbeat,"
        " 0 executors, 4 rows behind"
    )


@pytest.mark.parametrize("interval", [60.0, None])
def test_no_heartbeat_without_a_running_application_or_an_interval(interval: float | None) -> None:
    made = translator(interval=interval)
    assert (made.next_due, beats(made, SLOT)) == (None, [])
    if interval is None:
        made.translate(decoded(application_start()))
    else:
        made.translate(decoded(application_start()))
        made.translate(decoded(application_end()))
    assert (made.next_due, beats(made, SLOT)) == (None, [])


def test_a_heartbeat_counts_the_executors() -> None:
    """A heartbeat contains the number of executors. A removed executor no longer counts."""
    executors = [
        {"kind": "executor_added", "at": START, "executor_id": name, "time": START, "host": "h", "cores": 4}
        for name in ("1", "2", "3")
    ]
    lost = {"kind": "executor_removed", "at": START, "executor_id": "2", "time": START, "reason": "x"}
    made = translator(*executors, application_start(), lost)
    (beat,) = beats(made, START)
    assert beat.attributes["spark.heartbeat.executors"] == 2
    assert "2 executors" in beat.body


def test_a_restarted_sidecar_does_not_guess_the_number_of_executors() -> None:
    """A restarted sidecar omits the number of executors, because it did not observe all executors."""
    made = Translator(TranslateConfig(heartbeat_interval=60.0))
    made.restore(decoded(application_start()))
    (beat,) = beats(made, START)
    assert "spark.heartbeat.executors" not in beat.attributes
