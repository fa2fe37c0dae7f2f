"""Tests of the events of a whole event log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_events.event import Event
from spark_events.records.event_log.log_files import find_logs
from spark_events.records.event_log.log_reader import EventLogReader
from spark_events.translate.event_log import replayed
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

FIXTURES = Path(__file__).parents[1] / "records" / "fixtures"
LOGS = ("batch_udf-4.3.jsonl", "foreachbatch-3.5.jsonl")


def events(path: Path, notes: list[str]) -> list[Event]:
    (log,) = find_logs(path)
    config = TranslateConfig(streaming_jobs=True, streaming_stages=True)
    return [one for some in replayed(EventLogReader(log, notes.append), Translator(config)) for one in some]


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("number", [1, 3, 10, 30])
def test_records_before_the_start_belong_to_the_application(tmp_path: Path, name: str, number: int) -> None:
    """Lines of any kind before the application's start yield the same events as in their usual place."""
    lines = (FIXTURES / name).read_text("utf-8").splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if "SparkListenerApplicationStart" in line)
    start = lines.pop(at)
    end = next(number for number, line in enumerate(lines) if "SparkListenerApplicationEnd" in line)
    lines.insert(min(at + number, end), start)
    path = tmp_path / "shop"
    path.write_text("".join(lines), "utf-8")
    notes: list[str] = []
    found, usual = events(path, notes), events(FIXTURES / name, [])
    assert notes == []
    assert [(one.name, one.event_id, one.body) for one in found] == [(o.name, o.event_id, o.body) for o in usual]
    assert len({one.attributes["spark.app.id"] for one in found}) == 1


def test_only_so_many_records_wait_for_a_start(tmp_path: Path) -> None:
    """A long log without a start is translated before its end, with the id of its name."""
    info = {"Host": "w", "Total Cores": 1}
    added = {"Event": "SparkListenerExecutorAdded", "Timestamp": 1, "Executor Info": info}
    path = tmp_path / "local-1"
    path.write_text("\n".join(json.dumps({**added, "Executor ID": str(number)}) for number in range(40_000)), "utf-8")
    (log,) = find_logs(path)
    notes: list[str] = []
    reader = EventLogReader(log, notes.append)
    translated = replayed(reader, Translator(TranslateConfig()))
    first = next(translated)
    assert [one.attributes["spark.app.id"] for one in first] == ["local-1"]
    assert reader.fraction < 1
    assert len(notes) == 1
