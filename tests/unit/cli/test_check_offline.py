"""Tests of ``spark-events check --offline``: the file of another machine, checked in CI."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import ROOT

from spark_events.cli import main

PRODUCTION = """
spark.extraListeners io.sparkevents.EventsListener
spark.driver.extraClassPath /opt/spark-events/spark-events-shim.jar
spark.events.python /opt/spark-events/bin/python
spark.events.environment prod
spark.events.tags.team payments
spark.events.link.history https://history.example.com
spark.events.link.runbook https://wiki.example.com/runbook
spark.events.reporter.audit.type file
spark.events.reporter.audit.path /nowhere/events.jsonl
spark.events.reporter.page.type webhook
spark.events.reporter.page.format pagerduty
spark.events.reporter.page.url https://events.pagerduty.com/v2/enqueue
spark.events.reporter.page.routing-key ${file:/run/secrets/pagerduty}
spark.events.reporter.page.tls.ca /etc/ssl/company.pem
spark.events.reporter.page.delivery.guarantee at-least-once
spark.events.reporter.slack.type webhook
spark.events.reporter.slack.format slack
spark.events.reporter.slack.url ${env:SLACK_WEBHOOK_OF_PRODUCTION}
"""


def check(folder: Path, text: str, *arguments: str) -> int:
    path = folder / "production.conf"
    path.write_text(text, encoding="utf-8")
    return main(["check", "--conf", str(path), *arguments])


def test_the_file_of_another_machine_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the option, the same file has the problems of this machine."""
    assert check(tmp_path, PRODUCTION, "--offline") == 0
    printed = capsys.readouterr().out
    assert "spark.events.reporter.page.routing-key, spark.events.reporter.slack.url" in printed
    assert "advice" not in printed
    rows = [line.split() for line in printed.splitlines()]
    assert ["page", "webhook", "at-least-once", "thread"] in rows
    assert ["slack", "webhook", "best-effort", "thread"] in rows
    assert check(tmp_path, PRODUCTION) == 1
    assert "no such file: /opt/spark-events/spark-events-shim.jar" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("spark.events.reporter.page.cooldown soon", "cooldown"),
        ("spark.events.reporter.page.routing_key x", "routing_key: unknown key"),
        ("spark.events.dispatcher.typ sync", "did you mean spark.events.dispatcher.type?"),
        ("spark.extraListeners com.acme.Listener", "io.sparkevents.EventsListener is missing"),
    ],
)
def test_a_mistake_is_found(line: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(tmp_path, f"{PRODUCTION}{line}\n", "--offline") == 1
    assert problem in capsys.readouterr().out


def test_the_documented_file_of_the_watcher_is_valid(tmp_path: Path) -> None:
    """A file that configures only reporters needs no listener."""
    page = (ROOT / "docs" / "watch.md").read_text(encoding="utf-8")
    text = page.partition("# /etc/spark-events-watch.conf")[2].partition("\n")[2].partition("```")[0]
    assert "spark.events.reporter" in text
    assert check(tmp_path, text, "--offline") == 0


def test_alerts_without_links_and_tags_get_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(line for line in PRODUCTION.splitlines() if "link" not in line and "tags" not in line)
    assert check(tmp_path, text, "--offline") == 0
    printed = capsys.readouterr().out
    assert [part in printed for part in ("link.history: not set", "link.runbook: not set", "tags.<name>")] == [True] * 3


def test_a_reporter_whose_only_url_is_elsewhere_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default reporter, which runs if none is configured, is not."""
    text = "events.reporter.page.type webhook\nevents.reporter.page.format slack\nevents.reporter.page.url ${env:URL}\n"
    assert check(tmp_path, text, "--offline") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row for row in rows if row[1:2] in (["webhook"], ["log"])] == [["page", "webhook", "best-effort", "thread"]]
