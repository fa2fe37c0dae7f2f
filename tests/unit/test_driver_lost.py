"""A driver that is killed: its sidecar reports it within two seconds, and is gone."""

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

# A parent of the sidecar that can be killed: it feeds it, and waits.
PARENT = """
import json, subprocess, sys, time
command, lines = json.loads(sys.argv[1]), json.loads(sys.argv[2])
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for line in lines:
    child.stdin.write(json.dumps(line).encode() + b"\\n")
child.stdin.flush()
answer = {}
while answer.get("through") != lines[-1]["seq"]:
    answer = json.loads(child.stdout.readline())
print(child.pid, flush=True)
time.sleep(600)
"""

# Another, which dies at once; before the sidecar has begun to run, as a rule.
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


def told(path: Path) -> list[dict[str, Any]]:
    """The events of the application, without the dispatcher's report on them."""
    return [e for e in read_events(path) if e["name"] != "DispatcherReportEvent"]


def kill_a_driver_that_said(path: Path, *records: dict[str, object], dispatcher: str = "sync") -> float:
    """Returns when it was killed, the sidecar having acknowledged everything."""
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
    """LOST, FATAL, in the file, and the sidecar gone, two seconds after SIGKILL."""
    path = tmp_path / "events.jsonl"
    killed_at = kill_a_driver_that_said(path, application_start(), query_started(), dispatcher=dispatcher)
    assert witness.took(killed_at) < 2
    last = told(path)[-1]
    assert (last["name"], last["severity"]) == ("JobStatusChangeEvent", "FATAL")
    assert (last["attributes"]["status.old"], last["attributes"]["status.new"]) == ("RUNNING", "LOST")
    assert "query 'clicks'" in last["body"]


def test_a_driver_that_was_killed_after_its_end_is_not_lost(tmp_path: Path) -> None:
    """Nobody is missing what was over."""
    path = tmp_path / "events.jsonl"
    kill_a_driver_that_said(path, application_start(), application_end())
    assert [e["attributes"]["status.new"] for e in told(path)] == ["RUNNING", "FINISHED"]


def test_a_driver_that_was_killed_before_its_application_began_is_not_lost(tmp_path: Path) -> None:
    """Without an application there is nothing to lose."""
    path = tmp_path / "events.jsonl"
    kill_a_driver_that_said(path, {"kind": "of_the_future"})
    assert told(path) == []


def test_a_driver_that_dies_while_its_sidecar_starts_is_lost(tmp_path: Path) -> None:
    """What went before is said together with the first line; whose child it was born as, it is told."""
    path = tmp_path / "events.jsonl"
    settings = {"events.reporter.audit.type": "file", "events.reporter.audit.path": str(path)}
    known = enumerate((application_start(), query_started()), start=1)
    past = [{"kind": "restored", "record": {"seq": number, **record}} for number, record in known]
    arguments = [json.dumps(one) for one in (SIDECAR, hello(settings, restarts=1, sequence=3), past)]
    command = [sys.executable, "-c", DYING_PARENT, *arguments]
    died = subprocess.run(command, stdout=subprocess.PIPE, env=sidecar_environment(), check=False)
    assert died.returncode == 9
    sidecar = int(died.stdout)
    eventually(lambda: is_gone(sidecar), what="the sidecar is gone")
    (lost,) = told(path)
    assert (lost["name"], lost["severity"], lost["sequence"]) == ("JobStatusChangeEvent", "FATAL", 3)
    assert lost["attributes"]["status.new"] == "LOST"
    assert "query 'clicks'" in lost["body"]
