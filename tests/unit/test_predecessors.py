"""Tests that the next run of an application reports the loss of the previous run, with real sidecars."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeDriver, application_end, application_start, eventually, goodbye, hello, read_events

from spark_events.bridge.records import ApplicationStart
from spark_events.config import Secret
from spark_events.reporters.database.config import DatabaseConfig
from spark_events.watch.predecessors import Predecessors
from spark_events.watch.sightings import lost_event

NOW = time.time_ns() // 1_000_000


def start(app_id: str, **changes: Any) -> dict[str, Any]:
    now = time.time_ns() // 1_000_000
    return application_start(app_id=app_id, time=now, at=now, **changes)


def id_of_lost(app_id: str) -> str:
    about = ApplicationStart(app_id=app_id, app_name="shop", attempt_id=None, user="", time=0, spark_version="")
    return lost_event(about, 0, 0, "").event_id


def in_spool(folder: Path) -> dict[str, str]:
    return {
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(folder / "events.jsonl"),
        "events.reporter.audit.delivery.guarantee": "at-least-once",
        "events.reporter.audit.spool.directory": str(folder / "spool"),
    }


def in_database(folder: Path) -> dict[str, str]:
    return {
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(folder / "events.jsonl"),
        "events.reporter.db.type": "database",
        "events.reporter.db.url": f"sqlite:///{folder}/events.db",
        "events.reporter.db.batch.linger": "0ms",
        "events.reporter.db.heartbeats": "true",
    }


@contextmanager
def driver(folder: Path, settings: dict[str, str], *, pid: int | None = None) -> Iterator[FakeDriver]:
    with FakeDriver(folder / "errors", greet=False) as made:
        made.send(hello(settings, application="shop", driver=os.getpid() if pid is None else pid))
        made.await_answer("ready")
        yield made


def ends(made: FakeDriver) -> None:
    made.send_records(application_end())
    made.send(goodbye())
    assert made.await_exit() == 0


def kill_together(folder: Path, settings: dict[str, str], app_id: str = "first") -> None:
    """Run an application whose driver and sidecar die at the same time."""
    victim = subprocess.Popen(["sleep", "600"])
    try:
        with driver(folder, settings, pid=victim.pid) as made:
            made.await_answer("ack", seq=made.send_records(start(app_id)))
            if "events.reporter.audit.spool.directory" in settings:
                eventually(lambda: [*(folder / "spool").rglob("start.json")], what="its mark")
            made.process.kill()
            made.process.wait()
    finally:
        victim.kill()
        victim.wait()


def lost(folder: Path) -> list[dict[str, Any]]:
    return [e for e in read_events(folder / "events.jsonl") if e["attributes"].get("spark.status.new") == "LOST"]


def test_a_spool_without_an_end_of_the_predecessor(tmp_path: Path) -> None:
    """On startup, the next run reports a lost run once, with the event id of a sidecar's LOST event."""
    settings = in_spool(tmp_path)
    kill_together(tmp_path, settings)
    for app_id in ("second", "third"):
        with driver(tmp_path, settings) as made:
            made.send_records(start(app_id))
            eventually(lambda: lost(tmp_path), what="LOST")
            ends(made)
    (event,) = lost(tmp_path)
    assert (event["event_id"], event["severity"]) == (id_of_lost("first"), "FATAL")
    assert event["attributes"]["spark.app.id"] == "first"
    assert event["body"] == (
        "Application 'shop' is lost: its driver died without reporting its end; detected at the start of the next run"
    )
    assert [*(tmp_path / "spool").rglob("start.json")] == []


def test_an_unreadable_mark_of_the_predecessor_is_logged(tmp_path: Path) -> None:
    """A lost run whose file is incomplete, for example because the disk was full, is not reported, but logged."""
    settings = in_spool(tmp_path)
    kill_together(tmp_path, settings)
    (mark,) = (tmp_path / "spool").rglob("start.json")
    mark.write_text("{")
    with driver(tmp_path, settings) as made:
        made.send_records(start("second"))
        ends(made)
    assert lost(tmp_path) == []
    lines = [answer["message"] for answer in made.answers if answer["kind"] == "log"]
    # The spool may log its own line: the first run was possibly killed before it deleted its delivered event.
    assert sum(f"cannot read {mark}, so a lost earlier run is not reported" in line for line in lines) == 1


def test_a_sign_of_life_that_cannot_be_stored_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the file of the run was deleted, for example by a clean-up of the folder, one warning is logged."""
    run = Predecessors(tmp_path, [], False, "", lambda _: None)
    for _ in range(2):
        run._touch(tmp_path / "start.json")
    (record,) = caplog.records
    assert "so the next run may not report a loss of this run" in record.getMessage()


def test_a_restarted_sidecar_is_not_a_loss(tmp_path: Path) -> None:
    """A restarted sidecar, or a running application with the same name, causes no LOST event."""
    settings = in_spool(tmp_path)
    with driver(tmp_path, settings) as other:
        other.await_answer("ack", seq=other.send_records(start("other")))
        for _ in range(2):
            with driver(tmp_path, settings) as made:
                made.await_answer("ack", seq=made.send_records(start("first")))
                eventually(lambda: len([*(tmp_path / "spool").rglob("start.json")]) == 2, what="two marks")
        with driver(tmp_path, settings) as made:
            made.send_records(start("first"))
            ends(made)
        ends(other)
    assert lost(tmp_path) == []


@pytest.mark.parametrize("is_unique", [True, False])
def test_a_database_without_an_end_of_the_predecessor(tmp_path: Path, is_unique: bool) -> None:
    """A lost run is reported at once if its name is unique, otherwise when its heartbeats are overdue."""
    settings = in_database(tmp_path) | {"events.heartbeat.interval": "500ms"}
    if is_unique:
        settings |= {"events.heartbeat.interval": "1h", "events.application.unique": "true"}
    kill_together(tmp_path, settings)
    with driver(tmp_path, settings) as made:
        made.send_records(start("second"))
        (event,) = eventually(lambda: lost(tmp_path), what="LOST")
        ends(made)
    assert event["event_id"] == id_of_lost("first")
    with driver(tmp_path, settings) as made:
        made.send_records(start("third"))
        ends(made)
    assert len(lost(tmp_path)) == 1


def test_a_database_with_a_running_application_of_the_same_name(tmp_path: Path) -> None:
    """Without heartbeats, another application of the same name is not reported, because nothing proves its loss."""
    settings = in_database(tmp_path)
    with driver(tmp_path, settings) as other:
        other.await_answer("ack", seq=other.send_records(start("other")))
        with driver(tmp_path, settings) as made:
            made.send_records(start("second"))
            ends(made)
        ends(other)
    assert lost(tmp_path) == []


def test_a_database_that_does_not_answer_does_not_keep_a_run_marked_as_running(tmp_path: Path) -> None:
    """A run that ends while its thread waits for the database is not LOST for the next run."""
    begun = ApplicationStart(app_id="app", app_name="shop", attempt_id=None, user="", time=NOW, spark_version="")
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = Secret(f"postgresql+psycopg://user@127.0.0.1:{server.getsockname()[1]}/events")
        run = Predecessors(tmp_path, [DatabaseConfig(url)], False, "", lambda _: None)
        run.begin(begun)
        with server.accept()[0]:  # the connection of the thread, which now waits for the first answer
            assert len(list(tmp_path.rglob("start.json"))) == 1
            run.join()
            assert list(tmp_path.rglob("*")) == []
