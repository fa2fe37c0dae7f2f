"""Tests that each successful batch write is one event, whose numbers are those on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from spark.harness import IN_MEMORY, PATIENT, PLAIN_EVENT_LOG, Lab, Run, file_reporter, replay, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LOG = {
    **PLAIN_EVENT_LOG,
}


def ran(lab: Lab, **settings: str) -> Run:
    defaults = {**two_lines(), **PATIENT, **IN_MEMORY, **file_reporter(Path("{folder}/events.jsonl")), **LOG}
    defaults["spark.sql.warehouse.dir"] = "{folder}/warehouse"
    done = lab.run("writes.py", defaults=defaults | settings)
    assert done.process.returncode == 0, done.tail()
    return done


@pytest.fixture(scope="module")
def run(lab: Lab) -> Run:
    return ran(lab)


@pytest.fixture(scope="module")
def with_streams(lab: Lab) -> Run:
    return ran(lab, **STREAMS)


STREAMS = {"spark.events.data-written.streams.enabled": "true"}


def about(event: dict[str, Any]) -> dict[str, Any]:
    prefix = "spark.write."
    return {key.removeprefix(prefix): value for key, value in event["attributes"].items() if key.startswith(prefix)}


def test_each_write_is_one_event_with_the_numbers_on_disk(run: Run) -> None:
    """A failed write, a write of a micro-batch, and a write that writes nothing are no event."""
    truth = run.truth()
    written = [about(event) for event in run.named("DataWrittenEvent")]
    assert truth["failed"]
    assert truth["inside"][0] > 0
    targets = [(one["target"].rpartition("/")[2], one["mode"], one.get("rows")) for one in written]
    assert targets == [
        ("plain", "create", 10),
        ("parts", "append", 10),
        ("spark_catalog.default.orders", "create", 5),
        ("spark_catalog.default.orders", "append", 1),
        ("dir", "overwrite", 6),
        ("grouped", "create", 5),
        ("spark_catalog.default.copied", "create", 6),
        ("spark_catalog.default.copied", "overwrite", 4),
        ("totals", "create", None),
        ("totals", "append", None),
        ("spark_catalog.default.low", "append", 4),
        ("spark_catalog.default.high", "overwrite", 2),
        ("spark_catalog.default.low", "append", 3),
        ("spark_catalog.default.high", "overwrite", 2),
    ]
    assert [written[5]["files"], written[5]["bytes"]] == truth["grouped"]
    assert [[one["files"], one["bytes"]] for one in written[:2]] == [truth["plain"], truth["parts"]]
    assert written[1]["partitions"] == 3
    bodies = [event["body"] for event in run.named("DataWrittenEvent")]
    assert bodies[0].startswith("writes: SQL execution 0 wrote 10 rows in ")
    assert {event["severity"] for event in run.named("DataWrittenEvent")} == {"INFO"}


def test_a_write_has_the_group_and_the_lineage_of_its_jobs(run: Run) -> None:
    """The start of an execution lacks the context, and on Spark 3.5 the group."""
    written = [event["attributes"] for event in run.named("DataWrittenEvent")]
    of_jobs = [(one.get("spark.job.group"), one.get("openlineage.context")) for one in written]
    assert of_jobs[5:8] == [("loads", "orders/v2")] * 3
    assert set(of_jobs[:5] + of_jobs[8:]) == {(None, None)}


def test_writes_of_micro_batches_are_events_on_request(run: Run, with_streams: Run) -> None:
    """Each write in ``foreachBatch`` is one event of its query and batch; the writes outside are as before."""
    truth = with_streams.truth()
    events = with_streams.named("DataWrittenEvent")
    streamed = [event for event in events if "spark.streaming.query.id" in event["attributes"]]
    assert len(events) - len(streamed) == len(run.named("DataWrittenEvent"))
    commits = with_streams.named("BatchCommitEvent")
    expected = [
        (event["attributes"]["spark.streaming.query.run_id"], event["attributes"]["spark.batch.id"])
        for event in commits
        if event["attributes"].get("spark.streaming.query.name") == "inside"
    ]
    assert len(expected) == truth["batches"] == 2
    inside = [event for event in streamed if event["attributes"]["spark.write.target"].endswith("/inside")]
    counts = [event for event in streamed if event["attributes"]["spark.write.target"].endswith("/counts")]
    made = [event for event in streamed if event["attributes"]["spark.write.target"] == "spark_catalog.default.made"]
    replaced = [e for e in streamed if e["attributes"]["spark.write.target"] == "spark_catalog.default.replaced"]
    assert len(inside) + len(counts) + len(made) + len(replaced) == len(streamed)
    # The first batch creates the table.
    assert [event["attributes"].pop("spark.write.mode") for event in made] == ["create", "append"]
    for some, mode in ((inside, "append"), (counts, "overwrite"), (made, None), (replaced, "overwrite")):
        known = [one["attributes"] for one in some]
        assert [(one["spark.streaming.query.run_id"], one["spark.batch.id"]) for one in known] == expected
        assert {one.get("spark.write.mode") for one in known} == {mode}
        assert {one["spark.streaming.query.name"] for one in known} == {"inside"}
    written = [about(event) for event in inside]
    assert [sum(one["files"] for one in written), sum(one["bytes"] for one in written)] == truth["inside"]
    assert [about(event)["rows"] for event in counts] == [1] * len(counts)
    assert inside[0]["body"].endswith(f" (append), for batch {expected[0][1]}")


@pytest.mark.parametrize("settings", [{}, STREAMS], ids=["batch", "streams"])
def test_a_replay_has_the_same_writes(request: pytest.FixtureRequest, settings: dict[str, str]) -> None:
    run: Run = request.getfixturevalue("with_streams" if settings else "run")
    log = next(path for path in run.folder.glob("local-*") if not path.name.startswith("."))
    again = run.folder / "again.jsonl"
    replayed_with = {f"spark.{key}": value for key, value in file_reporter(again).items()} | settings
    done = replay(run, log, settings=replayed_with)
    assert done.returncode == 0, done.stderr
    live, replayed = (
        [(e["event_id"], e["body"], e["attributes"]) for e in events if e["name"] == "DataWrittenEvent"]
        for events in (run.events(), run.events(again))
    )
    assert live == replayed
