"""Tests that the next run of an application reports the loss of the previous run, with real sidecars."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import FakeDriver, application_end, application_start, decoded, eventually, goodbye, hello, read_events

from spark_events import Event, Severity
from spark_events.clocks import Clocks, boot
from spark_events.config import Secret
from spark_events.dispatch.spool.ownership import driver_identity
from spark_events.records.types import ApplicationStart
from spark_events.reporters.database.database_config import DatabaseConfig
from spark_events.sidecar.predecessors import Predecessors
from spark_events.translate.translator import Translator
from spark_events.watch.lost import lost_event
from spark_events.watch.marks import MarkConfig, Marks

ABOUT: dict[str, Any] = {
    "app_id": "first",
    "app_name": "shop",
    "attempt_id": None,
    "user": "",
    "time": time.time_ns() // 1_000_000,
    "spark_version": "",
}


def start(app_id: str, **changes: Any) -> dict[str, Any]:
    now = time.time_ns() // 1_000_000
    return application_start(app_id=app_id, time=now, at=now, **changes)


def id_of_lost(app_id: str) -> str:
    about = ApplicationStart(**{**ABOUT, "app_id": app_id})
    return lost_event(about, {}, 0, 0, "").event_id


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


def has_event(path: Path, app_id: str, name: str) -> bool:
    # The table may not exist yet.
    with contextlib.closing(sqlite3.connect(path)) as database, contextlib.suppress(sqlite3.OperationalError):
        found = "SELECT count(*) FROM spark_events WHERE app_id = ? AND name = ?"
        return bool(database.execute(found, [app_id, name]).fetchone()[0])
    return False


def kill_together(
    folder: Path, settings: dict[str, str], app_id: str = "first", has_reported: Callable[[], bool] = lambda: True
) -> Path:
    """Run an application whose driver and sidecar die at the same time; return the folder of its mark."""
    mark = folder
    victim = subprocess.Popen(["sleep", "600"])
    try:
        with driver(folder, settings, pid=victim.pid) as made:
            made.await_answer("read", seq=made.send_records(start(app_id)))
            if "events.reporter.audit.spool.directory" in settings:
                mark = Path(made.await_answer("mark")["folder"])
            if "events.reporter.db.type" in settings:
                name = "HeartbeatEvent" if "events.heartbeat.interval" in settings else "JobStatusChangeEvent"
                eventually(lambda: has_event(folder / "events.db", app_id, name), what=name)
            eventually(has_reported, what="its report")
            made.process.kill()
            made.process.wait()
    finally:
        victim.kill()
        victim.wait()
    return mark


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
    assert sum(f"cannot read {mark.parent}, so a lost earlier run is not reported" in line for line in lines) == 1


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


@pytest.mark.parametrize("heartbeats", [{}, {"events.heartbeat.interval": "1h"}])
def test_a_loss_has_the_key_of_the_lost_run(tmp_path: Path, heartbeats: dict[str, str]) -> None:
    """Environment and tags are part of the key of a lost run, with and without heartbeats."""
    names = {"events.environment": "prod", "events.tags.team": "data", "events.identity": "team"}
    settings = in_database(tmp_path) | names | {"events.application.unique": "true"} | heartbeats
    kill_together(tmp_path, settings)
    with driver(tmp_path, settings) as made:
        made.send_records(start("second"))
        (event,) = eventually(lambda: lost(tmp_path), what="LOST")
        ends(made)
    assert event["attributes"]["incident.key"] == "environment=prod/team=data/shop/failure"


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


def test_an_end_that_the_driver_stored_is_reported_late(tmp_path: Path) -> None:
    """If the sidecar dies for good and the driver ends in order, the next run reports the end, and no loss.

    The event has the id of the sidecar's own event. It closes no incident, because the next run may have failed before.
    """
    settings = in_spool(tmp_path)
    end = application_end("RETURNED")
    (kill_together(tmp_path, settings) / "end.json").write_text(json.dumps({"seq": 7, **end}) + "\n")
    with driver(tmp_path, settings) as made:
        made.send_records(start("second"))
        (late,) = eventually(lambda: ends_of(tmp_path, "first"), what="the end")
        eventually(lambda: len([*(tmp_path / "spool").rglob("start.json")]) == 1, what="the deletion of the mark")
        ends(made)
    translator = Translator()
    translator.translate(decoded(start("first")))
    (own,) = translator.translate(decoded(end))
    assert late["event_id"] == own.event_id
    assert late["attributes"]["spark.status.new"] == "FINISHED"
    assert late["body"] == f"{own.body} (reported by the next run, because the sidecar had died)"
    assert not [name for name in late["attributes"] if name.startswith("incident.")]
    assert lost(tmp_path) == []
    assert [*(tmp_path / "spool").rglob("*.json")] == []


def ends_of(folder: Path, app_id: str) -> list[dict[str, Any]]:
    return [
        event
        for event in read_events(folder / "events.jsonl")
        if event["attributes"].get("spark.app.id") == app_id and event["attributes"].get("spark.status.old")
    ]


def test_a_loss_is_reported_again_if_the_next_run_is_killed_before_all_reporters_have_it(tmp_path: Path) -> None:
    """The evidence of a loss is deleted only after every reporter has settled the event, or at an orderly end."""
    settings = in_spool(tmp_path)
    hanging = {**settings, "events.reporter.slow.type": "fakes:HangingReporter"}
    mark = kill_together(tmp_path, settings)
    kill_together(tmp_path, hanging, "second", has_reported=lambda: bool(lost(tmp_path)))
    assert (mark / "start.json").exists()
    with driver(tmp_path, {**hanging, "events.shutdown.timeout": "1s"}) as made:
        made.send_records(start("third"))
        eventually(lambda: len(lost(tmp_path)) == 3, what="both losses")
        made.send_records(application_end())
        made.send(goodbye(1_000))
        assert made.await_exit() == 0
    found = [event["event_id"] for event in lost(tmp_path)]
    assert sorted(set(found)) == sorted({id_of_lost("first"), id_of_lost("second")})
    assert found.count(id_of_lost("second")) == 1
    assert [*(tmp_path / "spool").rglob("*.json")] == []


def test_a_run_of_another_environment_keeps_the_evidence(tmp_path: Path) -> None:
    """A run reports only runs with its own incident key, whose attributes the LOST event has."""
    begun, reported = ApplicationStart(**ABOUT), list[Event]()
    scopes = [{"deployment.environment.name": name, "incident.key": f"shop/{name}"} for name in ("prod", "test")]

    def report(events: Sequence[Event], settled: Callable[[], None]) -> None:
        reported.extend(events)
        settled()

    def run(app_id: str, scope: dict[str, str]) -> Predecessors:
        made = Predecessors(tmp_path, [], False, "", report)
        made.begin(msgspec.structs.replace(begun, app_id=app_id), scope)
        return made

    first = Marks(tmp_path, begun, scopes[0], f"{boot()} 999999999 1", Clocks(), MarkConfig())
    mark = first.place()
    assert mark is not None
    assert first._own is not None
    first._own.release()  # as after a kill
    run("other", scopes[1]).join()
    assert reported == []
    run("next", scopes[0]).join()
    (event,) = reported
    assert event.event_id == id_of_lost("first")
    assert scopes[0].items() <= event.attributes.items()
    assert not mark.exists()


def test_an_earlier_application_of_the_same_driver_is_not_lost(tmp_path: Path) -> None:
    """A driver that starts a second context is alive, so its first application has ended, with an unknown outcome."""
    this = driver_identity(os.getpid())
    first = Marks(tmp_path, ApplicationStart(**ABOUT), {}, this, Clocks(), MarkConfig())
    first.place()
    assert first._own is not None
    first._own.release()
    second = Marks(tmp_path, ApplicationStart(**{**ABOUT, "app_id": "b"}), {}, this, Clocks(), MarkConfig())
    assert second.place() is not None
    (left,) = second.left()
    (event,) = left.events()
    assert (event.attributes["spark.status.new"], event.severity) == ("ENDED", Severity.INFO)


def test_a_loss_is_reported_although_the_spool_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a read-only file system, a loss is reported, and one warning says that the next run reports it again."""
    first = Marks(tmp_path, ApplicationStart(**ABOUT), {}, f"{boot()} 999999999 1", Clocks(), MarkConfig())
    mark = first.place()
    assert mark is not None
    assert first._own is not None
    first._own.release()
    read_only, real = OSError(errno.EROFS, "Read-only file system"), os.open

    def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise read_only
        return real(path, flags, *rest, **more)

    def refused(path: Path, *_: Any, **__: Any) -> None:
        if not path.is_dir():
            raise read_only

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", opened)
        patched.setattr(Path, "unlink", refused)
        patched.setattr(Path, "mkdir", refused)
        second = Marks(tmp_path, ApplicationStart(**{**ABOUT, "app_id": "b"}), {}, "", Clocks(), MarkConfig())
        assert second.place() is None
        (left,) = second.left()
        assert left.events()[0].event_id == id_of_lost("first")
        left.delete()
    assert (mark / "start.json").exists()
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "cannot mark this run as running, so the next run may not report a loss of this run",
        f"cannot delete {mark}, so the next run reports this loss again",
    ]


def test_a_database_that_does_not_answer_does_not_keep_a_run_marked_as_running(tmp_path: Path) -> None:
    """A run that ends while its thread waits for the database is not LOST for the next run."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = Secret(f"postgresql+psycopg://user@127.0.0.1:{server.getsockname()[1]}/events")
        run = Predecessors(tmp_path, [DatabaseConfig(url)], False, "", lambda *_: None)
        run.begin(ApplicationStart(**ABOUT), {})
        with server.accept()[0]:  # the connection of the thread, which now waits for the first answer
            assert len(list(tmp_path.rglob("start.json"))) == 1
            run.join()
            assert list(tmp_path.rglob("*")) == []
