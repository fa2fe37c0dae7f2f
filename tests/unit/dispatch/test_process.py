"""A reporter in a process of its own: the same to the dispatch, and whatever happens to it can be mended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from fakes import FaultyReporter, event, eventually, is_gone, read_events
from misbehaving import Untold

from spark_events import Event, PermanentError, Severity, ThrottledError
from spark_events.config import Setting
from spark_events.dispatch.calls import most_of
from spark_events.dispatch.delivery import Delivery
from spark_events.dispatch.entries import Entries, Entry
from spark_events.dispatch.process import messages
from spark_events.dispatch.process.child import Child
from spark_events.dispatch.process.reporter import ProcessReporter
from spark_events.errors import ReporterProcessError
from unit.dispatch.conftest import Begin

#: For a reporter that hangs: a Python starts in less, also on a busy machine, and it can be waited for.
SHORT = 10.0
Start = Callable[..., Delivery]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture(autouse=True)
def _none_is_left() -> Iterator[None]:
    """Behind ``begin``: when every delivery has been stopped, no process may be left."""
    yield
    eventually(lambda: not children(), what="every process to be gone")


@pytest.fixture
def start(path: Path, begin: Begin) -> Start:
    """Starts a delivery to a process."""

    def _start(kind: str = "misbehaving:Obedient", **config: Any) -> Delivery:
        writes = kind.endswith(("Obedient", "MadeLater"))
        settings = [Setting("events.reporter.isolated.path", str(path), "a test")] if writes else []
        times = {"timeout": 60.0, "retry_initial": 0.001, "retry_max": 0.01, **config}
        return begin("isolated", lambda: ProcessReporter("isolated", kind, settings), 1000, **times)

    return _start


def children() -> list[psutil.Process]:
    """The processes of reporters named isolated, those that nobody has asked for (zombies) as well."""
    found = []
    for process in psutil.Process().children():
        # One may go between two looks.
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() == psutil.STATUS_ZOMBIE or "isolated" in process.cmdline():
                found.append(process)
    return found


def child() -> psutil.Process:
    (only,) = eventually(children, what="the reporter's process")
    return only


def entries(*events: Event) -> Entries:
    return Entries([Entry(number, one) for number, one in enumerate(events, 1)])


def delivered(path: Path) -> list[str]:
    return [one["body"] for one in read_events(path)]


def test_events_arrive_as_they_were(start: Start, path: Path) -> None:
    """Every field, attributes of every type, the order: the same bytes as from a thread."""
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
        ("answer nonsense", "for it answered what cannot be understood: a message of 4294967295 bytes"),
        ("transient", "ReporterProcessError: OSError: connection reset"),
        ("sys.exit", "the reporter called for an exit: SystemExit: 7"),
        ("cancel", "cancelled by the reporter itself"),
        ("await", "no answer within its timeout"),
        ("block", "no answer within its timeout"),
        ("hold the lock", "no answer within its timeout"),
        ("stop", "no answer within its timeout"),
    ],
)
def test_what_goes_wrong_is_said_counted_and_tried_again(
    start: Start, path: Path, caplog: pytest.LogCaptureFixture, order: str, what: str
) -> None:
    """One line says what it was, one that it is over; nothing is lost, doubled or out of order."""
    delivery = start(batch_size=2, timeout=SHORT if "timeout" in what else 60.0)
    delivery.put(entries(event(0), event(1), event(2, do=order), event(3), event(4)))
    assert delivery.wait_until_settled(30)
    assert delivered(path) == ["0", "1", "2", "3", "4"]
    books = delivery.counters()
    assert (books.delivered, books.failures, books.hung, books.balances) == (5, 1, 0, True)
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    # The threads of other tests, whose reporters hang, may have something to say until their timeout.
    said = [message for message in said if message.startswith("reporter isolated:")]
    assert len(said) == 2
    assert what in said[0]
    assert said[1] == "reporter isolated: works again"


def test_a_permanent_failure_gives_up_these_events_only(
    start: Start, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The verdict comes over as it was given."""
    delivery = start(batch_size=1)
    delivery.put(entries(event(0), event(1, do="permanent"), event(2)))
    assert delivery.wait_until_settled(20)
    assert delivered(path) == ["0", "2"]
    assert delivery.counters().dropped == {"rejected": 1}
    assert "reporter isolated: failed, not tried again: PermanentError: no such table" in caplog.text


def test_a_throttled_reporter_is_left_alone_as_long_as_it_asks(start: Start, path: Path) -> None:
    """How long comes over, too: 0.3 s, where the retry alone would take a few milliseconds."""
    delivery = start()
    delivery.put(entries(event(0)))
    assert delivery.wait_until_settled(20)
    before = time.monotonic()
    delivery.put(entries(event(1, do="throttled")))
    assert delivery.wait_until_settled(20)
    assert time.monotonic() - before >= 0.3
    assert delivered(path) == ["0", "1"]


def test_a_process_lives_from_batch_to_batch(start: Start) -> None:
    """A failure that its code has noticed itself is no reason for another one."""
    delivery = start(batch_size=1)
    delivery.put(entries(event(0)))
    assert delivery.wait_until_settled(20)
    first = child().pid
    delivery.put(entries(event(1, do="transient"), event(2)))
    assert delivery.wait_until_settled(20)
    assert child().pid == first


def test_a_process_that_dies_between_two_batches_costs_one_attempt(
    start: Start, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted and said like a death in an attempt, and the next one takes over."""
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


def test_its_log_is_the_sidecar_s(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """Under its logger's name, with its level."""
    delivery = start()
    delivery.put(entries(event(7, do="log")))
    assert delivery.wait_until_settled(20)
    eventually(lambda: ("some.library", logging.ERROR, "7 is odd") in caplog.record_tuples)


def test_it_may_print(start: Start, path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Into standard error, like everything in the sidecar; not into the answers."""
    delivery = start()
    delivery.put(entries(event(0, do="print")))
    assert delivery.wait_until_settled(20)
    assert (delivered(path), delivery.counters().failures) == (["0"], 0)
    assert "printed" in capfd.readouterr().err


def test_it_inherits_nothing(start: Start, tmp_path: Path) -> None:
    """Not even what the sidecar left open for children; it has its pipes, and what it opened itself."""
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    try:
        delivery = start()
        delivery.put(entries(event(0)))
        assert delivery.wait_until_settled(20)
        links = {fd: os.readlink(f"/proc/{child().pid}/fd/{fd}") for fd in os.listdir(f"/proc/{child().pid}/fd")}
    finally:
        os.close(secret)
    # Requests, answers, the loop's selector and its socket pair, and the file.
    assert str(tmp_path / "secret") not in links.values()
    kinds = sorted(link.partition(":")[0] for fd, link in links.items() if int(fd) > 2)
    assert kinds == sorted(["socket", "pipe", "anon_inode", "socket", "socket", str(tmp_path / "events.jsonl")])
    assert links["0"] == "/dev/null"


def test_what_it_takes_at_once_may_be_any_number() -> None:
    """The messages hold 64 bits."""
    reporter = FaultyReporter()
    reporter.max_batch_size = 2**70
    assert messages.encode(messages.Done(most_of(reporter)))


def test_it_gets_as_many_events_at_once_as_it_takes(start: Start, path: Path) -> None:
    """From its first call on."""
    delivery = start("misbehaving:ModestObedient", batch_size=100)
    delivery.put(entries(*(event(n) for n in range(7))))
    assert delivery.wait_until_settled(20)
    assert delivered(path) == [str(n) for n in range(7)]
    assert delivery.counters().failures == 0


def test_a_module_of_the_user_s_beside_the_driver_is_not_meant_for_it(
    start: Start, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder that a driver runs in may have a json.py, a logging.py."""
    for name in ("json", "logging", "asyncio"):
        tmp_path.joinpath(f"{name}.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    delivery = start()
    delivery.put(entries(event(1)))
    assert delivery.wait_until_settled(20)
    assert delivered(path) == ["1"]
    assert delivery.counters().failures == 0


def test_it_leaves_the_driver_s_signals_alone(start: Start, path: Path) -> None:
    """Ctrl-C and a resource manager's SIGTERM are not meant for it; it is in nobody's group but its own."""
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
def test_what_it_has_started_ends_with_it(start: Start, tmp_path: Path, ending: str) -> None:
    """Killed at its timeout, or dead by itself: its own children are not left behind."""
    delivery = start(batch_size=1, timeout=SHORT)
    pid = tmp_path / "pid"
    delivery.put(entries(event(0, do="start a child", path=str(pid)), event(1, do=ending)))
    assert delivery.wait_until_settled(20)
    eventually(lambda: is_gone(int(pid.read_text())), what="the grandchild to be gone")


def test_a_start_may_take_longer_than_an_attempt(start: Start, path: Path) -> None:
    """The attempts go on where the last one left it, with one process; a call has all of an attempt's time."""
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
        ("misbehaving:DiesInOpen", "cannot be opened, its events are held and tried again: ReporterProcessError:"),
        (
            "misbehaving:ORDERS",
            "ReporterProcessError: ValueError: ORDERS is not a Reporter class or a function that returns one",
        ),
        ("no_such_module:Reporter", "ValueError: no_such_module cannot be imported: ModuleNotFoundError"),
    ],
)
def test_one_that_cannot_be_made_or_opened_is_tried_again(
    start: Start, caplog: pytest.LogCaptureFixture, kind: str, what: str
) -> None:
    """Its events are held like those of any reporter that cannot be opened yet."""
    delivery = start(kind)
    delivery.put(entries(event(0)))
    eventually(lambda: delivery.counters().failures >= 2)
    assert what in caplog.text
    assert delivery.counters().held == 1


def test_a_close_that_dies_is_said_and_leaves_no_process(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """At the end an error is only worth a line in the log: everything is delivered by then."""
    delivery = start("misbehaving:DiesInClose")
    delivery.put(entries(event(0)))
    delivery.request_stop(time.monotonic() + 20)
    delivery.join()
    assert delivery.counters().delivered == 1
    assert (
        "reporter isolated: could not be closed: ReporterProcessError: RuntimeError: the reporter called" in caplog.text
    )
    assert children() == []


def with_details(error: Exception, **details: object) -> Exception:
    """As classes of the user's own have them."""
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
        (Untold(), PermanentError("Untold: (not printable: its __str__ raises ValueError)")),
        (with_details(PermanentError("no"), rejected=["a"]), PermanentError("no")),
        (with_details(PermanentError("no"), rejected=10**400), PermanentError("no")),
        (with_details(ThrottledError("slow", 1), retry_after="1"), ReporterProcessError("ThrottledError: slow")),
        (with_details(ThrottledError("slow", 1), retry_after=10**400), ThrottledError("slow", 3600)),
        (with_details(ThrottledError("slow", 1), retry_after=math.inf), ThrottledError("slow", 3600)),
    ],
)
def test_a_verdict_goes_over_whatever_the_error_is(error: Exception, expected: Exception) -> None:
    """Also one that is too long, cannot be encoded, or cannot even be told."""
    data = messages.encode(messages.failure(error))
    answer = messages.answers_of()(data[4:])
    assert len(data) < messages.MOST_ANSWER_BYTES
    assert isinstance(answer, messages.Failed)
    verdict = messages.verdict(answer)
    assert (type(verdict), str(verdict)) == (type(expected), str(expected))
    for detail in ("retry_after", "rejected"):
        assert getattr(verdict, detail, None) == getattr(expected, detail, None)


def test_events_that_went_over_cannot_be_changed() -> None:
    """Nor can those that a reporter in a thread gets."""
    (length, data) = (data := messages.encode(messages.Report([event(1, a=1)])))[:4], data[4:]
    assert int.from_bytes(length, "big") == len(data)
    request = messages.requests_of()(data)
    assert isinstance(request, messages.Report)
    with pytest.raises(TypeError, match="are immutable"):
        request.events[0].attributes["a"] = 2


@pytest.mark.parametrize("nonsense", [b"\xc1", b"", b"\x81\xa4type\xa4nope", b"\x01"])
def test_an_answer_that_cannot_be_understood_is_refused(nonsense: bytes) -> None:
    """By an error that the reader of the pipe expects."""
    with pytest.raises(msgspec.MsgspecError):
        messages.answers_of()(nonsense)


def test_it_ends_when_its_pipe_does() -> None:
    """Where the kernel cannot tell it of the sidecar's death, the pipe does."""

    async def scenario() -> str:
        child = Child("isolated")
        child._socket.close()
        await child.gone()
        with pytest.raises(ReporterProcessError) as caught:
            await child.ask(messages.Open())
        return str(caught.value)

    assert asyncio.run(scenario()) == "its process exited with code 0"
