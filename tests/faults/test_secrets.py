"""What a setting keeps secret is told nobody, whatever is said about the reporter that has it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeDriver, application_start, goodbye, query_started, read_events

from spark_events import Event, Reporter
from spark_events.config import option, text

pytestmark = pytest.mark.faults

SECRET = "s3cr3t-T0K3N"


@dataclasses.dataclass(frozen=True)
class PagesConfig:
    url: str = option("url", text("an address"), doc="Who is paged.")


class Pages(Reporter):
    """Quotes its address in what it raises, as libraries do."""

    Config = PagesConfig

    def __init__(self, config: PagesConfig) -> None:
        super().__init__()
        self._url = config.url
        logging.getLogger("library").warning("pages %s", self._url)

    def report(self, events: Sequence[Event]) -> None:
        raise ValueError(f"unknown url type: {self._url!r}")


class CannotBeMade(Pages):
    """The same, at once."""

    def __init__(self, config: PagesConfig) -> None:
        raise ValueError(f"unknown url type: {config.url!r}")


def told(tmp_path: Path, **rude: str) -> tuple[list[Any], str, str]:
    """What the sidecar answers, what it writes to standard error, and the events of the reporter beside."""
    settings = {f"events.reporter.rude.{key.replace('_', '.')}": value for key, value in rude.items()}
    settings |= {
        "events.dispatcher.type": "async-queued",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(tmp_path / "events.jsonl"),
        "events.reporter.rude.circuit-breaker.failures": "1",
    }
    with FakeDriver(tmp_path / "stderr", settings) as driver:
        driver.tell(application_start(), *(query_started(f"r{n}", f"q{n}") for n in range(5)))
        driver.send(goodbye(2_000))
        driver.await_exit(within=20)
    return driver.answers, (tmp_path / "stderr").read_text(), str(read_events(tmp_path / "events.jsonl"))


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_an_error_that_quotes_a_secret_is_told_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """In its place stands the reference, as it was written."""
    monkeypatch.setenv("PAGER_TOKEN", SECRET)
    url = "https://pager/${env:PAGER_TOKEN}"
    answers, errors, events = told(tmp_path, type="faults.test_secrets:Pages", isolation=isolation, url=url)
    assert SECRET not in f"{answers}{errors}{events}"
    said = f"ValueError: unknown url type: '{url}'"
    assert any(said in one.get("message", "") for one in answers)
    assert any(f"pages {url}" in one.get("message", "") for one in answers)
    assert said in events


def test_a_reporter_that_cannot_be_made_is_told_of_without_its_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the driver's log and in the event at the others."""
    monkeypatch.setenv("PAGER_TOKEN", SECRET)
    kind, url = "faults.test_secrets:CannotBeMade", "https://pager/${env:PAGER_TOKEN}"
    answers, errors, events = told(tmp_path, type=kind, url=url)
    assert SECRET not in f"{answers}{errors}{events}"
    said = f"events.reporter.rude: the reporter cannot be made: ValueError: unknown url type: '{url}'"
    assert any(said in one.get("message", "") for one in answers)
    assert said in events


@pytest.mark.parametrize("key", ["password", "sslpassword"])
def test_a_database_s_address_has_no_password_in_its_query(tmp_path: Path, key: str) -> None:
    """It may stand there as well, for PostgreSQL."""
    pytest.importorskip("psycopg")
    answers, errors, events = told(
        tmp_path, type="database", url=f"postgresql://ada@127.0.0.1:9/events?{key}={SECRET}&sslmode=disable"
    )
    assert SECRET not in f"{answers}{errors}{events}"
    assert any("postgresql+psycopg://ada@127.0.0.1:9/events: " in one.get("message", "") for one in answers)
