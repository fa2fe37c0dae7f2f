"""One session with one driver: records come in, their events are dispatched, and what became of them is answered.

It starts, in this order: the reporters (so that nothing is translated that cannot be taken), the reading
of records. It ends in the other order: no record is read any more, the reporters deliver what they hold,
the last acknowledgement is sent.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from spark_events._version import __version__
from spark_events.bridge.acknowledgements import Acknowledgements
from spark_events.bridge.answers import Answers
from spark_events.bridge.records import (
    PROTOCOL,
    ApplicationEnd,
    Decoder,
    Goodbye,
    Hello,
    JvmShutdown,
    Restored,
    Unknown,
)
from spark_events.config import Setting, Settings
from spark_events.dispatch.breaker import BreakerState
from spark_events.dispatch.counters import account, with_those_before
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.entries import WEIGHT_BYTES, Entry, weight_for
from spark_events.dispatch.process.log_lines import LogLines
from spark_events.dispatch.telemetry import DispatcherTelemetry
from spark_events.errors import ProtocolError
from spark_events.pipeline import Pipeline, build
from spark_events.reporters.reporter import Reporter
from spark_events.translate.dispatch_reports import final_report, reporter_status
from spark_events.translate.translator import Translator

__all__ = ["DriverSession", "RecordSource"]

#: So many events are dispatched at once: less than a mailbox holds, so that a burst can be taken as it comes.
_SLICE = 128
#: The most an event weighs, and never more than half of a mailbox: a later event of higher priority must find events
#: to displace.
_MAX_WEIGHT = 1024
#: Of the time for the end, the part that is kept for the report on it.
_REPORT_SHARE = 0.1
#: Of the time the driver waits at its end, this much is kept for what comes behind the last answer.
_EXIT_SECONDS = 0.1
#: A clock that has failed is not tried again before, in seconds: it is due until it has worked.
_CLOCK_SECONDS = 60.0
#: As the driver's metrics number them.
_STATES = (BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN)
#: What is said to the sidecar itself.
_SPECIAL = frozenset({ApplicationEnd, Goodbye, Restored, JvmShutdown, Unknown})
_LOG = logging.getLogger(__name__)


class RecordSource(Protocol):
    """Where records come from, as lines."""

    @property
    def closed(self) -> bool:
        """Whether nothing will come any more."""

    def read(self, timeout: float | None = None) -> list[bytes]:
        """Waits for lines, at most ``timeout`` seconds; none when it passed, was woken, or all is read."""

    def wake(self) -> None:
        """Lets :meth:`read` return soon, from whatever thread."""


class DriverSession:
    """From the driver's first line to its goodbye.

    Args:
        source: where records come from.
        answers: where acknowledgements go.
        is_driver_gone: whether a source that was closed without a goodbye means that the driver has died.
        own: reporters that no setting makes: by name, what makes them.
        choose: which of the driver's settings count.
        log: where the log lines of this process go, which is this process's own.
        first_sequence: the number of the first event, unless the driver knows of later ones.
        strict: refuse settings of which one reporter cannot be used, instead of disabling that one.
        amend: adds what this process knows of the application's end.

    Attributes:
        driver: its process id; 0 where that is unknown.
    """

    def __init__(
        self,
        source: RecordSource,
        answers: Answers,
        is_driver_gone: Callable[[], bool],
        *,
        own: Mapping[str, Callable[[], Reporter]] | None = None,
        choose: Callable[[list[Setting]], list[Setting]] = lambda settings: settings,
        log: LogLines | None = None,
        first_sequence: int = 1,
        strict: bool = False,
        amend: Callable[[ApplicationEnd], ApplicationEnd] = lambda end: end,
    ) -> None:
        self.driver = 0
        self._source = source
        self._answers = answers
        self._is_driver_gone = is_driver_gone
        self._own = own or {}
        self._choose = choose
        self._log = log
        self._first_sequence = first_sequence
        self._strict = strict
        self._amend = amend
        self._decoder = Decoder()
        self._translator = Translator()
        self._pipeline: Pipeline
        self._first: list[bytes] = []
        self._last_record = 0
        self._told_read = 0
        self._held: int | None = None
        # Of ``time.monotonic``: before that, time makes no events.
        self._clock_stands_until = 0.0
        self._before: Mapping[str, Mapping[str, int]] = {}
        self._jvm_is_going_down = False
        self._goodbye: Goodbye | None = None
        self._unknown: Counter[str] = Counter()
        self._acknowledgements = Acknowledgements(answers, 1, 1)
        self._max_weight = 1
        self._telemetry = DispatcherTelemetry(source.wake, lambda numbers: answers.send("stats", reporters=numbers))

    def begin(self) -> bool:
        """Reads the first line, and starts what it asks for; False when there was none.

        Raises:
            ConfigError: the settings cannot be used.
            ProtocolError: the shim is not one that this version understands.
        """
        lines = self._source.read()
        if not lines:
            return False
        hello = self._decoder.decode(lines[0])
        if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
            raise ProtocolError(
                f"the jar on the class path and the package spark_events {__version__} do not belong together;"
                " take the jar that `spark-events conf` names"
            )
        self.driver = hello.driver
        self._before = hello.before
        given = [Setting(s.key, s.value, s.origin) for s in hello.settings]
        settings = Settings(self._choose(given))

        def keep_log() -> None:
            # Modules of others have been imported; what they log from now on may quote the settings.
            if self._log is not None:
                self._log.hide = settings.confidence().hide
                self._log.connect()

        self._pipeline = build(
            settings,
            self._hooks(),
            self._observe,
            hello.application,
            self._own,
            keep_log,
            self.driver,
            strict=self._strict,
        )
        first = max(hello.sequence, self._first_sequence)
        self._translator = Translator(self._pipeline.translation, first)
        self._acknowledgements = Acknowledgements(self._answers, first, self._pipeline.queue_size)
        self._max_weight = max(1, min(_MAX_WEIGHT, self._pipeline.queue_size // 2))
        self._pipeline.dispatcher.start()
        self._note_disabled()
        self._tell_of_breakers_before()
        self._answers.send("ready", version=__version__, pid=os.getpid(), awaited=self._pipeline.awaited())
        self._first = lines[1:]
        return True

    def run(self) -> None:
        """After :meth:`begin`: returns when everything is delivered, or when the time for it is up."""
        self._process(self._first)
        self._tell_of_breakers()
        while self._goodbye is None and not self._source.closed:
            self._process(self._source.read(self._patience()))
            self._tick()
            self._tell_of_breakers()
        self._finish()

    @property
    def next_sequence(self) -> int:
        """The number that the next event would have."""
        return self._translator.next_sequence

    @property
    def reporters(self) -> list[str]:
        """The names of those that the settings have made, and of those that were made without any."""
        return [delivery.name for delivery in self._pipeline.deliveries]

    def attach(self, make: Callable[[Hooks], Delivery]) -> Delivery:
        """Adds a reporter while events flow; nobody waits for its answers. From whatever thread."""
        delivery = make(self._hooks())
        self._pipeline.dispatcher.attach(delivery)
        return delivery

    def detach(self, delivery: Delivery) -> None:
        """Takes it out again, at once: what it holds is dropped."""
        self._pipeline.dispatcher.detach(delivery)

    def _hooks(self) -> Hooks:
        return Hooks(self._acknowledge, self._telemetry.breaker_changed)

    def _patience(self) -> float | None:
        """How long the pipe may be silent before time itself makes an event."""
        deadline = self._translator.next_deadline
        if deadline is None:
            return None
        return max(0.0, deadline / 1000 - time.time(), self._clock_stands_until - time.monotonic())

    def _tick(self) -> None:
        deadline = self._translator.next_deadline
        now = time.time_ns() // 1_000_000
        if deadline is not None and deadline <= now and time.monotonic() >= self._clock_stands_until:
            # What was held back belongs to the oldest record that it was held back for.
            record = self._translator.held_record or self._last_record
            try:
                events = self._translator.tick(now)
            except Exception:
                # Without its timers the translation still tells what records tell.
                self._defect(None)
                self._clock_stands_until = time.monotonic() + _CLOCK_SECONDS
                events = []
            self._dispatch([Entry(record, event) for event in events])

    def _process(self, lines: list[bytes]) -> None:
        # Everything in this loop is paid for with every record: hence the names for what does not change.
        decode, translator, translated = self._decoder.decode, self._translator, self._acknowledgements.translated
        entries: list[Entry] = []
        for line in lines:
            record = decode(line)
            if type(record) in _SPECIAL:
                special = self._understand(record)
                if special is None:
                    continue
                record = special
            number = record.seq
            oldest = translator.held_record or number
            weight = 1 if len(line) < WEIGHT_BYTES else min(weight_for(len(line)), self._max_weight)
            try:
                for event in translator.translate(record):
                    entries.append(Entry(oldest if oldest < number else number, event, weight))
            except Exception:
                # A defect of ours must cost one record, not the events of the whole application.
                self._defect(record)
            if number:
                self._last_record = number
                translated(number, translator.next_sequence)
            if len(entries) >= _SLICE:
                self._dispatch(entries)
                entries = []
        if lines:
            self._dispatch(entries)

    def _understand(self, record: object) -> ApplicationEnd | JvmShutdown | Unknown | None:
        """What is said to the sidecar itself; returns what is to be translated and acknowledged all the same."""
        if isinstance(record, Goodbye):
            self._goodbye = record
            return None
        if isinstance(record, Restored):
            self._restore(record)
            return None
        if isinstance(record, ApplicationEnd):
            return self._amend(record)
        if isinstance(record, JvmShutdown):
            self._jvm_is_going_down = True
            return record
        assert isinstance(record, Unknown)
        return self._skip(record)

    def _dispatch(self, entries: list[Entry]) -> None:
        # A new hold counts before its record does; one that is over, only when its event is in the mailboxes.
        held = self._translator.held_record
        if held is not None and self._held is None:
            self._acknowledgements.hold(held)
        self._pipeline.dispatcher.dispatch(entries, self._last_record)
        self._held = held
        self._acknowledgements.hold(held)
        # Also when somebody was woken and will tell: it may be one that hangs, and nobody is to wait for that one.
        self._acknowledge()

    def _restore(self, told: Restored) -> None:
        record = self._decoder.decode(told.record)
        try:
            self._translator.restore(record)
        except Exception:
            self._defect(record)

    def _skip(self, record: Unknown) -> Unknown:
        """Says once a kind that there are records which this version does not understand."""
        if record.kind not in self._unknown:
            _LOG.warning("records of kind %r are not understood by spark_events %s", record.kind, __version__)
        self._unknown[record.kind] += 1
        # Records are numbered one by one: one that cannot even be read is the next.
        return record if record.seq else Unknown(seq=self._last_record + 1, kind=record.kind)

    def _defect(self, record: object | None) -> None:
        self._translator.defects += 1
        what = "what time alone makes" if record is None else f"a record of kind {type(record).__name__}"
        _LOG.exception("%s could not be translated", what)

    def _acknowledge(self) -> None:
        self._acknowledgements.complete(self._pipeline.dispatcher.progress)

    def _observe(self) -> None:
        if self._log is not None:
            self._log.connect()
        # One that is late is not waited for any longer: nobody else would say so.
        self._acknowledge()
        self._tell_read()
        self._telemetry.numbers(self._pipeline.dispatcher.counters)

    def _tell_read(self) -> None:
        """Shows the driver that this process still reads, though a reporter may be away and nothing is acknowledged."""
        if self._last_record != self._told_read:
            self._told_read = self._last_record
            self._answers.send("read", through=self._told_read)

    def _finish(self) -> None:
        if self._goodbye is not None:
            patience = self._goodbye.within_ms / 1000 - _EXIT_SECONDS
        else:
            patience = self._pipeline.config.shutdown_timeout
            self._report_loss()
        deadline = time.monotonic() + patience
        dispatcher = self._pipeline.dispatcher
        # Those that can be delivered are; the report on that is the last thing the others are given.
        dispatcher.begin_drain()
        settled = dispatcher.drain(deadline - patience * _REPORT_SHARE)
        if self._tell_of_breakers():
            # Whoever had nothing left is not to be told of as if it had not taken this in time.
            dispatcher.drain(deadline - patience * _REPORT_SHARE / 2, settled)
        books = with_those_before(account(dispatcher.counters()), self._before)
        report = final_report(books, self._doubtful(), time.time_ns() // 1_000_000)
        dispatcher.dispatch([Entry(self._last_record, self._translator.emit(report))], self._last_record)
        dispatcher.stop(deadline)
        self._acknowledge()
        self._telemetry.numbers(dispatcher.counters, at_once=True)

    def _doubtful(self) -> dict[str, int]:
        return {
            "illegal": self._translator.illegal,
            "without_start": self._translator.jobs_without_start,
            "defective": self._translator.defects,
            "unknown": sum(self._unknown.values()),
            # The driver knows of a predecessor's time, too; one that was killed has told what it could.
            "dropped": max(self._translator.dropped, 0 if self._goodbye is None else self._goodbye.dropped),
        }

    def _note_disabled(self) -> None:
        """Log the reporters that cannot be used, and have events made of them for the others."""
        for name, problems in self._pipeline.disabled.items():
            why = "; ".join(problems)
            _LOG.error(
                "reporter '%s': disabled, it gets no events, the other reporters run; correct this and restart the"
                " application: %s",
                name,
                why,
            )
            self._telemetry.disabled(name, why)
        for problem in self._pipeline.remarks:
            _LOG.warning("a reporter that is not active has a mistake in its settings: %s", problem)

    def _tell_of_breakers_before(self) -> None:
        """A predecessor's are gone with it: what was told to be open is not, and nobody else would ever say so."""
        for name in self.reporters:
            state = _STATES[self._before.get(name, {}).get("breaker", 0)]
            if state is not BreakerState.CLOSED:
                self._telemetry.breaker_changed(name, state, BreakerState.CLOSED, "the sidecar was started anew")

    def _tell_of_breakers(self) -> bool:
        """Whether there was something to tell."""
        if not self._translator.knows_application and self._goodbye is None and not self._source.closed:
            # An event without its application says little: the first records are about to come.
            return False
        changes = self._telemetry.take_changes()
        for change in changes:
            self._dispatch([Entry(self._last_record, self._translator.emit(reporter_status(*change)))])
        return bool(changes)

    def _report_loss(self) -> None:
        if self._translator.application_is_over:
            return
        if not self._jvm_is_going_down and not self._is_driver_gone():
            _LOG.error("the driver has closed the pipe but lives on; its further events are not reported")
            return
        events = self._translator.driver_lost(time.time_ns() // 1_000_000, self._jvm_is_going_down)
        self._pipeline.dispatcher.dispatch([Entry(self._last_record, event) for event in events], 0)
