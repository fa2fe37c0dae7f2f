"""Tests of the sidecar process, with a small driver at the other end of its pipes."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from fakes import (
    START,
    FakeDriver,
    application_end,
    application_start,
    counters_of,
    eventually,
    goodbye,
    hello,
    query_progress,
    query_started,
    query_terminated,
    read_events,
)
from lateness import Witness

from spark_events import __version__


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def errors(tmp_path: Path) -> Path:
    return tmp_path / "stderr.txt"


@pytest.fixture
def driver(path: Path, errors: Path) -> Iterator[FakeDriver]:
    with FakeDriver(errors, file_to(path)) as made:
        yield made


def file_to(path: Path, **more: str) -> dict[str, str]:
    return {"events.reporter.audit.type": "file", "events.reporter.audit.path": str(path), **more}


def statuses(path: Path) -> list[tuple[Any, Any]]:
    changes = [e["attributes"] for e in read_events(path) if e["name"] == "JobStatusChangeEvent"]
    return [(a["spark.entity"], a["spark.status.new"]) for a in changes]


def test_the_sidecar_reports_when_it_is_ready(driver: FakeDriver) -> None:
    """The sidecar's first answer is `ready` and contains its version and process id."""
    driver.await_answer("ready", version=__version__, pid=driver.process.pid)
    assert driver.answers[0]["kind"] == "ready"


def test_a_whole_application_is_reported_and_acknowledged(driver: FakeDriver, path: Path) -> None:
    """The file contains all acknowledged events, and the sidecar exits soon after the goodbye message."""
    last = driver.send_records(
        application_start(), query_started(), query_progress(0), query_terminated(), application_end()
    )
    driver.await_answer("ack", seq=last)
    events = read_events(path)
    assert [e["name"] for e in events] == [
        "JobStatusChangeEvent",
        "JobStatusChangeEvent",
        "BatchCommitEvent",
        "JobStatusChangeEvent",
        "JobStatusChangeEvent",
    ]
    assert [e["sequence"] for e in events] == [1, 2, 3, 4, 5]
    driver.send(goodbye(within_ms=60_000))
    assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    assert (report["name"], report["sequence"]) == ("DispatcherReportEvent", 6)
    assert report["body"] == "shop: events by reporter: audit 5 of 5 delivered"


def test_the_report_counts_records_that_made_no_event(driver: FakeDriver, path: Path) -> None:
    """The final report counts repeated and unknown records. These records are not an error."""
    driver.send_records(application_start(), query_started(), query_started(), {"kind": "of_the_future"})
    driver.send_records({"kind": "job_end", "job_id": 7, "time": START}, application_end())
    driver.send(goodbye(within_ms=60_000))
    assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    counted = {key: value for key, value in report["attributes"].items() if key.startswith("spark.events.records.")}
    wrong = dict.fromkeys(
        ["spark.events.records.illegal", "spark.events.records.without_start", "spark.events.records.unknown"], 1
    )
    assert counted == {**wrong, "spark.events.records.defective": 0, "spark.events.records.dropped": 0}
    assert report["body"].endswith("; 1 job finished without an event: start not recorded")


def test_the_report_includes_the_counts_of_earlier_sidecars(path: Path, errors: Path) -> None:
    """The final report adds the driver's drops and the settled events of earlier sidecars.

    The driver sends held events again.
    """
    settings = file_to(path)
    counted = {"accepted": 50, "delivered": 40, "dropped": 3, "dropped.rejected": 3, "failures": 2, "timeouts": 1}
    with FakeDriver(errors, greet=False) as driver:
        driver.send({**hello(settings), "before": {"audit": counted}})
        driver.send_records(application_start())
        driver.send({**goodbye(within_ms=60_000), "dropped": 1_007})
        assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    attributes = report["attributes"]
    assert counters_of(attributes, "audit") == {
        "accepted": 44,
        "delivered": 41,
        "dropped": {"rejected": 3},
        "failures": 2,
        "timeouts": 1,
        "held": 0,
        "spooled": 0,
    }
    assert (attributes["spark.events.lost"], attributes["spark.events.records.dropped"], report["severity"]) == (
        1_010,
        1_007,
        "WARN",
    )
    assert report["body"] == (
        "shop: events by reporter: audit 41 of 44 delivered, 3 lost;"
        " 1,007 records were lost before they reached a reporter"
    )


@pytest.mark.parametrize(("state", "old"), [(0, None), (1, "half-open"), (2, "open")])
def test_an_open_breaker_of_an_earlier_sidecar_is_reported_as_closed(
    path: Path, errors: Path, state: int, old: str | None
) -> None:
    before = {"audit": {"delivered": 4, "breaker": state}, "of another time": {"breaker": 2}}
    with FakeDriver(errors, greet=False) as driver:
        driver.send({**hello(file_to(path)), "before": before})
        driver.send_records(application_start())
        driver.send(goodbye(within_ms=60_000))
        assert driver.await_exit(within=20) == 0
    *_, report = events = read_events(path)
    changes = [one for one in events if one["name"] == "ReporterStatusChangeEvent"]
    assert [(one["severity"], one["body"]) for one in changes] == (
        [
            (
                "INFO",
                f"shop: the circuit breaker of reporter 'audit' went from {old} to closed: the sidecar was restarted",
            )
        ]
        if old
        else []
    )
    assert "spark.events.reporter.audit.breaker" not in report["attributes"]


def test_the_report_counts_drops_without_a_goodbye(path: Path, errors: Path) -> None:
    """If a killed driver sends no total, the report counts the drops in the records."""
    with FakeDriver(errors, file_to(path)) as driver:
        lost = {"kind": "dropped", "at": 1, "where": "handoff", "records": {"job_start": 3, "job_end": 2}}
        driver.await_answer("ack", seq=driver.send_records(application_start(), lost))
        driver.close_pipe()
        assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    assert (report["name"], report["attributes"]["spark.events.records.dropped"]) == ("DispatcherReportEvent", 5)


def test_acknowledgements_increase_and_contain_the_next_number(driver: FakeDriver) -> None:
    """Acknowledgements increase. Each contains the next event number, with which a restarted sidecar continues."""
    for record in (application_start(), {"kind": "of_the_future"}, query_started()):
        driver.await_answer("ack", seq=driver.send_records(record))
    acks = [(a["seq"], a["sequence"]) for a in driver.answers if a["kind"] == "ack"]
    assert acks == [(1, 2), (2, 2), (3, 3)]


def test_async_queued_acknowledges_after_delivery(path: Path, errors: Path) -> None:
    """With async-queued, the sidecar acknowledges a record after the reporter's thread has delivered its events."""
    with FakeDriver(errors, file_to(path, **{"events.dispatcher.type": "async-queued"})) as driver:
        driver.await_answer("ack", seq=driver.send_records(application_start()))
        assert statuses(path) == [("application", "RUNNING")]


def test_a_killed_sidecar_leaves_a_standing_failure_to_its_successor(path: Path, errors: Path) -> None:
    """A job's failure that a killed sidecar has reported still makes the application's end doubtful."""
    failed: dict[str, Any] = {"kind": "job_end", "job_id": 4, "time": START, "at": START}
    failed["failure"] = {"chain": [{"type": "a.B", "message": "m"}]}
    records = [application_start(), {"kind": "job_start", "job_id": 4, "time": START}, failed]
    with FakeDriver(errors, file_to(path)) as first:
        first.await_answer("ack", seq=first.send_records(*records))
        memory = first.await_answer("remember")["memory"]
    with FakeDriver(errors, greet=False) as second:
        second.send({**hello(file_to(path)), "memory": memory}, {"kind": "restored", "record": records[0]})
        second.await_answer("ack", seq=second.send_records(application_end("STOPPED")))
    found = [(event["severity"], event["attributes"].get("incident.role")) for event in read_events(path)]
    assert found[-2:] == [("INFO", None), ("ERROR", "alarm")]
    assert (
        read_events(path)[-1]["body"] == "shop: application ended after its last job failed: a.B: m; exit code unknown"
    )


def await_events(path: Path, count: int) -> None:
    eventually(lambda: path.exists() and len(read_events(path)) == count, what=f"{count} events")


def test_the_successor_of_a_killed_sidecar_repeats_the_numbers_of_all_its_records(
    path: Path, errors: Path, tmp_path: Path
) -> None:
    """The driver's queue limits records, not events: unacknowledged records get their numbers again.

    Each record makes two events, so that there are more events than records in the queue. No record is acknowledged,
    because the event of the first record is not delivered to one reporter.
    """
    size, portion = 400, 50
    hangs = {
        "events.dispatcher.queue.size": str(size),
        "events.reporter.stuck.type": "fakes:HangingReporter",
        "events.reporter.stuck.filter.includes": "spark.application",
    }
    failed = {"kind": "job_end", "time": START, "at": START, "failure": {"chain": [{"type": "a.B", "message": "m"}]}}
    records = [application_start(), *({**failed, "job_id": job} for job in range(size - portion))]

    def numbers_of(file: Path, sequence: int) -> dict[str, int]:
        with FakeDriver(errors, greet=False) as sidecar:
            sidecar.send({**hello(file_to(file, **hangs)), "sequence": sequence})
            for start in range(0, len(records), portion):
                sent = records[start : start + portion]
                sidecar.send_records(*sent)
                await_events(file, 2 * (start + len(sent)) - 1)
            sidecar.process.kill()
            sidecar.await_exit()
            given = [answer["sequence"] for answer in sidecar.answers if answer["kind"] == "ack"]
        sequences.append(max(given, default=sequence))
        return {event["event_id"]: event["sequence"] for event in read_events(file)}

    sequences: list[int] = []
    first = numbers_of(path, 1)
    assert sorted(first.values()) == list(range(1, 2 * len(records)))
    assert numbers_of(tmp_path / "again.jsonl", sequences[0]) == first


def test_a_reporter_s_program_does_not_read_the_records(path: Path, errors: Path) -> None:
    """A program that a reporter starts has an empty standard input, so only the sidecar reads records."""
    settings = file_to(path, **{"events.reporter.audit.type": "misbehaving:StartsAProgram"})
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ack", seq=driver.send_records(application_start(), query_started()))
        assert statuses(path) == [("application", "RUNNING"), ("query", "RUNNING")]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_reporter_s_program_can_be_terminated(path: Path, errors: Path, isolation: str) -> None:
    """Although the sidecar ignores signals, a program that a reporter starts does not, and can be terminated."""
    audit = {"events.reporter.audit.type": "misbehaving:EndsAProgram", "events.reporter.audit.isolation": isolation}
    with FakeDriver(errors, file_to(path, **audit)) as driver:
        driver.await_answer("ack", seq=driver.send_records(application_start()))
        assert statuses(path) == [("application", "RUNNING")]


def test_a_reporter_s_child_does_not_keep_the_pipes_open(path: Path, errors: Path) -> None:
    """If the sidecar is killed, both pipes close, even if a child process of a reporter survives."""
    settings = file_to(path, **{"events.reporter.audit.type": "misbehaving:LeavesAChild"})
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ack", seq=driver.send_records(application_start()))
        child = int(Path(f"{path}.child").read_text(encoding="ascii"))
        try:
            driver.process.kill()
            assert driver.await_exit() == -signal.SIGKILL
            assert driver.process.stdin is not None
            with pytest.raises(BrokenPipeError):
                os.write(driver.process.stdin.fileno(), b"one more\n")
        finally:
            os.kill(child, signal.SIGKILL)


def test_large_events_for_a_hanging_reporter_do_not_fill_the_memory(path: Path, errors: Path) -> None:
    """Large events for a hanging reporter are shed and counted, so memory stays bounded.

    The other reporters receive all events.
    """
    hanging = {"events.reporter.hanging.type": "misbehaving:BlocksPlain", "events.dispatcher.type": "async-queued"}
    with FakeDriver(errors, file_to(path, **hanging)) as driver:
        driver.await_answer("ready")
        before = psutil.Process(driver.process.pid).memory_info().rss
        body = {"name": "Own", "class_scope": "shop", "body": "x" * 2_000_000}
        last = 0
        for number in range(200):
            last = driver.send_records({"kind": "added", "at": 1, "event": {**body, "id": str(number)}})
        eventually(lambda: len(path.read_bytes().splitlines()) == last)
        taken = psutil.Process(driver.process.pid).memory_info().rss - before

        def dropped() -> dict[str, int]:
            stats = [answer["reporters"] for answer in driver.answers if answer["kind"] == "stats"]
            return {name: one["dropped"] for name, one in stats[-1].items()} if stats else {}

        eventually(lambda: dropped().get("hanging", 0) >= 150)
        assert dropped()["audit"] == 0
    # The events have a total size of 400 MB.
    assert taken < 200e6


def test_invalid_settings_are_rejected_with_all_reasons(errors: Path) -> None:
    """The answer to invalid settings contains all problems with the keys as written, and the process exits."""
    wrong = {"spark.events.dispatcher.type": "fast", "events.reporter.a.type": "file"}
    with FakeDriver(errors, wrong) as driver:
        reason = driver.await_answer("refused")["reason"]
        assert driver.await_exit() == 2
    assert "spark.events.dispatcher.type: given 'fast', expected one of sync, async-queued; set in a test" in reason
    assert "events.reporter.a.path: required, but not set" in reason
    assert errors.read_text() == ""


@pytest.mark.parametrize(
    "first", [hello({}, protocol=99), hello({}, version="0.0.9"), application_start(), b"GET / HTTP/1.1\n"]
)
def test_a_shim_of_another_version_is_rejected(errors: Path, first: Any) -> None:
    """A shim of another version is rejected, and the reason explains how to find the correct jar."""
    with FakeDriver(errors, greet=False) as driver:
        driver.send(first)
        reason = driver.await_answer("refused")["reason"]
        assert reason.startswith("the jar on the driver's class path is spark-events ")
        assert f"the Python package is {__version__}; no event is reported" in reason
        assert "`spark-events conf` prints the package's jar" in reason
        assert driver.await_exit() == 2


def test_a_pipe_closed_without_a_line_ends_the_sidecar(errors: Path) -> None:
    with FakeDriver(errors, greet=False) as driver:
        driver.close_pipe()
        assert driver.await_exit() == 0
        assert driver.answers == []


def test_a_live_driver_with_a_closed_pipe_is_not_lost(driver: FakeDriver, path: Path) -> None:
    """If the pipe closes while the driver still runs, the sidecar logs an error and does not report LOST."""
    driver.await_answer("ack", seq=driver.send_records(application_start()))
    driver.close_pipe()
    assert driver.await_exit() == 0
    assert "is still running" in driver.await_answer("log", level="ERROR")["message"]
    assert statuses(path) == [("application", "RUNNING")]


def test_a_jvm_shutdown_is_not_lost(driver: FakeDriver, path: Path) -> None:
    """A JVM shutdown without an end event of the application is reported as ENDED."""
    driver.send_records(application_start(), {"kind": "jvm_shutdown"})
    driver.close_pipe()
    assert driver.await_exit() == 0
    assert statuses(path) == [("application", "RUNNING"), ("application", "ENDED")]


def test_a_pipe_closed_after_the_end_changes_nothing(driver: FakeDriver, path: Path) -> None:
    """If the pipe closes after the application's end, the sidecar creates no further event."""
    driver.send_records(application_start(), application_end())
    driver.close_pipe()
    assert driver.await_exit() == 0
    assert statuses(path) == [("application", "RUNNING"), ("application", "FINISHED")]


def test_restored_records_are_not_reported_again(path: Path, errors: Path) -> None:
    with FakeDriver(errors, greet=False) as driver:
        driver.send(hello(file_to(path), sequence=41))
        driver.send({"kind": "restored", "record": {"seq": 1, **application_start()}})
        driver.send({"kind": "restored", "record": {"seq": 2, **query_started()}})
        driver.send({"seq": 7, **query_terminated()})
        driver.await_answer("ack", seq=7, sequence=42)
    (event,) = read_events(path)
    assert (event["sequence"], event["body"]) == (41, "shop: query 'clicks' finished")
    assert event["attributes"]["spark.status.old"] == "RUNNING"
    assert event["attributes"]["spark.app.name"] == "shop"


def test_damaged_lines_are_skipped(driver: FakeDriver, path: Path) -> None:
    """Invalid lines from the driver are skipped, and later records are reported."""
    driver.send(b"\n", b"{}\n", b"not json\n", b'{"kind":"restored","record":7}\n')
    driver.send(b'{"seq":1,"kind":"query_progress","progress":{"id":3}}\n')
    driver.send({"seq": 2, **application_start()})
    driver.await_answer("ack", seq=2)
    assert statuses(path) == [("application", "RUNNING")]


def test_a_reporter_that_prints_does_not_break_the_answers(errors: Path) -> None:
    """A reporter's standard output is redirected to the driver's standard error."""
    with FakeDriver(errors, {"events.reporter.p.type": "fakes:PrintingReporter"}) as driver:
        driver.await_answer("ack", seq=driver.send_records(application_start()))
        driver.send(goodbye())
        assert driver.await_exit() == 0
        assert driver.strays == []
        assert {a["kind"] for a in driver.answers} - {"read", "inspect"} == {"ready", "ack", "stats"}
        assert [a["seq"] for a in driver.answers if a["kind"] == "ack"] == [1]
    assert "printed 1" in errors.read_text()


def test_reporter_failures_are_in_the_driver_s_log(tmp_path: Path, errors: Path) -> None:
    """If a path is not writable, the driver's log contains the reporter and the path."""
    nowhere = tmp_path / "missing" / "events.jsonl"
    settings = file_to(nowhere, **{"events.shutdown.timeout": "1s", "events.dispatcher.type": "async-queued"})
    with FakeDriver(errors, settings) as driver:
        driver.send_records(application_start())
        message = driver.await_answer("log", level="ERROR")["message"]
        assert message.startswith("reporter audit: cannot be opened")
        assert str(nowhere) in message
        driver.send(goodbye(within_ms=500))
        assert driver.await_exit() == 0
        driver.await_answer(
            "log", message="reporter audit: 2 events were not delivered before the shutdown timeout and are lost"
        )


def test_a_refused_connection_does_not_delay_the_end(path: Path, errors: Path) -> None:
    """Refused connections do not delay the sidecar's exit.

    The other reporter receives every event, and lost events are counted.
    """
    with socket.socket() as nobody:
        # The socket is bound but does not listen: connections are refused, and no other process can use the port.
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        collector = {"type": "otlp", "endpoint": endpoint, "protocol": "http/protobuf"}
        settings = {**file_to(path), **{f"events.reporter.otlp.{key}": value for key, value in collector.items()}}
        with FakeDriver(errors, {**settings, "events.dispatcher.type": "async-queued"}) as driver:
            driver.send_records(application_start(), query_started())
            driver.await_answer("log", level="ERROR")
            driver.send_records(application_end())
            driver.send(goodbye(within_ms=120_000))
            assert driver.await_exit(within=60) == 0
    *_, report = read_events(path)
    changes = report["attributes"]
    # The count is at least 3, because it also includes the event about the opened breaker.
    otlp = counters_of(changes, "otlp")
    assert changes["spark.events.lost"] == otlp["dropped"]["shutdown"] == otlp["accepted"] >= 3


def test_without_reporters_events_go_to_the_driver_s_standard_error(errors: Path) -> None:
    """Without configured reporters, the default log reporter writes events to the driver's standard error."""
    with FakeDriver(errors) as driver:
        driver.await_answer("ack", seq=driver.send_records(application_start()))
    assert "INFO  JobStatusChangeEvent: Application 'shop' started" in errors.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_for_the_driver_do_not_end_the_sidecar(driver: FakeDriver, path: Path, number: int) -> None:
    """Ctrl-C and SIGTERM reach the whole process group. The sidecar must continue, to report how the driver ends."""
    driver.await_answer("ready")
    os.kill(driver.process.pid, number)
    driver.await_answer("ack", seq=driver.send_records(application_start(), application_end("SIGTERM")))
    driver.send(goodbye())
    assert driver.await_exit() == 0
    assert eventually(lambda: statuses(path))[-1] == ("application", "CANCELLED")


def test_the_report_counts_events_delivered_despite_a_requested_delay(path: Path, errors: Path) -> None:
    """If a destination requests a delay of one hour but accepts the events, the events do not count as lost."""
    settings = {**file_to(path), "events.reporter.t.type": "fakes:ThrottlingReporter"}
    with FakeDriver(errors, {**settings, "events.dispatcher.type": "async-queued"}) as driver:
        driver.send_records(application_start(), query_started())
        driver.await_answer("log", level="ERROR")
        driver.send(goodbye(within_ms=20_000))
        assert driver.await_exit(within=10) == 0
    *_, report = read_events(path)
    assert (report["severity"], report["attributes"]["spark.events.undelivered"]) == ("INFO", 0)
    assert counters_of(report["attributes"], "t")["delivered"] == 2


def test_a_breaker_that_opens_at_the_end_does_not_delay_other_reporters(path: Path, errors: Path) -> None:
    """If a breaker opens during shutdown, other reporters receive its event before the final report is created."""
    settings = {**file_to(path), "events.reporter.t.type": "misbehaving:RaisesAlways"}
    with FakeDriver(errors, {**settings, "events.dispatcher.type": "async-queued"}) as driver:
        driver.send_records(application_start(), query_started())
        driver.send(goodbye(within_ms=8_000))
        assert driver.await_exit(within=20) == 0
    *_, opened, report = read_events(path)
    assert (opened["name"], report["name"]) == ("ReporterStatusChangeEvent", "DispatcherReportEvent")
    assert report["body"].partition("; ")[0] == "shop: events by reporter: audit 3 of 3 delivered"
    assert report["body"].partition("; ")[2] == "t 0 of 3 delivered, 3 lost"


def test_the_report_counts_events_on_disk_as_not_delivered_yet(path: Path, errors: Path, tmp_path: Path) -> None:
    """The final report counts events that stay on disk for the next run as "not delivered yet"."""
    settings = {
        **file_to(path),
        "events.reporter.t.type": "misbehaving:RaisesAlways",
        "events.reporter.t.delivery.guarantee": "at-least-once",
        "events.reporter.t.spool.directory": str(tmp_path / "spool"),
    }
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ack", seq=driver.send_records(application_start(), query_started()))
        driver.send(goodbye(within_ms=8_000))
        assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    # The count is 3 if the breaker has already opened, otherwise 2.
    assert re.fullmatch(r"t 0 of (2|3) delivered, \1 on disk, not delivered yet", report["body"].rpartition("; ")[2])
    assert report["severity"] == "INFO"


@pytest.mark.parametrize("dispatcher", ["async-queued", "sync"])
def test_a_hanging_reporter_does_not_delay_the_end(errors: Path, path: Path, dispatcher: str, witness: Witness) -> None:
    """Despite a hanging reporter, the sidecar exits at the deadline, logs the loss, and delivers to other reporters."""
    settings = {
        "events.reporter.h.type": "fakes:HangingReporter",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(path),
        "events.dispatcher.type": dispatcher,
    }
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ready")
        deadline = time.monotonic() + 3
        driver.send_records(application_start())
        driver.send_records(query_started())
        driver.send(goodbye(within_ms=3_000))
        assert driver.await_exit() == 0
        # The deadline is much earlier than events.dispatcher.sync.timeout (10 s).
        assert witness.late(deadline) < 2
        driver.await_answer(
            "log", message="reporter h: 3 events were not delivered before the shutdown timeout and are lost"
        )
        assert [answer["message"] for answer in driver.answers if answer["kind"] == "log"] == [
            "reporter h: 3 events were not delivered before the shutdown timeout and are lost"
        ]
    assert [changes["name"] for changes in read_events(path)][:2] == ["JobStatusChangeEvent"] * 2
    # The report is sent in the last tenth of the time. On a slow machine, the report may be missing.
    last = read_events(path)[-1]["name"]
    assert last == "DispatcherReportEvent" or witness.took(deadline - 0.6, deadline) < 0.3
