"""Tests of a reporter in its own process: it behaves like a reporter in a thread, and recovers from faults."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from fakes import FaultyReporter, balances, event, eventually, is_gone, read_events
from misbehaving import UnprintableError

from spark_events import Event, PermanentError, Severity, ThrottledError
from spark_events.config import Setting
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.process import messages
from spark_events.dispatch.process.child import Child
from spark_events.dispatch.process.process_reporter import ProcessReporter
from spark_events.dispatch.reporter_calls import most_of
from spark_events.errors import ReporterProcessError
from unit.dispatch.conftest import Begin

#: Timeout of a hanging reporter, in seconds. Even on a busy machine, Python starts faster.
SHORT = 10.0
Start = Callable[..., Delivery]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture(autouse=True)
def _none_is_left() -> Iterator[None]:
    """Fail if a process still runs after ``begin`` has stopped all deliveries."""
    yield
    eventually(lambda: not children(), what="every process to be gone")


@pytest.fixture
def start(path: Path, begin: Begin) -> Start:
    """Return a function that starts a delivery to a process."""

    def _start(kind: str = "misbehaving:Obedient", **config: Any) -> Delivery:
        writes = kind.endswith(("Obedient", "MadeLater"))
        settings = [Setting("events.reporter.isolated.path", str(path), "a test")] if writes else []
        times = {"timeout": 60.0, "retry_initial": 0.001, "retry_max": 0.01, **config}
        return begin("isolated", lambda: ProcessReporter("isolated", kind, settings), 1000, **times)

    return _start


def children() -> list[psutil.Process]:
    """Return the processes of the reporter "isolated", including zombies."""
    found = []
    for process in psutil.Process().children():
        # A process may end between these two calls.
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE or "isolated" in process.cmdline():
                found.append(process)
    return found


def child() -> psutil.Process:
    (only,) = eventually(children, what="the reporter's process")
    return only


def entries(*events: Event) -> list[Entry]:
    return [Entry(number, one) for number, one in enumerate(events, 1)]


def delivered(path: Path) -> list[str]:
    return [one["body"] for one in read_events(path)]


def test_events_arrive_unchanged(start: Start, path: Path) -> None:
    """Events arrive in the process as the same bytes as in a thread: all fields, all attribute types, in order."""
    events = [event(n, Severity.ERROR, text="\u2028é", whole=2**62, part=0.1, yes=True) for n in range(700)]
    delivery = start()
    delivery.put(entries(*events))
    assert delivery.wait_until_settled(20)
    assert path.read_bytes() == msgspec.json.Encoder().encode_lines(events)
    assert delivery.counters().delivered == 700


@pytest.mark.parametrize(
    ("order", "what"),
    [
        ("exit", "its process exited with code 3"),
        ("segfault", "its process was killed by signal 11 (SIGSEGV)"),
        ("kill", "its process was killed by signal 9 (SIGKILL)"),
        ("answer nonsense", "because its answer is invalid: message of 4,294,967,295 bytes exceeds the limit of"),
        ("transient", "ReporterProcessError: OSError: connection reset"),
        ("sys.exit", "the reporter tried to end its process: SystemExit: 7"),
        ("cancel", "cancelled by the reporter itself"),
        ("await", "no answer within the timeout"),
        ("block", "no answer within the timeout"),
        ("hold the lock", "no answer within the timeout"),
        ("stop", "no answer within the timeout"),
    ],
)
def test_a_fault_is_logged_counted_and_retried(
    start: Start, path: Path, caplog: pytest.LogCaptureFixture, order: str, what: str
) -> None:
    """A fault and the recovery are logged, each with its reason. No event is lost, repeated or out of order."""
    delivery = start(batch_size=2, timeout=SHORT if "timeout" in what else 60.0)
    delivery.put(entries(event(0), event(1), event(2, do=order), event(3), event(4)))
    assert delivery.wait_until_settled(30)
    assert delivered(path) == ["0", "1", "2", "3", "4"]
    counters = delivery.counters()
    assert (counters.delivered, counters.failures, counters.hung, balances(counters)) == (5, 1, 0, True)
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    # Abandoned threads of other tests may log messages until their timeouts.
    messages = [message for message in messages if message.startswith("reporter isolated:")]
    assert len(messages) == 2
    assert what in messages[0]
    assert messages[1] == "reporter isolated: works again"


def test_a_permanent_failure_drops_only_its_batch(start: Start, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A permanent failure in the process drops only its batch. The sidecar receives the error's type and message."""
    delivery = start(batch_size=1)
    delivery.put(entries(event(0), event(1, do="permanent"), event(2)))
    assert delivery.wait_until_settled(20)
    assert delivered(path) == ["0", "2"]
    assert delivery.counters().dropped == {"rejected": 1}
    assert "reporter isolated: failed; dropping the rejected events: PermanentError: no such table" in caplog.text


def test_a_throttled_reporter_is_retried_after_the_requested_delay(start: Start, path: Path) -> None:
    """The sidecar receives the delay that the reporter's error requests. Here, 0.3 s far exceeds the back-off."""
    delivery = start()
    delivery.put(entries(event(0)))
    assert delivery.wait_until_settled(20)
    before = time.monotonic()
    delivery.put(entries(event(1, do="throttled")))
    assert delivery.wait_until_settled(20)
    assert time.monotonic() - before >= 0.3
    assert delivered(path) == ["0", "1"]


def test_a_process_is_kept_between_batches(start: Start) -> None:
    """An error that a reporter raises does not end the reporter's process."""
    delivery = start(batch_size=1)
    delivery.put(entries(event(0)))
    assert delivery.wait_until_settled(20)
    first = child().pid
    delivery.put(entries(event(1, do="transient"), event(2)))
    assert delivery.wait_until_settled(20)
    assert child().pid == first


def test_a_death_between_batches_costs_one_attempt(start: Start, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If the process dies between two batches, one failed attempt is counted and logged. A new process continues."""
    delivery = start()
    delivery.put(entries(event(0)))
    assert delivery.wait_until_settled(20)
    victim = child()
    victim.kill()
    eventually(lambda: not victim.is_running(), what="it to be reaped")
    delivery.put(entries(event(1)))
    assert delivery.wait_until_settled(20)
    assert (delivered(path), delivery.counters().failures) == (["0", "1"], 1)
    assert "its process was killed by signal 9 (SIGKILL)" in caplog.text


def test_log_records_reach_the_sidecar_s_log(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    delivery = start()
    delivery.put(entries(event(7, do="log")))
    assert delivery.wait_until_settled(20)
    eventually(lambda: ("some.library", logging.ERROR, "7 is odd") in caplog.record_tuples)


def test_endless_log_lines_do_not_delay_answers(monkeypatch: pytest.MonkeyPatch, start: Start, path: Path) -> None:
    """The sidecar handles answers even if the process logs faster than the driver's log accepts lines."""
    monkeypatch.setattr(logging.getLogger("some.library"), "handle", lambda _: time.sleep(0.002))
    delivery = start(batch_size=1)
    delivery.put(entries(event(0, do="log endlessly"), event(1)))
    assert delivery.wait_until_settled(20)
    assert delivered(path) == ["0", "1"]


def test_printed_text_is_written_to_standard_error(start: Start, path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As in the sidecar, output that a reporter prints goes to standard error, not to the pipe of answers."""
    delivery = start()
    delivery.put(entries(event(0, do="print")))
    assert delivery.wait_until_settled(20)
    assert (delivered(path), delivery.counters().failures) == (["0"], 0)
    assert "printed" in capfd.readouterr().err


def test_the_process_inherits_no_descriptors(start: Start, tmp_path: Path) -> None:
    """The process inherits no descriptors of the sidecar: it has only its pipes and the files that it opened."""
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    try:
        delivery = start()
        delivery.put(entries(event(0)))
        assert delivery.wait_until_settled(20)
        links = {fd: os.readlink(f"/proc/{child().pid}/fd/{fd}") for fd in os.listdir(f"/proc/{child().pid}/fd")}
    finally:
        os.close(secret)
    # The descriptors belong to the requests, the answers, the loop's selector and socket pair, and the file.
    assert str(tmp_path / "secret") not in links.values()
    kinds = sorted(link.partition(":")[0] for fd, link in links.items() if int(fd) > 2)
    assert kinds == sorted(["socket", "socket", "anon_inode", "socket", "socket", str(tmp_path / "events.jsonl")])
    assert links["0"] == "/dev/null"


def test_the_batch_limit_may_be_any_number() -> None:
    """A reporter's batch limit may be any integer, although messages encode the limit in 64 bits."""
    reporter = FaultyReporter()
    reporter.max_batch_size = 2**70
    assert messages.encode(messages.Done(most_of(reporter)))


def test_the_reporter_s_batch_limit_applies(start: Start, path: Path) -> None:
    delivery = start("misbehaving:ModestObedient", batch_size=100)
    delivery.put(entries(*(event(n) for n in range(7))))
    assert delivery.wait_until_settled(20)
    assert delivered(path) == [str(n) for n in range(7)]
    assert delivery.counters().failures == 0


def test_modules_in_the_working_directory_are_not_imported(
    start: Start, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process does not import modules from the driver's working directory, such as a user's json.py."""
    for name in ("json", "logging", "asyncio"):
        tmp_path.joinpath(f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    delivery = start()
    delivery.put(entries(event(1)))
    assert delivery.wait_until_settled(20)
    assert delivered(path) == ["1"]
    assert delivery.counters().failures == 0


def test_signals_for_the_driver_do_not_end_the_process(start: Start, path: Path) -> None:
    """The process is in its own process group, so Ctrl-C and SIGTERM for the driver do not end the process."""
    delivery = start()
    delivery.put(entries(event(0)))
    assert delivery.wait_until_settled(20)
    process = child()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    delivery.put(entries(event(1)))
    assert delivery.wait_until_settled(20)
    assert (child().pid, os.getpgid(process.pid)) == (process.pid, process.pid)
    assert (delivered(path), delivery.counters().failures) == (["0", "1"], 0)


@pytest.mark.parametrize("ending", ["block", "exit"])
def test_child_processes_end_with_the_process(start: Start, tmp_path: Path, ending: str) -> None:
    """Child processes end with the reporter's process, whether the process is killed or exits."""
    delivery = start(batch_size=1, timeout=SHORT)
    pid = tmp_path / "pid"
    delivery.put(entries(event(0, do="start a child", path=str(pid)), event(1, do=ending)))
    assert delivery.wait_until_settled(20)
    eventually(lambda: is_gone(int(pid.read_text())), what="the grandchild to be gone")


def test_a_start_may_take_longer_than_an_attempt(start: Start, path: Path) -> None:
    """If the process starts slowly, later attempts continue the start. Each call may use the whole timeout."""
    delivery = start("misbehaving:MadeLater", timeout=1.0)
    delivery.put(entries(event(0)))
    process = child()
    eventually(lambda: delivery.counters().failures >= 2)
    path.with_suffix(".go").touch()
    assert delivery.wait_until_settled(20)
    assert child() == process
    assert delivered(path) == ["0"]


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("misbehaving:DiesInOpen", "cannot be opened; holding its events and retrying: ReporterProcessError:"),
        (
            "misbehaving:ORDERS",
            "ReporterProcessError: ValueError: ORDERS is not a Reporter class or a function that returns one",
        ),
        ("no_such_module:Reporter", "ValueError: no_such_module cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_failing_constructor_or_open_is_retried(
    start: Start, caplog: pytest.LogCaptureFixture, kind: str, what: str
) -> None:
    delivery = start(kind)
    delivery.put(entries(event(0)))
    eventually(lambda: delivery.counters().failures >= 2)
    assert what in caplog.text
    assert delivery.counters().held == 1


def test_an_exit_in_close_is_logged_and_leaves_no_process(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """If close() exits the process, the exit is logged and no process remains. All events were delivered before."""
    delivery = start("misbehaving:DiesInClose")
    delivery.put(entries(event(0)))
    delivery.request_stop(time.monotonic() + 20)
    delivery.join()
    assert delivery.counters().delivered == 1
    assert (
        "reporter isolated: could not be closed: ReporterProcessError: RuntimeError: the reporter tried" in caplog.text
    )
    assert children() == []


def with_details(error: Exception, **details: object) -> Exception:
    """Set attributes on an error, as a user's error class may do, and return the error."""
    vars(error).update(details)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (PermanentError("no"), PermanentError("no")),
        (PermanentError("some", 3), PermanentError("some", 3)),
        (ThrottledError("slow", 2.5), ThrottledError("slow", 2.5)),
        (OSError("\udc80 lone"), ReporterProcessError("OSError: ? lone")),
        (OSError("x" * 10_000_000), ReporterProcessError("OSError: " + "x" * 65_536)),
        (UnprintableError(), PermanentError("UnprintableError: (not printable: its __str__ raises ValueError)")),
        (with_details(PermanentError("no"), rejected=["a"]), PermanentError("no")),
        (with_details(PermanentError("no"), rejected=10**400), PermanentError("no")),
        (with_details(ThrottledError("slow", 1), retry_after="1"), ReporterProcessError("ThrottledError: slow")),
        (with_details(ThrottledError("slow", 1), retry_after=10**400), ThrottledError("slow", 3600)),
        (with_details(ThrottledError("slow", 1), retry_after=math.inf), ThrottledError("slow", 3600)),
    ],
)
def test_any_error_crosses_the_pipe(error: Exception, expected: Exception) -> None:
    """Any error can be sent through the pipe, even if its text is too long or not encodable, or ``__str__`` raises."""
    data = messages.encode(messages.failure(error))
    answer = messages.ANSWERS.decode(data[4:])
    assert len(data) < messages.MOST_ANSWER_BYTES
    assert isinstance(answer, messages.Failed)
    verdict = messages.verdict(answer)
    assert (type(verdict), str(verdict)) == (type(expected), str(expected))
    for detail in ("retry_after", "rejected"):
        assert getattr(verdict, detail, None) == getattr(expected, detail, None)


def test_events_from_the_pipe_are_immutable() -> None:
    """Events from the pipe are immutable, like events that a reporter in a thread receives."""
    (length, data) = (data := messages.encode(messages.Report([event(1, a=1)])))[:4], data[4:]
    assert int.from_bytes(length, "big") == len(data)
    request = messages.REQUESTS.decode(data)
    assert isinstance(request, messages.Report)
    with pytest.raises(TypeError, match="are immutable"):
        request.events[0].attributes["a"] = 2


@pytest.mark.parametrize("nonsense", [b"\xc1", b"", b"\x81\xa4type\xa4nope", b"\x01"])
def test_an_invalid_answer_is_rejected(nonsense: bytes) -> None:
    """Decoding an invalid answer raises an error, which the thread that reads the pipe handles."""
    with pytest.raises(msgspec.MsgspecError):
        messages.ANSWERS.decode(nonsense)


def test_the_process_ends_when_its_pipe_closes() -> None:
    """The process ends when its pipe closes, even if the kernel sends no signal about the sidecar's death."""

    async def scenario() -> str:
        child = Child("isolated")
        child._socket.shutdown(socket.SHUT_WR)
        await child.exited()
        with pytest.raises(ReporterProcessError) as caught:
            await child.ask(messages.Open())
        return str(caught.value)

    assert asyncio.run(scenario()) == "its process exited with code 0"
