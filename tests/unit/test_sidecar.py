"""The sidecar as the process that it is, with a small driver at the other end of its pipes."""

from __future__ import annotations

import contextlib
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
    eventually,
    goodbye,
    hello,
    query_progress,
    query_started,
    query_terminated,
    read_events,
    two_processors,
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
    told = [e["attributes"] for e in read_events(path) if e["name"] == "JobStatusChangeEvent"]
    return [(a["spark.entity"], a["status.new"]) for a in told]


def test_it_says_when_it_is_ready(driver: FakeDriver) -> None:
    """The first answer is its verdict on itself: its version and its process."""
    driver.await_answer("ready", version=__version__, pid=driver.process.pid)
    assert driver.answers[0]["kind"] == "ready"


def test_a_whole_application_is_reported_and_acknowledged(driver: FakeDriver, path: Path) -> None:
    """Records go in, events are in the file when they are acknowledged, and the end is quick."""
    last = driver.tell(application_start(), query_started(), query_progress(0), query_terminated(), application_end())
    driver.await_answer("ack", through=last)
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
    assert report["body"] == "Events by reporter: audit 5 of 5 delivered"


def test_the_report_counts_records_that_made_no_event(driver: FakeDriver, path: Path) -> None:
    """What was told twice and what is not known is no crash, but it is not hidden either."""
    driver.tell(application_start(), query_started(), query_started(), {"kind": "of_the_future"})
    driver.tell({"kind": "job_end", "job_id": 7, "time": START}, application_end())
    driver.send(goodbye(within_ms=60_000))
    assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    counted = {key: value for key, value in report["attributes"].items() if key.startswith("records.")}
    wrong = dict.fromkeys(["records.illegal", "records.without_start", "records.unknown"], 1)
    assert counted == {**wrong, "records.defective": 0, "records.dropped": 0}
    assert report["body"].endswith("; 1 job finished without an event, because the start was not seen")


def test_the_report_counts_what_predecessors_have_done(path: Path, errors: Path) -> None:
    """What had come to its end with them; what they held was sent again. And what the driver has dropped."""
    settings = file_to(path)
    counted = {"accepted": 50, "delivered": 40, "dropped": 3, "dropped.rejected": 3, "failures": 2, "timeouts": 1}
    with FakeDriver(errors, greet=False) as driver:
        driver.send({**hello(settings), "restarts": 1, "before": {"audit": counted}})
        driver.tell(application_start())
        driver.send({**goodbye(within_ms=60_000), "dropped": 1_007})
        assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    attributes = report["attributes"]
    assert {key: attributes[f"reporter.audit.{key}"] for key in (*counted, "held") if key != "dropped"} == {
        "accepted": 44,
        "delivered": 41,
        "dropped.rejected": 3,
        "failures": 2,
        "timeouts": 1,
        "held": 0,
    }
    assert (attributes["lost"], attributes["records.dropped"], report["severity"]) == (1_010, 1_007, "WARN")
    assert report["body"] == (
        "Events by reporter: audit 41 of 44 delivered, 3 lost; 1,007 records were lost on the way to them"
    )


@pytest.mark.parametrize(("state", "old"), [(0, None), (1, "half-open"), (2, "open")])
def test_a_breaker_that_was_open_with_a_predecessor_is_told_as_closed(
    path: Path, errors: Path, state: int, old: str | None
) -> None:
    """It ended with the predecessor: whoever has read that it is open would go on believing it."""
    before = {"audit": {"delivered": 4, "breaker": state}, "of another time": {"breaker": 2}}
    with FakeDriver(errors, greet=False) as driver:
        driver.send({**hello(file_to(path)), "restarts": 1, "before": before})
        driver.tell(application_start())
        driver.send(goodbye(within_ms=60_000))
        assert driver.await_exit(within=20) == 0
    *_, report = events = read_events(path)
    told = [one for one in events if one["name"] == "ReporterStatusChangeEvent"]
    assert [(one["severity"], one["body"]) for one in told] == (
        [("INFO", f"The circuit breaker of reporter 'audit' went from {old} to closed: the sidecar was started anew")]
        if old
        else []
    )
    assert "reporter.audit.breaker" not in report["attributes"]


def test_records_that_were_dropped_are_in_the_report_without_a_goodbye(path: Path, errors: Path) -> None:
    """The driver is gone and cannot say how many there were in all; those are counted that it had told."""
    with FakeDriver(errors, file_to(path)) as driver:
        lost = {"kind": "dropped", "at": 1, "where": "handoff", "records": {"job_start": 3, "job_end": 2}}
        driver.await_answer("ack", through=driver.tell(application_start(), lost))
        driver.close_pipe()
        assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    assert (report["name"], report["attributes"]["records.dropped"]) == ("DispatcherReportEvent", 5)


def test_acknowledgements_rise_and_carry_the_next_number(driver: FakeDriver) -> None:
    """A successor can go on counting from the last acknowledgement."""
    for record in (application_start(), {"kind": "of_the_future"}, query_started()):
        driver.await_answer("ack", through=driver.tell(record))
    acks = [(a["through"], a["sequence"]) for a in driver.answers if a["kind"] == "ack"]
    assert acks == [(1, 2), (2, 2), (3, 3)]


def test_async_queued_acknowledges_when_it_has_delivered(path: Path, errors: Path) -> None:
    """With async-queued the answer comes from the reporter's own thread."""
    with FakeDriver(errors, file_to(path, **{"events.dispatcher.type": "async-queued"})) as driver:
        driver.await_answer("ack", through=driver.tell(application_start()))
        assert statuses(path) == [("application", "RUNNING")]


@pytest.mark.skipif(not two_processors(), reason="needs Linux and two processors to choose one")
@pytest.mark.parametrize("wanted", [True, False])
def test_who_only_needs_the_interpreter_runs_where_events_are_made(path: Path, errors: Path, wanted: bool) -> None:
    """A file; not one that is compressed beside it, nor what reports elsewhere, nor who watches over all."""
    settings = {
        **file_to(path),
        "events.sidecar.affinity": str(wanted).lower(),
        "events.reporter.packed.type": "file",
        "events.reporter.packed.path": f"{path}.2",
        "events.reporter.packed.rotation.max-size": "1g",
        "events.reporter.packed.rotation.compress": "true",
        "events.reporter.far.type": "misbehaving:StartsAProgram",
        "events.reporter.far.path": f"{path}.3",
    }
    anywhere = os.sched_getaffinity(0)
    seen: list[list[set[int]]] = []
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ack", through=driver.tell(application_start()))
        process = driver.process.pid

        def kept() -> list[set[int]]:
            found = []
            for task in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    found.append(os.sched_getaffinity(int(task.name)))
            return [processors for processors in found if processors != anywhere]

        def has_looked() -> bool:
            seen.append(kept())
            return len(seen[-1]) == 2 if wanted else time.monotonic() > began + 2

        began = time.monotonic()
        # Where others want that processor at that moment, it is tried again.
        eventually(has_looked, within=60)
    assert max(map(len, seen)) == (2 if wanted else 0)
    assert all(len(processors) == 1 for processors in seen[-1])
    assert len(set(map(frozenset, seen[-1]))) == (1 if wanted else 0)


def test_a_program_that_a_reporter_starts_does_not_read_the_records(path: Path, errors: Path) -> None:
    """Its standard input is empty: what the driver says is meant for the sidecar."""
    settings = file_to(path, **{"events.reporter.audit.type": "misbehaving:StartsAProgram"})
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ack", through=driver.tell(application_start(), query_started()))
        assert statuses(path) == [("application", "RUNNING"), ("query", "RUNNING")]


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_program_that_a_reporter_starts_can_be_ended(path: Path, errors: Path, isolation: str) -> None:
    """The sidecar leaves the driver's signals alone; that is no matter of those programs."""
    audit = {"events.reporter.audit.type": "misbehaving:EndsAProgram", "events.reporter.audit.isolation": isolation}
    with FakeDriver(errors, file_to(path, **audit)) as driver:
        driver.await_answer("ack", through=driver.tell(application_start()))
        assert statuses(path) == [("application", "RUNNING")]


def test_a_child_that_a_reporter_leaves_does_not_stand_for_the_sidecar(path: Path, errors: Path) -> None:
    """When the sidecar is killed, the driver learns it by both pipes, whatever lives on of it."""
    settings = file_to(path, **{"events.reporter.audit.type": "misbehaving:LeavesAChild"})
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ack", through=driver.tell(application_start()))
        child = int(Path(f"{path}.child").read_text(encoding="ascii"))
        try:
            driver.process.kill()
            assert driver.await_exit() == -signal.SIGKILL
            assert driver.process.stdin is not None
            with pytest.raises(BrokenPipeError):
                os.write(driver.process.stdin.fileno(), b"one more\n")
        finally:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_child_that_comes_back_from_a_call_delivers_nothing(path: Path, errors: Path, isolation: str) -> None:
    """Every event is there once, though there were two after each call."""
    audit = {"events.reporter.audit.type": "misbehaving:ComesBackTwice", "events.reporter.audit.isolation": isolation}
    with FakeDriver(errors, file_to(path, **audit)) as driver:
        for record in (application_start(), query_started("r1", "q1"), query_started("r2", "q2")):
            driver.await_answer("ack", through=driver.tell(record))
        driver.send(goodbye(within_ms=60_000))
        assert driver.await_exit(within=20) == 0
    assert [e["sequence"] for e in read_events(path)] == [1, 2, 3, 4]


def test_large_events_for_a_reporter_that_hangs_do_not_fill_the_memory(path: Path, errors: Path) -> None:
    """What the driver's container may have is the driver's. The others get all of them; what is shed is counted."""
    hanging = {"events.reporter.hanging.type": "misbehaving:BlocksPlain", "events.dispatcher.type": "async-queued"}
    with FakeDriver(errors, file_to(path, **hanging)) as driver:
        driver.await_answer("ready")
        before = psutil.Process(driver.process.pid).memory_info().rss
        body = {"name": "Own", "class_scope": "shop", "body": "x" * 2_000_000}
        last = 0
        for number in range(200):
            last = driver.tell({"kind": "added", "at": 1, "event": {**body, "id": str(number)}})
        eventually(lambda: len(path.read_bytes().splitlines()) == last)
        taken = psutil.Process(driver.process.pid).memory_info().rss - before

        def dropped() -> dict[str, int]:
            stats = [answer["reporters"] for answer in driver.answers if answer["kind"] == "stats"]
            return {name: one["dropped"] for name, one in stats[-1].items()} if stats else {}

        eventually(lambda: dropped().get("hanging", 0) >= 150)
        assert dropped()["audit"] == 0
    # All of them would be 400 MB.
    assert taken < 200e6


def test_settings_that_cannot_be_used_are_refused_with_all_reasons(errors: Path) -> None:
    """The one answer has every problem, with the keys as they were given, and the process ends."""
    wrong = {"spark.events.dispatcher.type": "fast", "events.reporter.a.type": "file"}
    with FakeDriver(errors, wrong) as driver:
        reason = driver.await_answer("refused")["reason"]
        assert driver.await_exit() == 2
    assert "spark.events.dispatcher.type: given 'fast', allowed is one of sync, async-queued; set in a test" in reason
    assert "events.reporter.a.path: required, but not set" in reason
    assert errors.read_text() == ""


@pytest.mark.parametrize("first", [hello({}, protocol=99), application_start(), b"GET / HTTP/1.1\n"])
def test_a_shim_of_another_version_is_refused(errors: Path, first: Any) -> None:
    """Jar and package must belong together; the reason says what to do."""
    with FakeDriver(errors, greet=False) as driver:
        driver.send(first)
        assert (
            "do not belong together; take the jar that `spark-events conf` names"
            in driver.await_answer("refused")["reason"]
        )
        assert driver.await_exit() == 2


def test_a_pipe_without_a_single_line_is_the_end(errors: Path) -> None:
    """A driver that dies before it says anything leaves nothing behind."""
    with FakeDriver(errors, greet=False) as driver:
        driver.close_pipe()
        assert driver.await_exit() == 0
        assert driver.answers == []


def test_a_driver_that_lives_on_is_not_lost(driver: FakeDriver, path: Path) -> None:
    """A pipe that closes while its driver lives is said in the log, and is no LOST."""
    driver.await_answer("ack", through=driver.tell(application_start()))
    driver.close_pipe()
    assert driver.await_exit() == 0
    assert "lives on" in driver.await_answer("log", level="ERROR")["message"]
    assert statuses(path) == [("application", "RUNNING")]


def test_a_jvm_that_said_that_it_goes_down_is_not_lost(driver: FakeDriver, path: Path) -> None:
    """An orderly shutdown without an end of the application is ENDED."""
    driver.tell(application_start(), {"kind": "jvm_shutdown"})
    driver.close_pipe()
    assert driver.await_exit() == 0
    assert statuses(path) == [("application", "RUNNING"), ("application", "ENDED")]


def test_an_application_that_was_over_stays_over(driver: FakeDriver, path: Path) -> None:
    """Behind the end, a closed pipe means nothing."""
    driver.tell(application_start(), application_end())
    driver.close_pipe()
    assert driver.await_exit() == 0
    assert statuses(path) == [("application", "RUNNING"), ("application", "FINISHED")]


def test_what_is_restored_is_known_but_not_reported_again(path: Path, errors: Path) -> None:
    """A successor goes on with the numbers and the knowledge of the one that died."""
    with FakeDriver(errors, greet=False) as driver:
        driver.send(hello(file_to(path), sequence=41, restarts=1))
        driver.send({"kind": "restored", "record": {"seq": 1, **application_start()}})
        driver.send({"kind": "restored", "record": {"seq": 2, **query_started()}})
        driver.send({"seq": 7, **query_terminated()})
        driver.await_answer("ack", through=7, sequence=42)
    (event,) = read_events(path)
    assert (event["sequence"], event["body"]) == (41, "Query 'clicks' finished")
    assert event["attributes"]["status.old"] == "RUNNING"
    assert event["attributes"]["spark.app.name"] == "shop"


def test_damaged_lines_do_no_harm(driver: FakeDriver, path: Path) -> None:
    """What cannot be understood is passed over, and what comes behind it is reported."""
    driver.send(b"\n", b"{}\n", b"not json\n", b'{"kind":"restored","record":7}\n')
    driver.send(b'{"seq":1,"kind":"query_progress","progress":{"id":3}}\n')
    driver.send({"seq": 2, **application_start()})
    driver.await_answer("ack", through=2)
    assert statuses(path) == [("application", "RUNNING")]


def test_a_reporter_that_prints_does_not_break_the_answers(errors: Path) -> None:
    """What a reporter writes to standard output goes where the driver's errors go."""
    with FakeDriver(errors, {"events.reporter.p.type": "fakes:PrintingReporter"}) as driver:
        driver.await_answer("ack", through=driver.tell(application_start()))
        driver.send(goodbye())
        assert driver.await_exit() == 0
        assert driver.strays == []
        assert {a["kind"] for a in driver.answers} - {"read"} == {"ready", "ack", "stats"}
        assert [a["through"] for a in driver.answers if a["kind"] == "ack"] == [1]
    assert "printed 1" in errors.read_text()


def test_what_a_reporter_suffers_is_said_in_the_driver_s_log(tmp_path: Path, errors: Path) -> None:
    """A path that cannot be written is a line in the driver's log with the reporter and the path."""
    nowhere = tmp_path / "missing" / "events.jsonl"
    settings = file_to(nowhere, **{"events.shutdown.timeout": "1s", "events.dispatcher.type": "async-queued"})
    with FakeDriver(errors, settings) as driver:
        driver.tell(application_start())
        message = driver.await_answer("log", level="ERROR")["message"]
        assert message.startswith("reporter audit: cannot be opened")
        assert str(nowhere) in message
        driver.send(goodbye(within_ms=500))
        assert driver.await_exit() == 0
        driver.await_answer("log", message="reporter audit: 2 events were not delivered in time and are lost")


def test_a_refused_connection_costs_the_end_little(path: Path, errors: Path) -> None:
    """The rest of its time is for destinations that answer; the others have everything, and the loss is counted."""
    with socket.socket() as nobody:
        # Bound and not listening: every connection is refused, and no other process gets the port.
        nobody.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        collector = {"type": "otlp", "endpoint": endpoint, "protocol": "http/protobuf"}
        settings = {**file_to(path), **{f"events.reporter.otlp.{key}": value for key, value in collector.items()}}
        with FakeDriver(errors, {**settings, "events.dispatcher.type": "async-queued"}) as driver:
            driver.tell(application_start(), query_started())
            driver.await_answer("log", level="ERROR")
            driver.tell(application_end())
            driver.send(goodbye(within_ms=120_000))
            assert driver.await_exit(within=60) == 0
    *_, report = read_events(path)
    told = report["attributes"]
    # An open breaker is an event, too.
    assert told["lost"] == told["reporter.otlp.dropped.shutdown"] == told["reporter.otlp.accepted"] >= 3


def test_without_reporters_events_go_to_the_driver_s_standard_error(errors: Path) -> None:
    """One line in spark-defaults.conf is enough: the default is a log."""
    with FakeDriver(errors) as driver:
        driver.await_answer("ack", through=driver.tell(application_start()))
    assert "INFO  JobStatusChangeEvent: Application 'shop' started" in errors.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_that_are_meant_for_the_driver_do_not_end_it(driver: FakeDriver, path: Path, number: int) -> None:
    """Ctrl-C and SIGTERM reach the whole group; the sidecar must see the driver's end and report it."""
    driver.await_answer("ready")
    os.kill(driver.process.pid, number)
    driver.await_answer("ack", through=driver.tell(application_start(), application_end("SIGTERM")))
    driver.send(goodbye())
    assert driver.await_exit() == 0
    assert eventually(lambda: statuses(path))[-1] == ("application", "CANCELLED")


def test_the_report_has_what_is_delivered_in_spite_of_a_pause(path: Path, errors: Path) -> None:
    """The destination has asked for an hour and takes everything a moment later: nothing is told as lost."""
    settings = {**file_to(path), "events.reporter.t.type": "fakes:ThrottlingReporter"}
    with FakeDriver(errors, {**settings, "events.dispatcher.type": "async-queued"}) as driver:
        driver.tell(application_start(), query_started())
        driver.await_answer("log", level="ERROR")
        driver.send(goodbye(within_ms=20_000))
        assert driver.await_exit(within=10) == 0
    *_, report = read_events(path)
    assert (report["severity"], report["attributes"]["undelivered"]) == ("INFO", 0)
    assert report["attributes"]["reporter.t.delivered"] == 2


def test_who_has_taken_all_is_not_told_as_late_for_a_breaker_that_opens_at_the_end(path: Path, errors: Path) -> None:
    """The event of that is made when the others are done, and they take it before the books are told."""
    settings = {**file_to(path), "events.reporter.t.type": "misbehaving:RaisesAlways"}
    with FakeDriver(errors, {**settings, "events.dispatcher.type": "async-queued"}) as driver:
        driver.tell(application_start(), query_started())
        driver.send(goodbye(within_ms=8_000))
        assert driver.await_exit(within=20) == 0
    *_, opened, report = read_events(path)
    assert (opened["name"], report["name"]) == ("ReporterStatusChangeEvent", "DispatcherReportEvent")
    assert report["body"].partition("; ")[0] == "Events by reporter: audit 3 of 3 delivered"
    assert report["body"].partition("; ")[2] == "t 0 of 3 delivered, 3 lost"


def test_the_report_does_not_foretell_what_becomes_of_what_is_on_disk(path: Path, errors: Path, tmp_path: Path) -> None:
    """Behind it the reporter is tried once more: only what it does not take then is left to the next start."""
    settings = {
        **file_to(path),
        "events.reporter.t.type": "misbehaving:RaisesAlways",
        "events.reporter.t.delivery.guarantee": "at-least-once",
        "events.reporter.t.spool.directory": str(tmp_path / "spool"),
    }
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ack", through=driver.tell(application_start(), query_started()))
        driver.send(goodbye(within_ms=8_000))
        assert driver.await_exit(within=20) == 0
    *_, report = read_events(path)
    # A third where its breaker has opened by then.
    assert re.fullmatch(r"t 0 of (2|3) delivered, \1 on disk, not delivered yet", report["body"].rpartition("; ")[2])
    assert report["severity"] == "INFO"


@pytest.mark.parametrize("dispatcher", ["async-queued", "sync"])
def test_a_reporter_that_hangs_does_not_outlast_the_goodbye(
    errors: Path, path: Path, dispatcher: str, witness: Witness
) -> None:
    """The driver waits so long and no longer; what is lost is said, and the others get everything in that time."""
    settings = {
        "events.reporter.h.type": "fakes:HangingReporter",
        "events.reporter.audit.type": "file",
        "events.reporter.audit.path": str(path),
        "events.dispatcher.type": dispatcher,
    }
    with FakeDriver(errors, settings) as driver:
        driver.await_answer("ready")
        deadline = time.monotonic() + 3
        driver.tell(application_start())
        driver.tell(query_started())
        driver.send(goodbye(within_ms=3_000))
        assert driver.await_exit() == 0
        # Well before events.dispatcher.sync.timeout, which is 10 s.
        assert witness.late(deadline) < 2
        driver.await_answer("log", message="reporter h: 3 events were not delivered in time and are lost")
        assert [answer["message"] for answer in driver.answers if answer["kind"] == "log"] == [
            "reporter h: 3 events were not delivered in time and are lost"
        ]
    assert [told["name"] for told in read_events(path)][:2] == ["JobStatusChangeEvent"] * 2
    # For this one a tenth of that time is left, behind all others; where the machine stood still, nothing.
    last = read_events(path)[-1]["name"]
    assert last == "DispatcherReportEvent" or witness.took(deadline - 0.6, deadline) < 0.3
