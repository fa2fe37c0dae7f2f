"""Tests of drivers in a container, where the kernel kills all processes as soon as the first process exits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from missing import missing
from spark.harness import PATIENT, Lab, Run, file_reporter, pyspark_home, two_lines, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(600)]

#: A process namespace behaves like a container: when its first process exits, the kernel kills all others.
_CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
#: The environment is like a pod with a security context: a read-only root, one volume, and a user without a home. As in
#: Spark's image, /etc/passwd contains the user. The user can read all files, because this machine's Python may be in
#: /root.
_USER = 12345
_RESTRICTED = f"""
set -e
export TMPDIR="$PWD/tmp" JAVA_TOOL_OPTIONS="-Djava.io.tmpdir=$PWD/tmp"
mkdir -p "$TMPDIR"
cp /etc/passwd passwd
echo "random:x:{_USER}:0::/nonexistent:/bin/sh" >> passwd
chown -Rh {_USER} .
mount --bind . "$PWD"
mount --bind passwd /etc/passwd
mount -o remount,bind,ro /
cd "$PWD"
exec setpriv --reuid {_USER} --regid 0 --clear-groups \
    --inh-caps=-all,+dac_read_search --ambient-caps=-all,+dac_read_search -- "$@"
"""


@pytest.fixture(scope="module", autouse=True)
def _container() -> None:
    """Skip the tests if this user may not create a process namespace."""
    if shutil.which("unshare") is None or subprocess.run([*_CONTAINER, "true"], check=False).returncode:
        missing("this user may not create a process namespace (needs unshare and CAP_SYS_ADMIN)")


def _run(lab: Lab, how: str) -> Run:
    return lab.run("ending_hooked.py", "configure", how, program=[*_CONTAINER, sys.executable])


@pytest.mark.parametrize(
    ("how", "code", "status", "exit_code"),
    [
        ("return", 0, "ENDED", None),
        ("raise", 1, "FAILED", 1),
        ("exit-3", 3, "FAILED", 3),
        ("stop", 0, "FINISHED", None),
    ],
)
def test_the_end_is_reported(lab: Lab, how: str, code: int, status: str, exit_code: int | None) -> None:
    """In a container, an application's end is reported, because Python waits until the last event is delivered."""
    run = _run(lab, how)
    assert run.process.returncode == code, run.tail()
    *_, event = run.named("JobStatusChangeEvent", spark_entity="application")
    attributes = event["attributes"]
    assert (attributes["spark.status.new"], attributes.get("spark.app.exit_code")) == (status, exit_code)
    failures = run.named("JobFailureEvent", spark_entity="application")
    assert [failure["attributes"].get("exception.type") for failure in failures] == (
        ["ValueError"] if how == "raise" else [None] * (status == "FAILED")
    )


def _restricted(lab: Lab, job: str, *arguments: str) -> Run:
    """Start a job as in examples/kubernetes/: the job writes only to one volume."""
    settings = {
        **two_lines(),
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl"), "async-queued"),
        "events.heartbeat.interval": "5s",
        "events.reporter.audit.heartbeats": "true",
        "events.reporter.audit.delivery.guarantee": "at-least-once",
        "events.reporter.audit.spool.directory": "{folder}/spool",
        "spark.local.dir": "{folder}/tmp",
    }
    variables: dict[str, str | None] = {"HOME": None, "XDG_STATE_HOME": None, "USER": None}
    submit = str(pyspark_home() / "bin" / "spark-submit")
    program = [*_CONTAINER, "sh", "-c", _RESTRICTED, "sh", submit]
    return lab.start(job, *arguments, defaults=settings, env=variables, program=program)


def test_restricted_container_reports_its_end(lab: Lab) -> None:
    """A container with a read-only root, without a home or a user name, reports the end of its application."""
    run = _restricted(lab, "ending.py", "stop")
    assert run.wait() == 0, run.tail()
    assert run.own_messages == []
    *_, event = run.named("JobStatusChangeEvent", spark_entity="application")
    assert event["attributes"]["spark.status.new"] == "FINISHED"
    assert (run.folder / "events.jsonl").stat().st_uid == _USER


def test_restricted_container_killed_as_a_group(lab: Lab) -> None:
    """If all processes of a container are killed, the watcher reads the files in the volume and reports LOST."""
    run = _restricted(lab, "starved.py")
    run.wait_for("a heartbeat", lambda: run.named("HeartbeatEvent"))
    # Kill the namespace's first process directly: since the process has changed its user, it would survive unshare.
    (first,) = psutil.Process(run.process.pid).children()
    first.kill()
    wait_for("the container to be gone", lambda: not run.processes())
    (reported,) = wait_for("the report of the watcher", lambda: _watched(run.folder))
    assert reported["attributes"]["spark.status.new"] == "LOST"


def _lost(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["attributes"].get("spark.status.new") == "LOST"]


def _watched(folder: Path) -> list[dict[str, Any]]:
    """Run the watcher once on a folder, as cron does, and return the printed events."""
    program = "import sys; from spark_events.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "watch", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_driver_and_sidecar_killed_together(lab: Lab, tmp_path: Path) -> None:
    """If driver and sidecar are killed together, the watcher and the next run report LOST with the same event id."""
    settings = {
        **two_lines(),
        **PATIENT,
        **file_reporter(Path("{folder}/events.jsonl"), "async-queued"),
        "events.heartbeat.interval": "5s",
        "events.reporter.audit.heartbeats": "true",
        "events.reporter.audit.delivery.guarantee": "at-least-once",
    }
    submit = str(pyspark_home() / "bin" / "spark-submit")
    state: dict[str, str | None] = {"XDG_STATE_HOME": str(tmp_path)}
    killed = lab.start("starved.py", defaults=settings, env=state, program=[*_CONTAINER, submit])
    killed.wait_for("a heartbeat", lambda: killed.named("HeartbeatEvent"))
    assert _watched(killed.folder) == []
    killed.process.kill()
    wait_for("the container to be gone", lambda: not killed.processes())
    last = max(event["observed_ts_millis"] for event in killed.named("HeartbeatEvent"))
    (reported,) = wait_for("the report of the watcher", lambda: _watched(killed.folder))
    assert reported["attributes"]["spark.status.new"] == "LOST"
    assert reported["severity"] == "FATAL"
    # The time of the LOST event is the driver's last known activity.
    assert reported["observed_ts_millis"] == last
    assert _watched(killed.folder) == []

    successor = lab.start("starved.py", defaults=settings, env=state)
    (early,) = successor.wait_for("the report of the next run", lambda: _lost(successor.events()))
    assert early["event_id"] == reported["event_id"]
    assert "starved" in early["body"]
    successor.command("release")
    assert successor.wait() == 0, successor.tail()
