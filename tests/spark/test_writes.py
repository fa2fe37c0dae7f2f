"""Tests that each successful batch write is one event, whose numbers are those on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark.harness import IN_MEMORY, PATIENT, Lab, Run, file_reporter, replay, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LOG = {
    "spark.eventLog.enabled": "true",
    "spark.eventLog.dir": "{folder}",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    defaults = {**two_lines(), **PATIENT, **IN_MEMORY, **file_reporter(Path("{folder}/events.jsonl")), **LOG}
    defaults["spark.sql.warehouse.dir"] = "{folder}/warehouse"
    done = lab.run("writes.py", defaults=defaults)
    assert done.process.returncode == 0, done.tail()
    return done


def about(event: dict[str, Any]) -> dict[str, Any]:
    prefix = "spark.write."
    return {key.removeprefix(prefix): value for key, value in event["attributes"].items() if key.startswith(prefix)}


def test_each_write_is_one_event_with_the_numbers_on_disk(run: Run) -> None:
    """A failed write, a write of a micro-batch, and a write that writes nothing are no event."""
    truth = run.truth()
    written = [about(event) for event in run.named("DataWrittenEvent")]
    assert truth["failed"]
    assert truth["inside"][0] > 0
    targets = [(one["target"].rpartition("/")[2], one["mode"], one["rows"]) for one in written]
    assert targets == [
        ("plain", "create", 10),
        ("parts", "append", 10),
        ("spark_catalog.default.orders", "create", 5),
        ("spark_catalog.default.orders", "append", 1),
        ("dir", "overwrite", 6),
    ]
    assert [[one["files"], one["bytes"]] for one in written[:2]] == [truth["plain"], truth["parts"]]
    assert written[1]["partitions"] == 3
    bodies = [event["body"] for event in run.named("DataWrittenEvent")]
    assert bodies[0].startswith("writes: SQL execution 0 wrote 10 rows in ")
    assert {event["severity"] for event in run.named("DataWrittenEvent")} == {"INFO"}


def test_a_replay_has_the_same_writes(run: Run) -> None:
    log = next(path for path in run.folder.glob("local-*") if not path.name.startswith("."))
    again = run.folder / "again.jsonl"
    done = replay(run, log, settings={f"spark.{key}": value for key, value in file_reporter(again).items()})
    assert done.returncode == 0, done.stderr
    live, replayed = (
        [(e["event_id"], e["body"], e["attributes"]) for e in events if e["name"] == "DataWrittenEvent"]
        for events in (run.events(), run.events(again))
    )
    assert live == replayed
