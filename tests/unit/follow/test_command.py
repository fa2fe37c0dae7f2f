"""Tests of ``spark-events follow`` as users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fakes import ROOT, eventually, read_events, sidecar_environment
from storages import Bucket, s3_server

from spark_events.cli import main

STREAM = ROOT / "tests/unit/records/fixtures/foreachbatch-4.3.jsonl"
LINES = STREAM.read_bytes().splitlines(keepends=True)
COMMAND = [sys.executable, "-c", "import sys; from spark_events.cli import main; sys.exit(main())", "follow"]


def renumbered(number: int) -> list[bytes]:
    """Return the lines of the log of another application."""
    return [line.replace(b"local-1795262840328", b"local-%d" % number) for line in LINES]


def replayed(capsys: pytest.CaptureFixture[str], *paths: object) -> list[dict[str, Any]]:
    assert main(["replay", *map(str, paths)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_kills_lose_and_repeat_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Ten kills while five logs grow: the file has each event of a replay; a repeated event has the same id."""
    logs, audit = tmp_path / "logs", tmp_path / "events.jsonl"
    logs.mkdir()
    conf = tmp_path / "follow.conf"
    conf.write_text(f"spark.events.reporter.audit.type file\nspark.events.reporter.audit.path {audit}\n")
    command = [*COMMAND, str(logs), "--conf", str(conf), "--state", str(tmp_path / "state"), "--every", "20ms"]
    contents = {f"local-{number}": renumbered(number) for number in range(1, 6)}
    steps = 10

    def events() -> list[dict[str, Any]]:
        return read_events(audit) if audit.exists() else []

    def stored() -> int:
        return (tmp_path / "state").stat().st_mtime_ns if (tmp_path / "state").exists() else 0

    with (tmp_path / "notes").open("wb") as notes:
        for step in range(1, steps + 1):
            before = stored()
            with subprocess.Popen(command, stdout=notes, stderr=notes, env=sidecar_environment()) as process:
                try:
                    for name, lines in contents.items():
                        with (logs / f"{name}.inprogress").open("ab") as log:
                            log.writelines(lines[(step - 1) * len(lines) // steps : step * len(lines) // steps])
                    # Kill the process after its first look, or in one of the next looks.
                    eventually(lambda before=before: stored() > before, within=60)  # type: ignore[misc]
                finally:
                    process.send_signal(signal.SIGKILL)
    for name in contents:
        os.rename(logs / f"{name}.inprogress", logs / name)
    assert main(["follow", *command[4:], "--once"]) == 0
    wanted = {event["event_id"]: event for event in replayed(capsys, logs)}
    counts = Counter(event["event_id"] for event in events())
    assert counts.keys() == wanted.keys()
    assert {event["event_id"]: event for event in events()} == wanted
    # One more run repeats nothing.
    assert main(["follow", *command[4:], "--once"]) == 0
    assert Counter(event["event_id"] for event in events()) == counts


def test_a_storage_is_followed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An object store shows closed parts of a rolling log; each look delivers the new part."""
    with s3_server(tmp_path) as filesystem:
        bucket = Bucket(filesystem, "follow-logs")
        folder = "logs/eventlog_v2_local-1"
        bucket.put(f"{folder}/appstatus_local-1.inprogress", b"")
        found: list[dict[str, Any]] = []
        for number in range(1, 6):
            bucket.put(f"{folder}/events_{number}_local-1", b"".join(LINES[(number - 1) * 11 : number * 11]))
            arguments = ["follow", f"{bucket.url}/logs", "--once", "-v", "--state", str(tmp_path / "state")]
            assert main(arguments) == 0
            shown = capsys.readouterr()
            found.extend(json.loads(line) for line in shown.out.splitlines())
            if number == 3:
                assert "mat-foreachbatch (local-1795262840328)  RUNNING" in shown.err
    assert found == replayed(capsys, STREAM)


@pytest.mark.parametrize("given", ["gone", "s3://key:s3cr3t@bucket/logs"])
def test_an_unusable_path_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path, given: str) -> None:
    place = given if "://" in given else str(tmp_path / given)
    assert main(["follow", place, "--once"]) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("spark-events: ")
    assert "s3cr3t" not in shown.err


def test_only_reporters_that_notify_nobody_receive_history(tmp_path: Path) -> None:
    """The alarms of a complete log at the first look go to no reporter that notifies people."""
    from reporters.peers.webhook import Receiver

    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "local-1"
    log.write_bytes(STREAM.read_bytes())
    with Receiver() as receiver:
        conf = tmp_path / "follow.conf"
        conf.write_text(
            f"spark.events.reporter.audit.type file\nspark.events.reporter.audit.path {tmp_path}/events.jsonl\n"
            "spark.events.reporter.chat.type webhook\nspark.events.reporter.chat.format slack\n"
            f"spark.events.reporter.chat.url {receiver.url}\nspark.events.reporter.chat.alerts.directory {tmp_path}\n"
        )
        arguments = ["follow", str(log.parent), "--conf", str(conf), "--state", str(tmp_path / "state"), "--once"]
        assert main(arguments) == 0
        assert receiver.requests == []
        stored = len(read_events(tmp_path / "events.jsonl"))
        (log.parent / "local-2").write_bytes(b"".join(renumbered(2)))
        assert main(arguments) == 0
        assert len(read_events(tmp_path / "events.jsonl")) == 2 * stored
        assert len(receiver.requests) > 0
