"""Tests of killed drivers: the sidecar reports LOST within two seconds and exits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fakes import (
    SIDECAR,
    application_end,
    application_start,
    eventually,
    hello,
    is_gone,
    query_started,
    read_events,
    sidecar_environment,
)
from lateness import Witness

# Parent process of the sidecar. The process sends records, and then waits until it is killed.
PARENT = """
import json, subprocess, sys, time
command, lines = json.loads(sys.argv[1]), json.loads(sys.argv[2])
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in lines:
    child.stdin.write(json.dumps(line).encode() + b"\\n")
child.stdin.flush()
answer = {}
while answer.get("seq") != lines[-1]["seq"]:
    answer = json.loads(child.stdout.readline())
print(child.pid, flush=True)
time.sleep(600)
"""

# Parent process that exits at once, usually before the sidecar runs.
DYING_PARENT = """
import json, os, subprocess, sys
command, hello, past = map(json.loads, sys.argv[1:])
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
lines = [{**hello, "driver": os.getpid()}, *past]
child.stdin.write("".join(json.dumps(line) + "\\n" for line in lines).encode())
child.stdin.flush()
print(child.pid, flush=True)
os._exit(9)
"""


def status_changes(path: Path) -> list[dict[str, Any]]:
    """Return the application's events without the DispatcherReportEvent."""
    return [e for e in read_events(path) if e["name"] != "DispatcherReportEvent"]


def kill_a_driver_that_sent(path: Path, *records: dict[str, object], dispatcher: str = "sync") -> float:
    """Kill the driver after the sidecar has acknowledged all records, and return the time of the kill."""
    settings = {
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(path),
        "events.dispatcher.type": dispatcher,
    }
    lines = [hello(settings), *({"seq": n, **record} for n, record in enumerate(records, start=1))]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, json.dumps(SIDECAR), json.dumps(lines)],
        stdout=subprocess.PIPE,
        env=sidecar_environment(),
    )
    try:
        assert parent.stdout is not None
        sidecar = int(parent.stdout.readline())
        assert not is_gone(sidecar)
    finally:
        parent.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()
    eventually(lambda: is_gone(sidecar), what="the sidecar is gone")
    return killed_at


@pytest.mark.parametrize("dispatcher", ["sync", "async-queued"])
def test_a_killed_driver_is_reported_lost_within_two_seconds(tmp_path: Path, dispatcher: str, witness: Witness) -> None:
    """Two seconds after the SIGKILL of the driver, the file contains LOST as FATAL, and the sidecar has exited."""
    path = tmp_path / "events.jsonl"
    killed_at = kill_a_driver_that_sent(path, application_start(), query_started(), dispatcher=dispatcher)
    assert witness.took(killed_at) < 2
    last = status_changes(path)[-1]
    assert (last["name"], last["severity"]) == ("JobStatusChangeEvent", "FATAL")
    assert (last["attributes"]["spark.status.old"], last["attributes"]["spark.status.new"]) == ("RUNNING", "LOST")
    assert "query 'clicks'" in last["body"]


def test_a_driver_killed_after_its_application_ended_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    kill_a_driver_that_sent(path, application_start(), application_end())
    assert [e["attributes"]["spark.status.new"] for e in status_changes(path)] == ["RUNNING", "FINISHED"]


def test_a_driver_killed_before_its_application_started_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    kill_a_driver_that_sent(path, {"kind": "of_the_future"})
    assert status_changes(path) == []


def test_a_driver_killed_while_its_sidecar_starts_is_lost(tmp_path: Path) -> None:
    """A driver that dies while its sidecar starts is LOST: the sidecar first receives the driver's process id."""
    path = tmp_path / "events.jsonl"
    settings = {"events.reporter.audit.type": "file", "events.reporter.audit.path": str(path)}
    known = enumerate((application_start(), query_started()), start=1)
    past = [{"kind": "restored", "record": {"seq": number, **record}} for number, record in known]
    arguments = [json.dumps(one) for one in (SIDECAR, hello(settings, sequence=3), past)]
    command = [sys.executable, "-c", DYING_PARENT, *arguments]
    died = subprocess.run(command, stdout=subprocess.PIPE, env=sidecar_environment(), check=False)
    assert died.returncode == 9
    sidecar = int(died.stdout)
    eventually(lambda: is_gone(sidecar), what="the sidecar is gone")
    (lost,) = status_changes(path)
    assert (lost["name"], lost["severity"], lost["sequence"]) == ("JobStatusChangeEvent", "FATAL", 3)
    assert lost["attributes"]["spark.status.new"] == "LOST"
    assert "query 'clicks'" in lost["body"]
