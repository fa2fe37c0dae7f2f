"""Tests of ``spark-events send-test`` with reporters that deliver, fail, reject and block."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from reporters.peers.webhook import Receiver

from spark_events import Event, PermanentError, Reporter, ThrottledError
from spark_events.cli import main
from spark_events.cli.send_test import _failure
from spark_events.config import option, text


class Refusing(Reporter):
    async def report(self, events: Sequence[Event]) -> None:
        raise PermanentError("no such table")


class Throttling(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        raise ThrottledError("too many requests", 7)


class ThrottlingWithoutDelay(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        raise ThrottledError("quota exceeded", 0.0)


class Unreachable(Reporter):
    async def open(self) -> None:
        raise ConnectionRefusedError("nobody listens")

    def report(self, events: Sequence[Event]) -> None:
        raise AssertionError("it was never opened")


class Exiting(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        sys.exit("no licence")


class Cancelling(Reporter):
    async def report(self, events: Sequence[Event]) -> None:
        raise asyncio.CancelledError


@dataclasses.dataclass(frozen=True)
class QuotingConfig:
    """Settings of a reporter whose error quotes its URL."""

    url: str = option("url", text(), doc="Where.")


class Quoting(Reporter):
    Config = QuotingConfig

    def report(self, events: Sequence[Event]) -> None:
        raise ValueError(f"unknown url type: {self.config.url}\nand more")


class Blocking(Reporter):
    def report(self, events: Sequence[Event]) -> None:
        time.sleep(60)


def send(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str, **types: str) -> tuple[int, list[str]]:
    """Run the command, and return its exit code and the lines of its table."""
    conf = tmp_path / "spark-defaults.conf"
    extra = f"events.reporter.audit.path {tmp_path}/events.jsonl\n" if "audit" in types else ""
    conf.write_text(extra + "".join(f"events.reporter.{name}.type {given}\n" for name, given in types.items()))
    code = main(["send-test", "--conf", str(conf), *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_working_reporter_delivers_the_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (_, line) = send(tmp_path, capsys, audit="file")
    assert code == 0
    assert line.split()[:3] == ["audit", "file", "delivered"]
    (written,) = map(json.loads, (tmp_path / "events.jsonl").read_text().splitlines())
    assert (written["name"], written["attributes"]["spark.events.test"]) == ("TestEvent", True)


def test_the_event_contains_environment_and_tags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Receivers route alerts by them, so a test must show where the alerts of this configuration arrive."""
    options = ["--set", "events.environment=prod", "--set", "events.tags.team=data", "--set", "events.identity=team"]
    code, _ = send(tmp_path, capsys, *options, audit="file")
    (line,) = (tmp_path / "events.jsonl").read_text(encoding="utf-8").splitlines()
    found = json.loads(line)["attributes"]
    assert (code, found["deployment.environment.name"], found["spark.tag.team"]) == (0, "prod", "data")


def test_each_outcome_is_printed_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each rejected, throttled or failed reporter has one line. Lines are sorted by name, and the exit code is 1."""
    code, lines = send(
        tmp_path,
        capsys,
        audit="file",
        p=f"{__name__}:Refusing",
        t=f"{__name__}:Throttling",
        u=f"{__name__}:Unreachable",
        w=f"{__name__}:ThrottlingWithoutDelay",
    )
    assert code == 1
    found = [line.split(None, 2)[2] for line in lines[1:]]
    assert found[0].startswith("delivered ")
    assert found[1].startswith("refused (report)")
    assert found[1].endswith("no such table")
    assert found[2].startswith("throttled (report)")
    assert found[2].endswith("too many requests; the destination requests a retry in 7 s")
    assert found[3].startswith("failed (open)")
    assert found[3].endswith("ConnectionRefusedError: nobody listens")
    assert found[4].startswith("throttled (report)")
    assert found[4].endswith("quota exceeded")


def test_errors_outside_exception_are_reported_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SystemExit and cancellation in a reporter are reported at once; the command does not wait for the thread."""
    began = time.monotonic()
    code, (_, exits, cancels) = send(
        tmp_path, capsys, "--timeout", "60s", x=f"{__name__}:Exiting", z=f"{__name__}:Cancelling"
    )
    assert code == 1
    assert "failed (report)" in exits
    assert exits.endswith("RuntimeError: the reporter tried to end its process: SystemExit: no licence")
    assert "failed (report)" in cancels
    assert cancels.endswith("RuntimeError: cancelled by the reporter itself")
    assert time.monotonic() - began < 60


def test_values_of_references_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error that quotes the value of a reference is printed without this value, on one line per reporter."""
    monkeypatch.setenv("PAGER", "pager://ada:s3cret@host")
    reference = "events.reporter.q.url=${env:PAGER}"
    code, (_, line) = send(tmp_path, capsys, "--set", reference, q=f"{__name__}:Quoting")
    assert code == 1
    assert line.endswith("ValueError: unknown url type: ${env:PAGER} and more")


def test_blocked_reporter_does_not_block_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (_, audit, stuck) = send(tmp_path, capsys, "--timeout", "500ms", audit="file", b=f"{__name__}:Blocking")
    assert code == 1
    assert " delivered " in audit
    assert "failed (open or report)" in stuck
    assert "the reporter did not return and blocks its thread" in stuck


def test_an_unusable_reporter_has_a_row_and_other_reporters_are_tested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A disabled reporter has a row and sets the exit code to 1. The other reporters are tested."""
    code, (_, disabled, audit) = send(tmp_path, capsys, audit="file", out="file")
    assert code == 1
    assert disabled.split()[:3] == ["out", "file", "disabled"]
    assert "events.reporter.out.path: required, but not set" in disabled
    assert " delivered " in audit


def test_an_invalid_configuration_is_reported_before_any_event_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "spark-defaults.conf"
    conf.write_text("events.reporter.audit.type file\n")
    assert main(["send-test", "--conf", str(conf)]) == 1
    assert "events.reporter.audit.path: required, but not set" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["slack", "teams", "pagerduty", "alertmanager"])
def test_a_sample_failure_is_an_alert_and_its_recovery(form: str, tmp_path: Path) -> None:
    """People see what they will get, nothing stays open, and a second test is not suppressed by the first."""
    with Receiver() as receiver:
        lines = [
            "spark.events.environment staging",
            "spark.events.reporter.page.type webhook",
            f"spark.events.reporter.page.format {form}",
            f"spark.events.reporter.page.url {receiver.url}",
            f"spark.events.reporter.page.alerts.directory {tmp_path}",
            *(["spark.events.reporter.page.routing-key R"] if form == "pagerduty" else []),
        ]
        conf = tmp_path / "spark-defaults.conf"
        conf.write_text("\n".join(lines))
        for count in (2, 4):
            assert main(["send-test", "--conf", str(conf), "--sample", "failure"]) == 0
            assert len(receiver.bodies()) == count
        texts = [json.dumps(body) for body in receiver.bodies()]
    assert ["TestFailure: this is a test of reporter 'page'" in text for text in texts] == [True, False] * 2
    assert all("staging" in text for text in texts if "TestFailure" in text)


def test_the_sample_of_a_failure_is_like_a_real_one() -> None:
    """The code of the sample raises its own exception: the class follows from the place, and no rerun is advised."""
    alarm = _failure("page", {})[0]
    assert alarm.body.endswith("TestFailure: this is a test of reporter 'page'; no action needed (sample.py:16)")
    assert alarm.attributes["failure.location"] == "/jobs/sample.py:16 in book"
    assert (alarm.attributes["failure.class"], alarm.attributes["failure.evidence"]) == ("USER_CODE", "place")
    assert "failure.retry_useful" not in alarm.attributes
