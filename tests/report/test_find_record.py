"""Tests of the program that finds a bad record, for each kind of file and of offsets."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest

from report.stories import START, Story
from spark_events.cli import main
from spark_events.report.find_record import program_of
from spark_events.report.report_model import KafkaRecord, ProblemCard

KAFKA = json.dumps(['{"orders":{"0":12,"1":7}}', None])


def problem(**known: Any) -> ProblemCard:
    fields: dict[str, Any] = dict.fromkeys(ProblemCard.__annotations__)
    return ProblemCard(**(fields | known))


@pytest.mark.parametrize(
    ("known", "parts"),
    [
        ({"data_file": "s3a://lake/in/a.json"}, ["spark.read.json(FILE)", "F.from_json(", "'s3a://lake/in/a.json'"]),
        ({"data_file": "file:/in/a.jsonl.gz"}, ["spark.read.json(FILE)"]),
        ({"data_file": "file:/in/a.csv"}, ["spark.read.csv(FILE)", "F.from_csv("]),
        ({"data_file": "file:/in/part-0.snappy.parquet"}, ["format='parquet'"]),
        ({"data_file": 'file:/in/a b\'s "file"'}, ["format='text'"]),
        (
            {"committed_offsets": KAFKA, "data_record": KafkaRecord("orders", 1, 217)},
            ["\nTOPIC = 'orders'\nPARTITION = 1\nOFFSET = 217\n", '"endingOffsets"'],
        ),
        ({"committed_offsets": KAFKA, "failed_batch": 3}, ["{'orders': {'0': 12, '1': 7}}", "failed batch 3 began"]),
    ],
)
def test_the_program_is_valid_and_reads_only_the_place(known: dict[str, Any], parts: list[str]) -> None:
    program = program_of(problem(**known))
    assert program is not None
    assigned = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(program).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id.isupper()
    }
    assert assigned.get("FILE") == known.get("data_file")
    for part in parts:
        assert part in program


@pytest.mark.parametrize("offsets", [None, "[]", "no JSON", '["{\\"logOffset\\":0}"]', "[null]", '["7"]'])
def test_other_sources_have_no_program(offsets: str | None) -> None:
    assert program_of(problem(committed_offsets=offsets)) is None


@pytest.mark.parametrize("lacks", [None, "topic", "topic_partition", "offset"])
def test_why_uses_the_record_that_the_failure_names(
    lacks: str | None, capsys: pytest.CaptureFixture[str], stored: Any
) -> None:
    """A record without its topic, partition or offset is none: the program begins where the batch began."""
    named = {"topic": "orders", "topic_partition": 1, "offset": 217}
    place: dict[str, Any] = {f"failure.data.{name}": value for name, value in named.items() if name != lacks}
    run = Story().application("etl", "app-1")
    run.status("RUNNING", START)
    committed = {"spark.streaming.query.committed_offsets": KAFKA}
    run.failure(START + 1, "application", **{"incident.role": "alarm"}, **committed, **place)
    run.status("FAILED", START + 2)
    events = str(stored(run.story.events))
    assert main(["why", events, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)["problem"]["data_record"]
    assert record == (None if lacks else {"topic": "orders", "partition": 1, "offset": 217})
    assert main(["why", events]) == 0
    assert ("topic orders, partition 1, offset 217" in capsys.readouterr().out) == (lacks is None)
    assert main(["why", events, "--program"]) == 0
    program = capsys.readouterr().out
    assert ("OFFSET = 217" in program, "START = " in program) == (lacks is None, lacks is not None)


def test_why_says_when_there_is_no_program(capsys: pytest.CaptureFixture[str], stored: Any) -> None:
    story = Story()
    run = story.application("etl", "app-1")
    run.status("RUNNING", START)
    run.failure(START + 1, "application", **{"incident.role": "alarm"})
    run.status("FAILED", START + 2)
    assert main(["why", str(stored(story.events)), "--program"]) == 1
    assert "--program: the failure names neither a file nor offsets of Kafka" in capsys.readouterr().err
