"""The conversation with a driver, without one: what is answered, and when."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
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
from spark_events.bridge.answers import Answers
from spark_events.bridge.records import QueryStarted
from spark_events.conversation import Conversation
from spark_events.dispatch import dispatcher
from spark_events.dispatch.dispatcher import AsyncQueuedDispatcher
from spark_events.dispatch.entries import Entry
from spark_events.translate.translator import Translator

SCOPE = "spark_events.dispatch"
Said: TypeAlias = list[dict[str, Any]]


class Lines:
    """Gives its lines, then waits for the last one, the goodbye."""

    def __init__(self, *records: dict[str, Any] | bytes) -> None:
        self.closed = False
        #: Whoever reads has done with all that was read before.
        self.reads = 0
        self.over = threading.Event()
        self._first = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in records]

    def read(self, timeout: float | None = None) -> list[bytes]:
        first, self._first = self._first, []
        self.reads += 1
        if not first and self.over.wait(timeout):
            return [json.dumps(goodbye()).encode()]
        return first

    def wake(self) -> None:
        """Nobody needs to."""


def test_nobody_waits_for_a_reporter_that_hangs_on_what_others_do_not_get(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that guarantees delivery gets none of it, so the driver is answered at once, and by nobody who looks."""
    monkeypatch.setattr(dispatcher, "_WATCH_SECONDS", 3600.0)
    settings = {
        "events.dispatcher.type": "async-queued",
        "events.reporter.promised.delivery.guarantee": "guaranteed",
        "events.reporter.promised.filter.includes": "spark.job",
    }
    gated, promised, said = GatedReporter(), FaultyReporter(), []
    lines = Lines(hello(settings), {**application_start(), "seq": 1})
    conversation = Conversation(
        lines,
        Answers(lambda line: said.append(json.loads(line))),
        lambda: False,
        own={"hanging": lambda: gated, "promised": lambda: promised},
    )
    assert conversation.begin()
    running = threading.Thread(target=conversation.run)
    running.start()
    try:
        assert gated.entered.wait(20)
        eventually(lambda: any(answer == {"kind": "answered", "through": 1} for answer in said))
        assert not any(answer["kind"] == "ack" for answer in said)
    finally:
        gated.gate.set()
        lines.over.set()
        running.join(20)
    assert not running.is_alive()
    assert any(answer["kind"] == "ack" and answer["through"] == 1 for answer in said)
    assert promised.events == []


class Takes(Reporter):
    """Everything."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def report(self, events: Sequence[Event]) -> None:
        self.events.extend(events)


class Waits(Reporter):
    """Takes everything, but waits with the commit of one batch."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.gate = threading.Event()
        self._batch = batch

    def report(self, events: Sequence[Event]) -> None:
        if any(event.attributes.get("spark.streaming.batch.id") == self._batch for event in events):
            self.entered.set()
            self.gate.wait(20)


@contextlib.contextmanager
def conversing(
    reporter: Reporter, settings: dict[str, str], *records: dict[str, Any] | bytes, reads: int = 2
) -> Iterator[Said]:
    """What is answered, once all records have been dispatched to a reporter that nobody waits for.

    ``reads``: and once time itself has made events, as often as there is something to wait for.
    """
    said: Said = []
    lines = Lines(
        hello({"events.dispatcher.type": "async-queued", **settings}),
        *(one if isinstance(one, bytes) else {**one, "seq": number} for number, one in enumerate(records, 1)),
    )
    conversation = Conversation(
        lines, Answers(lambda line: said.append(json.loads(line))), lambda: False, own={"own": lambda: reporter}
    )
    assert conversation.begin()
    running = threading.Thread(target=conversation.run)
    running.start()
    try:
        eventually(lambda: lines.reads >= reads)
        yield said
    finally:
        lines.over.set()
        running.join(20)
    assert not running.is_alive()


def test_a_reporter_that_cannot_be_used_is_an_event_at_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """Behind the application's start, so that it says whose it is; each sidecar sends the same one."""
    settings = {"events.reporter.audit.type": "file", "events.reporter.audit.path": "${env:NO_SUCH_VARIABLE}"}
    ids = set()
    for _ in range(2):
        reporter = Takes()
        with conversing(reporter, settings, application_start()):
            eventually(lambda: len(reporter.events) > 1)  # noqa: B023
        change = reporter.events[1]
        assert change.name == "ReporterStatusChangeEvent"
        assert change.severity is Severity.ERROR
        assert change.body.startswith("Reporter 'audit' is disabled and gets no events: events.reporter.audit.path: ")
        assert {**change.attributes, "status.reason": ""} == {
            "reporter.name": "audit",
            "status.new": "disabled",
            "status.reason": "",
            "spark.app.id": "local-1",
            "spark.app.name": "shop",
            "spark.user": "ada",
            "spark.version": "4.3.0",
            "host.name": "h1",
        }
        ids.add(change.event_id)
    assert len(ids) == 1
    (error,) = {record.message for record in caplog.records if record.levelname == "ERROR"}
    assert error.startswith("reporter 'audit': disabled, it gets no events, the other reporters run; correct this and")


def acknowledged(said: Said) -> int:
    return max((answer["through"] for answer in said if answer["kind"] == "ack"), default=0)


def test_what_was_held_back_is_acknowledged_with_its_own_records() -> None:
    """Not before: one event stands for batches 1 and 2, and a successor would have to make it of records 4 and 5."""
    waits = Waits(2)
    settings = {"events.batch-commit.min-interval": "1h", "events.reporter.own.batch.size": "1"}
    batches = (query_progress(number) for number in range(3))
    with conversing(waits, settings, application_start(), query_started(), *batches, query_terminated()) as said:
        assert waits.entered.wait(20)
        eventually(lambda: acknowledged(said) >= 3)
        assert acknowledged(said) == 3
        waits.gate.set()
    assert acknowledged(said) == 6


def test_what_time_makes_of_what_was_held_back_is_acknowledged_with_its_own_record() -> None:
    """Batch 1, record 4, is told when its interval is over, which is behind record 5."""
    waits = Waits(1)
    settings = {"events.batch-commit.min-interval": "300ms", "events.reporter.own.batch.size": "1"}
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    batches = (query_progress(number, timestamp=now) for number in range(2))
    records = (application_start(), query_started(), *batches, query_started("r2", "q2", "other"))
    with conversing(waits, settings, *records, reads=3) as said:
        assert waits.entered.wait(20)
        eventually(lambda: acknowledged(said) >= 3)
        assert acknowledged(said) == 3
        waits.gate.set()
    assert acknowledged(said) == 5


def test_a_hold_counts_before_its_record_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reporter may have taken all that there was before anybody goes on: record 4 is held back all the same."""
    dispatch, conversations = AsyncQueuedDispatcher.dispatch, list[Conversation]()
    begin = Conversation.begin

    def noted(conversation: Conversation) -> bool:
        conversations.append(conversation)
        return begin(conversation)

    def dispatched(of: AsyncQueuedDispatcher, entries: Sequence[Entry], through: int) -> None:
        dispatch(of, entries, through)
        assert of.drain(time.monotonic() + 20) == ["own"]
        conversations[0]._acknowledge()

    monkeypatch.setattr(Conversation, "begin", noted)
    monkeypatch.setattr(AsyncQueuedDispatcher, "dispatch", dispatched)
    settings = {"events.batch-commit.min-interval": "36500d"}
    batches = (query_progress(number) for number in range(2))
    with conversing(Takes(), settings, application_start(), query_started(), *batches) as said:
        assert acknowledged(said) == 3


def test_a_line_that_cannot_be_read_is_the_next_record() -> None:
    """The driver waits for its answer, too."""
    with conversing(Takes(), {}, application_start(), b"no JSON", query_started()) as said:
        eventually(lambda: acknowledged(said) == 3)
    with conversing(Takes(), {}, application_start(), b"no JSON") as said:
        eventually(lambda: acknowledged(said) == 2)


def test_a_record_that_cannot_be_translated_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nobody else anything, and the last report has it."""
    translate = Translator.translate

    def fails(translator: Translator, record: Any) -> list[Event]:
        if isinstance(record, QueryStarted):
            raise ZeroDivisionError
        return translate(translator, record)

    monkeypatch.setattr(Translator, "translate", fails)
    takes = Takes()
    with conversing(takes, {}, application_start(), query_started(), application_end()):
        pass
    assert [event.attributes.get("records.defective") for event in takes.events if event.class_scope == SCOPE] == [1]
    assert [event.name for event in takes.events].count("JobStatusChangeEvent") == 2


def test_a_clock_that_fails_is_said_once_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is due until it has worked: who tried it again at once would do nothing else, and fill the log."""
    tried: list[int] = []

    def fails(_: Translator, now: int) -> list[Event]:
        tried.append(now)
        raise ZeroDivisionError

    monkeypatch.setattr(Translator, "tick", fails)
    takes, settings = Takes(), {"events.batch-commit.min-interval": "200ms"}
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    batches = (query_progress(number, timestamp=now) for number in range(2))
    with conversing(takes, settings, application_start(), query_started(), *batches, reads=3):
        eventually(lambda: tried)
        time.sleep(0.1)  # tried again at once, it would have been a thousand times by then
    assert (len(tried), caplog.text.count("what time alone makes could not be translated")) == (1, 1)
    assert [event.attributes.get("records.defective") for event in takes.events][-1] == 1


@pytest.mark.parametrize("is_over", [True, False], ids=["behind its end", "before its end"])
def test_a_pipe_that_is_closed_is_told_where_something_is_missing(
    is_over: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Of an application that is over, nothing is."""
    takes, end = Takes(), [{**application_end(), "seq": 2}] if is_over else []
    lines = Lines(hello({}), {**application_start(), "seq": 1}, *end)
    lines.closed = True
    conversation = Conversation(lines, Answers(lambda line: None), lambda: False, own={"own": lambda: takes})
    assert conversation.begin()
    conversation.run()
    assert ("its further events are not reported" in caplog.text) is not is_over
    assert "LOST" not in [event.attributes.get("status.new") for event in takes.events]


@pytest.mark.parametrize(("said", "known", "first"), [(1, 1, 1), (1, 100, 100), (200, 100, 200)])
def test_numbers_go_on_where_the_last_one_was(said: int, known: int, first: int) -> None:
    """That of a stream before this one, or of a sidecar that has died: whoever knows of more is right."""
    lines = Lines(hello({"events.reporter.m.type": "memory"}, sequence=said))
    conversation = Conversation(lines, Answers(lambda line: None), lambda: False, first_sequence=known)
    assert conversation.begin()
    assert conversation.next_sequence == first
    lines.over.set()
    conversation.run()


LARGE = "x" * 2_000_000


def test_an_event_that_is_larger_than_a_mailbox_comes_in_all_the_same() -> None:
    """It takes half of it at most."""
    takes = Takes()
    with conversing(takes, {"events.dispatcher.queue.size": "10"}, application_start(app_name=LARGE)):
        eventually(lambda: takes.events)
    assert takes.events[0].attributes["spark.app.name"] == LARGE


def test_also_in_the_smallest_mailbox_a_large_event_takes_a_place() -> None:
    """Of what comes while the reporter is busy, nothing can wait."""
    gated = GatedReporter()
    queries = (query_started(run=f"r{number}", name=LARGE) for number in range(3))
    with conversing(gated, {"events.dispatcher.queue.size": "1"}, application_start(), *queries) as said:
        eventually(lambda: [one for one in said if one["kind"] == "stats" and one["reporters"]["own"]["dropped"] >= 2])
        gated.gate.set()
