"""Comparison of ``spark-events follow`` with the live reports of the same applications."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from fakes import read_events, sidecar_environment
from reporters.peers.webhook import Receiver
from spark.harness import PATIENT, Lab, Run, two_lines
from storages import Bucket, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.long, pytest.mark.timeout(1800)]

#: Programs, one after the other: their endings and exit codes. The query of `recovering` fails in its first run.
PROGRAMS = [("caught,finally", 1), ("recovering", 1), ("failed-query", 1), ("recovering,killed", 128 + 9)]
KILLS = 10
REFUNDS = "followed-recovering/query=book-refunds/failure"
LISTENER = b"io.sparkevents.EventsListener"
COMMAND = [sys.executable, "-c", "import sys; from spark_events.cli import main; sys.exit(main())", "follow"]


def reporters(receiver: Receiver, folder: Path) -> dict[str, str]:
    """Return the settings of a file and of a pager."""
    return {
        "spark.events.reporters": "audit, page",
        "spark.events.reporter.audit.type": "file",
        "spark.events.reporter.audit.path": str(folder / "events.jsonl"),
        "spark.events.reporter.page.type": "webhook",
        "spark.events.reporter.page.format": "pagerduty",
        "spark.events.reporter.page.url": receiver.url,
        "spark.events.reporter.page.routing-key": "r0uting",
        "spark.events.reporter.page.alerts.directory": str(folder / "alerts"),
    }


class Mirror:
    """Copy of a folder of event logs in a bucket, which shows the files as far as Spark has written them.

    The copy does not name the listener of spark-events, like the logs of applications that do not report live.
    """

    def __init__(self, folder: Path, bucket: Bucket) -> None:
        self._folder = folder
        self._bucket = bucket
        self._sizes: dict[str, int] = {}

    def renew(self) -> None:
        """Upload what has grown, then delete what Spark has renamed, as a rename in S3 does."""
        seen = {}
        for path in self._folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and not path.name.endswith(".crc"):
                    key, content = str(path.relative_to(self._folder)), path.read_bytes().replace(LISTENER, b"")
                    seen[key] = len(content)
                    if self._sizes.get(key) != len(content):
                        self._bucket.put(key, content)
        for key in self._sizes.keys() - seen.keys():
            self._bucket.delete(key)
        self._sizes = seen


def run_all(lab: Lab, defaults: dict[str, str], place: Path) -> list[Run]:
    """Run all programs, one after the other; every second one writes a log in parts."""
    runs = []
    for number, (endings, code) in enumerate(PROGRAMS):
        own = {**defaults, "spark.eventLog.rolling.enabled": str(number % 2 == 1).lower()}
        run = lab.run("followed.py", endings, str(place), defaults=own)
        assert run.process.returncode % 256 in (code, -signal.SIGKILL % 256), run.tail()
        runs.append(run)
    return runs


def follow(command: Sequence[str], notes: Path) -> None:
    """Look once."""
    with notes.open("ab") as output:
        done = subprocess.run(
            [*command, "--once"], stdout=output, stderr=output, check=False, env=sidecar_environment()
        )
    assert done.returncode == 0, notes.read_text()


def followed_while(
    running: Future[list[Run]], mirror: Mirror, command: Sequence[str], notes: Path, draw: random.Random
) -> None:
    """Follow the bucket while the programs run; kill the command at random moments, at least KILLS times."""
    kills = 0
    while not running.done() or kills < KILLS:
        with notes.open("ab") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, env=sidecar_environment())
        try:
            for _ in range(draw.randrange(5, 40)):
                mirror.renew()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
                    raise AssertionError(notes.read_text())
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        kills += 1


class Outcome:
    """What one way of reporting has delivered: events by id, how often each, and the requests to the pager."""

    def __init__(self, events: list[dict[str, Any]], requests: list[dict[str, Any]]) -> None:
        self.events = {event["event_id"]: event for event in events}
        self.times = Counter(event["event_id"] for event in events)
        self.requests = [(one["event_action"], one["dedup_key"]) for one in requests]

    def roles(self, role: str) -> dict[str, tuple[str, str]]:
        """Return severity and key of the events that have this role in an incident."""
        return {
            event_id: (event["severity"], event["attributes"]["incident.key"])
            for event_id, event in self.events.items()
            if event["attributes"].get("incident.role") == role
        }

    def requested(self, action: str) -> Counter[str]:
        """Return how often each alert was opened (``trigger``) or closed (``resolve``)."""
        return Counter(key for done, key in self.requests if done == action)


@pytest.fixture(scope="module")
def outcomes(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, Outcome]:
    """Run the programs with the listener, while their logs are followed; return what both have delivered."""
    folder = tmp_path_factory.mktemp("compared")
    live, followed, logs = folder / "live", folder / "followed", folder / "logs"
    for one in (live, followed, logs):
        one.mkdir()
    with Receiver() as pager, Receiver() as other_pager, s3_server(folder) as filesystem:
        settings = {
            **two_lines(),
            **PATIENT,
            **reporters(pager, live),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": logs.as_uri(),
            "spark.eventLog.compress": "false",
        }
        mirror = Mirror(logs, Bucket(filesystem, "spark-logs"))
        conf = folder / "follow.conf"
        conf.write_text("".join(f"{key} {value}\n" for key, value in reporters(other_pager, followed).items()))
        command = [*COMMAND, "s3://spark-logs", "--conf", str(conf), "--state", str(folder / "state")]
        notes = folder / "notes"
        follow(command, notes)
        running = lab.background(run_all, lab, settings, live)
        followed_while(running, mirror, [*command, "--every", "200ms"], notes, random.Random(5))
        running.result()
        mirror.renew()
        follow([*command, "--lost-after", "1ms"], notes)
        return (
            Outcome(read_events(live / "events.jsonl"), pager.bodies()),
            Outcome(read_events(followed / "events.jsonl"), other_pager.bodies()),
        )


def test_no_event_is_missing_or_invented(outcomes: tuple[Outcome, Outcome]) -> None:
    """Only what a log cannot tell is missing: the deliveries, and the exit code that a query's failure has caused."""
    live, followed = outcomes
    assert followed.events.keys() <= live.events.keys()
    for event_id in live.events.keys() - followed.events.keys():
        event = live.events[event_id]
        is_by_exit_code = event["attributes"].get("incident.role") == "consequence"
        assert event["name"] == "DispatcherReportEvent" or is_by_exit_code, event
    assert {event["attributes"]["spark.app.name"] for event in followed.events.values()} == {
        f"followed-{ending}" for endings, _ in PROGRAMS for ending in endings.split(",")
    }
    differing = [
        event_id
        for event_id, event in followed.events.items()
        if event["severity"] != live.events[event_id]["severity"]
    ]
    assert differing == []


def test_alarms_are_those_of_the_live_run(outcomes: tuple[Outcome, Outcome]) -> None:
    """The same alarms with the same ids, severities and keys, each of which the pager has received once."""
    live, followed = outcomes
    assert followed.roles("alarm") == live.roles("alarm")
    assert [key for _, key in sorted(live.roles("alarm").values())] == [
        "followed-failed-query/query=book-payments/failure",
        "followed-finally/failure",
        "followed-recovering/query=book-refunds/failure",
        "followed-killed/failure",
    ]
    assert followed.requested("trigger") == live.requested("trigger")
    assert set(live.requested("trigger").values()) == {1}


def test_alarms_are_closed_as_in_the_live_run(outcomes: tuple[Outcome, Outcome]) -> None:
    """A commit closes the alarm of its query; that an application has succeeded is not in its log.

    A request that closes an alert can be repeated after a kill, since the reporter remembers only open alerts.
    """
    live, followed = outcomes
    assert followed.roles("recovery").items() <= live.roles("recovery").items()
    for event_id in live.roles("recovery").keys() - followed.roles("recovery").keys():
        assert live.events[event_id]["attributes"]["spark.app.end_reason"] == "STOPPED"
    for outcome in outcomes:
        trigger = outcome.requests.index(("trigger", f"spark-events:{REFUNDS}"))
        assert ("resolve", f"spark-events:{REFUNDS}") in outcome.requests[trigger:]
    unknown = live.requested("resolve") - followed.requested("resolve")
    assert all("/query=" not in key for key in unknown), unknown
    assert followed.requested("resolve").keys() <= live.requested("resolve").keys()


def test_kills_repeat_few_events(outcomes: tuple[Outcome, Outcome]) -> None:
    """A kill repeats at most what was delivered after the last position was stored."""
    _, followed = outcomes
    assert sum(followed.times.values()) - len(followed.times) <= len(followed.times) / 2
