"""Tests that secrets in a reporter's settings appear in no message and no event."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeDriver, application_start, eventually, goodbye, query_started, read_events
from missing import need

from spark_events import Event, Reporter
from spark_events.config import option, text

pytestmark = pytest.mark.faults

SECRET = "s3cr3t-T0K3N"


@dataclasses.dataclass(frozen=True)
class PagesConfig:
    url: str = option("url", text("an address"), doc="Who is paged.")


class Pages(Reporter):
    """Reporter whose errors and log messages contain its URL, as in many libraries."""

    Config = PagesConfig

    def __init__(self, config: PagesConfig) -> None:
        super().__init__()
        self._url = config.url
        logging.getLogger("library").warning("pages %s", self._url)

    def report(self, events: Sequence[Event]) -> None:
        raise ValueError(f"unknown url type: {self._url!r}")


class CannotBeMade(Pages):
    """Reporter whose constructor raises an error that contains its URL."""

    def __init__(self, config: PagesConfig) -> None:
        raise ValueError(f"unknown url type: {config.url!r}")


def outputs(tmp_path: Path, message: str, **rude: str) -> tuple[list[Any], str, str]:
    """Return the sidecar's answers, its errors, and the events of another reporter, once they have the message."""
    settings = {f"events.reporter.rude.{key.replace('_', '.')}": value for key, value in rude.items()}
    settings |= {
        "events.dispatcher.type": "async-queued",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(tmp_path / "events.jsonl"),
        "events.reporter.rude.circuit-breaker.failures": "1",
    }
    with FakeDriver(tmp_path / "stderr", settings) as driver:
        driver.send_records(application_start(), *(query_started(f"r{n}", f"q{n}") for n in range(5)))
        eventually(lambda: any(message in one.get("message", "") for one in driver.answers), what=message)
        audit = tmp_path / "events.jsonl"
        eventually(lambda: audit.exists() and message in str(read_events(audit)), what=message)
        driver.send(goodbye(2_000))
        driver.await_exit()
    return driver.answers, (tmp_path / "stderr").read_text(), str(read_events(audit))


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_secrets_in_errors_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str) -> None:
    """Error messages contain only scheme and host of a URL."""
    monkeypatch.setenv("PAGER_TOKEN", SECRET)
    url = "https://pager/${env:PAGER_TOKEN}"
    message = "ValueError: unknown url type: 'https://pager/…'"
    kind = "faults.test_secrets:Pages"
    answers, errors, events = outputs(tmp_path, message, type=kind, isolation=isolation, url=url)
    assert SECRET not in f"{answers}{errors}{events}"
    assert any("pages https://pager/…" in one.get("message", "") for one in answers)


def test_secrets_in_constructor_errors_are_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a constructor raises an error, neither the driver's log nor events of other reporters contain the secret."""
    monkeypatch.setenv("PAGER_TOKEN", SECRET)
    kind, url = "faults.test_secrets:CannotBeMade", "https://pager/${env:PAGER_TOKEN}"
    message = "events.reporter.rude: the reporter cannot be created: ValueError: unknown url type: 'https://pager/…'"
    answers, errors, events = outputs(tmp_path, message, type=kind, url=url)
    assert SECRET not in f"{answers}{errors}{events}"


@pytest.mark.parametrize("key", ["password", "sslpassword"])
def test_passwords_in_a_url_s_query_are_masked(tmp_path: Path, key: str) -> None:
    need("psycopg")
    url = f"postgresql://ada@127.0.0.1:9/events?{key}={SECRET}&sslmode=disable"
    answers, errors, events = outputs(tmp_path, "postgresql://127.0.0.1:9: ", type="database", url=url)
    assert SECRET not in f"{answers}{errors}{events}"
