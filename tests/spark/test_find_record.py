"""Test of the program that `why --program` prints: it finds the one bad record, and prints no content."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report.stories import START, Story
from reporters.peers.kafka import Kafka
from spark.harness import PLAIN_EVENT_LOG, Lab
from spark.kafka_topics import broker_with, kafka_jars

from spark_events.cli import main
from spark_events.event import encode_lines

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

_BAD = '{"id": 7, "secret": "s3cr3t'
SETTINGS = {
    **PLAIN_EVENT_LOG,
}


@pytest.fixture
def broker() -> Iterator[Kafka]:
    """Yield a broker with a topic of 300 records, of which the one with offset 217 is bad."""
    messages = ((_BAD if row == 217 else json.dumps({"id": row})).encode() for row in range(300))
    with broker_with({"orders": messages}) as broker:
        yield broker


def found(
    lab: Lab, capsys: pytest.CaptureFixture[str], kind: str, place: str, defaults: dict[str, str], **env: str
) -> tuple[str, dict[str, Any]]:
    """Run the failing job and then the program; return the program's output and the card."""
    failed = lab.run("bad_record.py", kind, place, defaults={**SETTINGS, **defaults})
    assert failed.process.returncode == 1, failed.tail()
    (log,) = [path for path in failed.folder.glob("local-*") if path.suffix != ".crc"]
    assert main(["why", str(log), "--json"]) == 0
    card: dict[str, Any] = json.loads(capsys.readouterr().out)["problem"]
    assert main(["why", str(log), "--program"]) == 0
    program = failed.folder / "find.py"
    program.write_text(capsys.readouterr().out, encoding="utf-8")
    done = lab.run("", str(program), defaults=defaults, env=dict(env))
    assert done.process.returncode == 0, done.tail()
    assert "s3cr3t" not in program.read_text(encoding="utf-8") + done.output
    # Some environments add a warning of PySpark.
    return "\n".join(line for line in done.output.splitlines() if "Warning" not in line), card


def test_the_bad_line_of_a_file_is_found(lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        lines = [json.dumps({"id": row}) for row in range(50)]
        if number == 1:
            lines[30] = _BAD
        (folder / f"orders-{number}.json").write_text("\n".join(lines), encoding="utf-8")
    output, card = found(lab, capsys, "file", str(folder), {})
    assert card["data_file"].endswith("/in/orders-1.json")
    assert output.splitlines() == [f"{card['data_file']}: line 31"]


def test_the_bad_record_of_a_topic_is_found(lab: Lab, capsys: pytest.CaptureFixture[str], broker: Kafka) -> None:
    jars = {"spark.jars": kafka_jars()}
    output, card = found(lab, capsys, "kafka", broker.servers, jars, KAFKA=broker.servers)
    assert (card["committed_batch"], card["failed_batch"]) == (1, 2)
    assert output.splitlines() == ["orders, partition 0, offset 217: JSONDecodeError"]


def test_the_record_that_a_failure_names_is_the_only_one_read(
    lab: Lab, capsys: pytest.CaptureFixture[str], broker: Kafka, tmp_path: Path
) -> None:
    """The program tells a record that fails from one that does not, and from one that is not there."""
    outputs = {216: "no error", 217: "JSONDecodeError", 900: ""}
    for offset, expected in outputs.items():
        run = Story().application("etl", "app-1")
        run.status("RUNNING", START)
        named = {"topic": "orders", "topic_partition": 0, "offset": offset}
        about: dict[str, Any] = {f"failure.data.{name}": value for name, value in named.items()}
        run.failure(START + 1, "application", **{"incident.role": "alarm"}, **about)
        run.status("FAILED", START + 2)
        events, program = tmp_path / "events.jsonl", tmp_path / "find.py"
        events.write_bytes(encode_lines(run.story.events))
        assert main(["why", str(events), "--program"]) == 0
        program.write_text(capsys.readouterr().out, encoding="utf-8")
        defaults = {"spark.jars": kafka_jars()}
        done = lab.run("", str(program), defaults=defaults, env={"KAFKA": broker.servers})
        assert done.process.returncode == 0, done.tail()
        assert f"orders, partition 0, offset {offset}: {expected}" in done.output
        assert "s3cr3t" not in done.output
