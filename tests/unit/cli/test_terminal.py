"""Tests that no command writes terminal control characters that come from applications or settings."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from fakes import ROOT, application_end, application_start, decoded, query_started

from spark_events.cli import main
from spark_events.cli.output import CleanFormatter
from spark_events.event import encode_lines
from spark_events.translate.translation_config import TranslateConfig
from spark_events.translate.translator import Translator

#: Title of the window, erase the screen, a C1 character, right-to-left override, carriage return, line break.
NASTY = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202efdp.exe\rA\nB"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


def events_of_a_nasty_application(folder: Path) -> Path:
    """Return a file of events whose names and texts contain control characters."""
    translator = Translator(TranslateConfig(), 1)
    records = [
        application_start(app_id=f"local-1{NASTY}", app_name=NASTY, user=NASTY, time=1_700_000_000_000),
        query_started(name=NASTY),
        application_end("FAILED", time=1_700_000_060_000, failure={"chain": [{"type": "E", "message": NASTY}]}),
    ]
    found = [
        made
        for number, record in enumerate(records, 1)
        for made in translator.translate(decoded({"seq": number, "at": 1_700_000_000_000, **record}))
    ]
    assert found
    path = folder / "events.jsonl"
    path.write_bytes(encode_lines(found))
    return path


def settings_of_a_nasty_user(folder: Path) -> Path:
    path = folder / "spark-defaults.conf"
    text = json.dumps(NASTY)[1:-1].replace('\\"', '"')
    path.write_text(
        f"spark.events.reporter.a.type log\nspark.events.reporter.a.{text} x\nspark.events.reporter.b.type {text}\n"
        f"spark.events.reporters a,{text}\nspark.extraListeners io.sparkevents.EventsListener,{NASTY[:12]}\n",
        "utf-8",
    )
    return path


@pytest.mark.parametrize(
    "command",
    [
        "tail EVENTS",
        "tail -v EVENTS",
        "watch -v --since 36500d EVENTS",
        "report --since 2023-11-01 --until 2023-12-01 EVENTS",
        "check --conf CONF",
        "send-test --conf CONF",
        "uninstall --conf CONF",
        "replay --conf CONF --to a EVENTS",
        "report NOTHING",
        "watch NOTHING",
        "tail NOTHING",
        "replay NOTHING",
    ],
)
def test_no_command_writes_control_characters(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    places = {
        "EVENTS": str(events_of_a_nasty_application(tmp_path)),
        "CONF": str(settings_of_a_nasty_user(tmp_path)),
        "NOTHING": str(tmp_path / NASTY.replace("/", "")),
    }
    main([places.get(word, word) for word in command.split()])
    shown = capsys.readouterr()
    assert shown.out + shown.err
    assert not RAW.search(shown.out), ascii(shown.out)
    assert not RAW.search(shown.err), ascii(shown.err)


@pytest.mark.parametrize("command", ["report EVENTS --json", "why EVENTS --json", "watch EVENTS --since 36500d"])
def test_printed_json_has_no_control_characters_and_the_same_values(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = events_of_a_nasty_application(tmp_path)
    translator = Translator(TranslateConfig(heartbeat_interval=60.0), 1)
    lost = application_start(app_id="local-2", app_name=NASTY, time=1_700_000_000_000)
    events = [*translator.translate(decoded({"seq": 1, **lost})), *translator.tick(1_700_000_000_000)]
    with path.open("ab") as file:
        file.write(encode_lines(events))
    main([str(path) if word == "EVENTS" else word for word in command.split()])
    shown = capsys.readouterr().out
    assert not RAW.search(shown), ascii(shown)
    assert NASTY in texts_of(json.loads(shown))


def texts_of(value: object) -> list[str]:
    """Return all strings in a JSON value."""
    if isinstance(value, str):
        return [value]
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for one in inner for text in texts_of(one)]


def test_the_log_of_a_command_is_clean() -> None:
    record = logging.LogRecord("a", logging.WARNING, "", 1, "reporter %s", (NASTY,), None)
    assert not RAW.search(CleanFormatter("%(message)s").format(record))


def test_every_command_prints_through_one_function() -> None:
    sources = [*(ROOT / "spark_events/cli").glob("*.py"), *(ROOT / "spark_events/watch").glob("*.py")]
    found = [source.name for source in sources if re.search(r"(?<![\w.])print\(", source.read_text("utf-8"))]
    # `check` starts another Python with a print, and `main` flushes.
    assert sorted(found) == ["check.py", "main.py", "output.py"]
