"""Tests of the sidecar's session with a driver, without a process: which answers the session sends, and when."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any, TypeAlias

import pytest
from fakes import (
    FaultyReporter,
    GatedReporter,
    application_end,
    application_start,
    eventually,
    goodbye,
    hello,
    query_progress,
    query_started,
    query_terminated,
)

from spark_events import Event, Reporter, Severity
from spark_events.records.types import QueryStarted
from spark_events.sidecar.acknowledgements import MessageWriter
from spark_events.sidecar.driver_session import DriverSession, DriverSessionOptions
from spark_events.translate.translator import Translator

SCOPE = "spark_events.dispatch"
SentAnswers: TypeAlias = list[dict[str, Any]]


class Lines:
    """Session input that returns its records, and then waits until it may return the goodbye message."""

    def __init__(self, *records: dict[str, Any] | bytes) -> None:
        self.closed = False
        #: Number of reads. A new read means that the session has processed all previous lines.
        self.reads = 0
        self.over = threading.Event()
        #: Whether :meth:`wake` ends a read.
        self.wakes = False
        self._woken = threading.Event()
        self._first = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in records]

    def read(self, timeout: float | None = None) -> list[bytes]:
        first, self._first = self._first, []
        self.reads += 1
        if first:
            return first
        until = float("inf") if timeout is None else time.monotonic() + timeout
        while time.monotonic() < until and not (self.wakes and self._woken.is_set()):
            if self.over.wait(0.01 if self.wakes else timeout):
                return [json.dumps(goodbye()).encode()]
        self._woken.clear()
        return []

    def wake(self) -> None:
        """Make the waiting read return, if the test needs that."""
        self._woken.set()


def test_a_hanging_reporter_does_not_delay_the_answer() -> None:
    """A hanging reporter does not delay the answer if no event reaches a guaranteed reporter.

    The answer does not wait for a timer: the session sends the answer before it reads again.
    """
    settings = {
        "events.dispatcher.type": "async-queued",
        "events.reporter.promised.delivery.guarantee": "guaranteed",
        "events.reporter.promised.filter.includes": "spark.job",
    }
    gated, promised, answers = GatedReporter(), FaultyReporter(), []
    lines = Lines(hello(settings), {**application_start(), "seq": 1})
    session = DriverSession.open(
        lines,
        MessageWriter(lambda line: answers.append(json.loads(line))),
        lambda _: False,
        DriverSessionOptions(own={"hanging": lambda: gated, "promised": lambda: promised}),
    )
    assert session is not None
    running = threading.Thread(target=session.run)
    running.start()
    try:
        eventually(lambda: lines.reads > 1)
        assert {"kind": "answered", "seq": 1} in answers
        assert gated.entered.wait(20)
        assert not any(answer["kind"] == "ack" for answer in answers)
    finally:
        gated.gate.set()
        lines.over.set()
        running.join(20)
    assert not running.is_alive()
    assert any(answer["kind"] == "ack" and answer["seq"] == 1 for answer in answers)
    assert promised.events == []


class CollectingReporter(Reporter):
    """Reporter that accepts every event."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def report(self, events: Sequence[Event]) -> None:
        self.events.extend(events)


class Waits(Reporter):
    """Reporter that accepts every event, but blocks at the commit of a given batch."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()
        self._batch = batch

    def report(self, events: Sequence[Event]) -> None:
        if any(event.attributes.get("spark.batch.id") == self._batch for event in events):
            self.entered.set()
            self.gate.wait(20)


@contextlib.contextmanager
def conversing(
    reporter: Reporter, settings: dict[str, str], *records: dict[str, Any] | bytes, reads: int = 2
) -> Iterator[SentAnswers]:
    """Run a session, and yield its answers after the session has dispatched all records.

    Args:
        reads: number of reads to wait for, including reads for events of timers.
    """
    answers: SentAnswers = []
    lines = Lines(
        hello({"events.dispatcher.type": "async-queued", **settings}),
        *(one if isinstance(one, bytes) else {**one, "seq": number} for number, one in enumerate(records, 1)),
    )
    session = DriverSession.open(
        lines,
        MessageWriter(lambda line: answers.append(json.loads(line))),
        lambda _: False,
        DriverSessionOptions(own={"own": lambda: reporter}),
    )
    assert session is not None
    running = threading.Thread(target=session.run)
    running.start()
    try:
        eventually(lambda: lines.reads >= reads)
        yield answers
    finally:
        lines.over.set()
        running.join(20)
    assert not running.is_alive()


def test_a_disabled_reporter_causes_an_event_for_other_reporters(caplog: pytest.LogCaptureFixture) -> None:
    """Other reporters receive one event about a disabled reporter, after the start and with one id in all sidecars."""
    settings = {"events.reporter.audit.type": "file", "events.reporter.audit.path": "${env:NO_SUCH_VARIABLE}"}
    ids = set()
    for _ in range(2):
        reporter = CollectingReporter()
        with conversing(reporter, settings, application_start()):
            eventually(lambda: len(reporter.events) > 1)  # noqa: B023
        change = reporter.events[1]
        assert change.name == "ReporterStatusChangeEvent"
        assert change.severity is Severity.ERROR
        assert change.body.startswith(
            "shop: reporter 'audit' is disabled and gets no events: events.reporter.audit.path: "
        )
        assert {**change.attributes, "spark.status.reason": ""} == {
            "spark.events.reporter.name": "audit",
            "spark.status.new": "disabled",
            "spark.status.reason": "",
            "spark.app.id": "local-1",
            "spark.app.name": "shop",
            "spark.user": "ada",
            "spark.version": "4.3.0",
            "host.name": "h1",
        }
        ids.add(change.event_id)
    assert len(ids) == 1
    (error,) = {record.message for record in caplog.records if record.levelname == "ERROR"}
    assert error.startswith(
        "reporter 'audit': disabled, receives no events; other reporters run; correct the setting and"
    )


def acknowledged(answers: SentAnswers) -> int:
    return max((answer["seq"] for answer in answers if answer["kind"] == "ack"), default=0)


def test_an_unreadable_line_counts_as_the_next_record() -> None:
    """An unreadable line is acknowledged like a record, because the driver also waits for this acknowledgement."""
    with conversing(CollectingReporter(), {}, application_start(), b"no JSON", query_started()) as answers:
        eventually(lambda: acknowledged(answers) == 3)
    assert acknowledged(answers) == 3
    with conversing(CollectingReporter(), {}, application_start(), b"no JSON") as answers:
        eventually(lambda: acknowledged(answers) == 2)
    assert acknowledged(answers) == 2


def test_an_untranslatable_record_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the translation of a record fails, the final report counts the record, and other records are translated."""
    translate = Translator.translate

    def fails(translator: Translator, record: Any) -> list[Event]:
        if isinstance(record, QueryStarted):
            raise ZeroDivisionError
        return translate(translator, record)

    monkeypatch.setattr(Translator, "translate", fails)
    reporter = CollectingReporter()
    with conversing(reporter, {}, application_start(), query_started(), application_end()):
        pass
    assert [
        event.attributes.get("spark.events.records.defective")
        for event in reporter.events
        if event.class_scope == SCOPE
    ] == [1]
    assert [event.name for event in reporter.events].count("JobStatusChangeEvent") == 2


def test_a_failing_timer_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A failed timer of the translation is not retried at once, because a retry loop would fill the log."""
    tried: list[int] = []

    def fails(_: Translator, now: int) -> list[Event]:
        tried.append(now)
        raise ZeroDivisionError

    monkeypatch.setattr(Translator, "tick", fails)
    reporter, settings = CollectingReporter(), {"events.batch-commit.min-interval": "200ms"}
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    batches = (query_progress(number, timestamp=now) for number in range(2))
    with conversing(reporter, settings, application_start(), query_started(), *batches, reads=3):
        eventually(lambda: tried)
        time.sleep(0.1)  # During this wait, immediate retries would call the timer about a thousand times.
    assert (len(tried), caplog.text.count("a timer of the translation failed; retrying")) == (1, 1)
    assert [event.attributes.get("spark.events.records.defective") for event in reporter.events][-1] == 1


@pytest.mark.parametrize("is_over", [True, False], ids=["behind its end", "before its end"])
def test_a_closed_pipe_is_logged_if_events_are_missing(is_over: bool, caplog: pytest.LogCaptureFixture) -> None:
    """If the pipe closes before the application's end, a message is logged, because events may be missing."""
    reporter, end = CollectingReporter(), [{**application_end(), "seq": 2}] if is_over else []
    lines = Lines(hello({}), {**application_start(), "seq": 1}, *end)
    lines.closed = True
    session = DriverSession.open(
        lines, MessageWriter(lambda line: None), lambda _: False, DriverSessionOptions(own={"own": lambda: reporter})
    )
    assert session is not None
    session.run()
    assert ("further events of this application are not reported" in caplog.text) is not is_over
    assert "LOST" not in [event.attributes.get("spark.status.new") for event in reporter.events]


@pytest.mark.parametrize(("previous", "known", "first"), [(1, 1, 1), (1, 100, 100), (200, 100, 200)])
def test_numbers_continue_from_the_highest_known_number(previous: int, known: int, first: int) -> None:
    """The number of the first event is the maximum of two numbers: the previous stream's and the dead sidecar's."""
    lines = Lines(hello({"events.reporter.m.type": "memory"}, sequence=previous))
    session = DriverSession.open(
        lines, MessageWriter(lambda line: None), lambda _: False, DriverSessionOptions(first_sequence=known)
    )
    assert session is not None
    assert session.next_sequence == first
    lines.over.set()
    session.run()


LARGE = "x" * 2_000_000


def test_an_event_larger_than_the_mailbox_is_accepted() -> None:
    """An event larger than the mailbox is accepted, because its weight is at most half of the mailbox."""
    reporter = CollectingReporter()
    with conversing(reporter, {"events.dispatcher.queue.size": "10"}, application_start(app_name=LARGE)):
        eventually(lambda: reporter.events)
    assert reporter.events[0].attributes["spark.app.name"] == LARGE


def test_a_large_event_fills_the_smallest_mailbox() -> None:
    """While a reporter is busy, one large event fills a mailbox of size 1, and further events are dropped."""
    gated = GatedReporter()
    queries = (query_started(run=f"r{number}", name=LARGE) for number in range(3))

    def dropped() -> int:
        return max((one["reporters"]["own"]["dropped"] for one in answers if one["kind"] == "stats"), default=0)

    with conversing(gated, {"events.dispatcher.queue.size": "1"}, application_start(), *queries) as answers:
        eventually(lambda: dropped() >= 2)
        gated.gate.set()
    assert dropped() >= 2


def judged(settings: dict[str, str], gated: GatedReporter | None = None) -> list[tuple[str, ...]]:
    """Return what a reporter has received of a failed query, before the session ends, beside a hanging reporter."""
    other = CollectingReporter()
    own: dict[str, Callable[[], Reporter]] = {"other": lambda: other}
    if gated is not None:
        own["promised"] = lambda: gated
    records = [
        application_start(),
        query_started(),
        query_terminated(exception="java.io.IOException: disk full"),
        query_started(run="r2"),
        query_progress(1, run="r2"),
    ]
    numbered = ({**record, "seq": seq} for seq, record in enumerate(records, 1))
    lines = Lines(hello({"events.dispatcher.type": "async-queued", **settings}), *numbered)
    session = DriverSession.open(
        lines, MessageWriter(lambda line: None), lambda _: False, DriverSessionOptions(own=own)
    )
    assert session is not None
    running = threading.Thread(target=session.run)
    running.start()
    try:
        eventually(lambda: any(event.name == "BatchCommitEvent" for event in other.events))
        return [
            (event.event_id, event.body, event.severity.name, str(event.attributes.get("incident.role")))
            for event in other.events
        ]
    finally:
        if gated is not None:
            gated.gate.set()
        lines.over.set()
        running.join(20)


def test_a_guaranteed_reporter_does_not_change_what_others_receive() -> None:
    """A guaranteed reporter that hangs changes neither the alarms of another reporter nor when it receives them."""
    alone = judged({})
    assert judged({"events.reporter.promised.delivery.guarantee": "guaranteed"}, GatedReporter()) == alone
    assert "alarm" in {role for *_, role in alone}


def test_a_nearly_full_queue_is_reported_to_the_other_reporters() -> None:
    """Other reporters learn that the queue of a hanging reporter is nearly full, and that it is empty again."""
    hanging, other = GatedReporter(), CollectingReporter()
    lines = Lines(
        hello({"events.dispatcher.queue.size": "10"}),
        *({**record, "seq": seq} for seq, record in enumerate([application_start(), *map(started, range(9))], 1)),
    )
    lines.wakes = True
    options = DriverSessionOptions(own={"hanging": lambda: hanging, "other": lambda: other})
    session = DriverSession.open(lines, MessageWriter(lambda line: None), lambda _: False, options)
    assert session is not None
    running = threading.Thread(target=session.run)
    running.start()
    try:
        eventually(lambda: statuses(other) == ["nearly-full"])
        hanging.gate.set()
        eventually(lambda: statuses(other) == ["nearly-full", "normal"])
    finally:
        hanging.gate.set()
        lines.over.set()
        running.join(20)


def started(number: int) -> dict[str, Any]:
    return query_started(run=f"r{number}", query=f"q{number}", name=f"n{number}")


def statuses(reporter: CollectingReporter) -> list[object]:
    events = [event for event in reporter.events if event.name == "ReporterQueueEvent"]
    assert {event.attributes["spark.events.reporter.name"] for event in events} <= {"hanging"}
    return [event.attributes["spark.status.new"] for event in events]
