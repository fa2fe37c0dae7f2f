"""Session with one driver: read records, dispatch events, acknowledge records.

The reporters start before the session reads records, so that they can accept the first events. When the driver sends
its goodbye message or its pipe closes, the session stops reading. Then the reporters deliver their backlog, and the
session sends the last acknowledgement.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from spark_events._version import __version__
from spark_events.clocks import SYSTEM, ClockSteps
from spark_events.config import Setting, Settings
from spark_events.dispatch.breaker import BreakerState
from spark_events.dispatch.config import DeliveryConfig
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.entries import WEIGHT_BYTES, Entry, weight_for
from spark_events.dispatch.pipeline import Pipeline, build
from spark_events.dispatch.process.setup import LogLines
from spark_events.dispatch.spool.ownership import driver_identity
from spark_events.dispatch.telemetry import DispatcherTelemetry, statistics, with_those_before
from spark_events.errors import MissingExtraError, ProtocolError
from spark_events.event import Event
from spark_events.records.types import (
    PROTOCOL,
    ApplicationEnd,
    ApplicationStart,
    Goodbye,
    Hello,
    Inspection,
    JvmShutdown,
    Restored,
    Unknown,
    decode,
)
from spark_events.reporters.reporter import Reporter
from spark_events.sidecar.acknowledgements import Acknowledgements, MessageWriter
from spark_events.sidecar.predecessors import Predecessors
from spark_events.translate.dispatch_reports import final_report, reporter_status
from spark_events.translate.draft import lasting
from spark_events.translate.translator import Translator

#: Maximum number of events in one call to the dispatcher; at most a quarter of a mailbox's capacity.
_SLICE = 512
#: Upper limit for the weight of an event. An event also weighs at most half a mailbox, so that a later event of higher
#: priority can displace other events.
_MAX_WEIGHT = 1024
#: Share of the shutdown time that is reserved for the final report.
_REPORT_SHARE = 0.1
#: Part of the driver's shutdown wait that is reserved for the steps after the last acknowledgement, in seconds.
_EXIT_SECONDS = 0.1
#: Pause after an error in one of the translator's timers, in seconds.
_CLOCK_SECONDS = 60.0
#: Name of the metrics exporter in the delivery counters; not a valid name for a reporter.
_METRICS = "(metrics)"
#: Circuit breaker states in the order of their numbers in the driver's metrics.
_STATES = (BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN)
#: Types of records that the session itself handles.
_SPECIAL = frozenset({ApplicationStart, ApplicationEnd, Inspection, Goodbye, Restored, JvmShutdown, Unknown})
#: Types of records that the session handles and that are then translated and acknowledged.
_Numbered: TypeAlias = ApplicationStart | ApplicationEnd | Inspection | JvmShutdown | Unknown
_LOG = logging.getLogger(__name__)


class RecordSource(Protocol):
    """Source of lines, one record per line."""

    @property
    def closed(self) -> bool:
        """Whether the source has ended; no further lines follow."""

    def read(self, timeout: float | None = None) -> list[bytes]:
        """Return the available lines; wait up to ``timeout`` seconds for a line (None: no limit).

        The list is empty after the timeout, after :meth:`wake`, and at the end of the source.
        """

    def wake(self) -> None:
        """Make :meth:`read` return immediately; thread-safe."""


class DriverSession:
    """Session with one driver, from its first line to its goodbye message.

    Args:
        source: the source of records.
        messages: sends acknowledgements and other messages to the driver.
        is_driver_gone: returns whether the driver has died; called if the source closes without a goodbye message.
        own: factories, by name, of reporters that are not configured by settings.
        choose: selects the settings to use from the settings that the driver sends.
        log: handler of this process's log lines; None: the session does not change logging.
        first_sequence: number of the first event, unless the driver sends a higher number.
        strict: if a reporter's settings are unusable, raise an error instead of disabling the reporter.
        amend: adds data about the driver's Python process to inspection and application-end records.

    Attributes:
        driver: process id of the driver; 0 if unknown.
    """

    def __init__(
        self,
        source: RecordSource,
        messages: MessageWriter,
        is_driver_gone: Callable[[], bool],
        *,
        own: Mapping[str, Callable[[], Reporter]] | None = None,
        choose: Callable[[list[Setting]], list[Setting]] = lambda settings: settings,
        log: LogLines | None = None,
        first_sequence: int = 1,
        strict: bool = False,
        amend: Callable[[ApplicationEnd | Inspection], ApplicationEnd | Inspection] = lambda record: record,
    ) -> None:
        self.driver = 0
        self._source = source
        self._messages = messages
        self._is_driver_gone = is_driver_gone
        self._own = own or {}
        self._choose = choose
        self._log = log
        self._first_sequence = first_sequence
        self._strict = strict
        self._amend = amend
        self._translator = Translator()
        self._pipeline: Pipeline
        self._first: list[bytes] = []
        self._last_record = 0
        self._reported_read = 0
        # The translator's timers are paused until this time, in seconds of ``time.monotonic``.
        self._clock_stands_until = 0.0
        self._clock_steps = ClockSteps(SYSTEM)
        self._before: Mapping[str, Mapping[str, int]] = {}
        self._predecessors: Predecessors
        self._start: ApplicationStart | None = None
        # Events about earlier runs, each group with a function to call when the reporters have settled it: those that
        # wait for their dispatch, and those that were dispatched, with their record numbers.
        self._about_earlier: deque[tuple[Sequence[Event], Callable[[], None]]] = deque()
        self._unsettled: deque[tuple[int, Callable[[], None]]] = deque()
        self._jvm_is_going_down = False
        self._goodbye: Goodbye | None = None
        self._unknown: Counter[str] = Counter()
        self._acknowledgements = Acknowledgements(messages, 1, 1)
        self._queue_size = self._max_weight = self._slice = 1
        self._telemetry = DispatcherTelemetry(source.wake, lambda numbers: messages.send("stats", reporters=numbers))

    def begin(self) -> bool:
        """Read the driver's first line and start the reporters.

        Returns False if the source ended before the first line.

        Raises:
            ConfigError: when the settings are unusable.
            ProtocolError: when the versions of the jar and of this package differ.
        """
        lines = self._source.read()
        if not lines:
            return False
        hello = decode(lines[0])
        if not isinstance(hello, Hello) or hello.protocol != PROTOCOL or hello.version not in ("", __version__):
            jar = getattr(hello, "version", "") or "of another version"
            raise ProtocolError(
                f"the jar on the driver's class path is spark-events {jar}, the Python package is {__version__}; no"
                " event is reported. Install the same version of both; `spark-events conf` prints the package's jar"
            )
        self.driver = hello.driver
        self._before = hello.before
        given = [Setting(s.key, s.value, s.origin) for s in hello.settings]
        settings = Settings(self._choose(given))

        def keep_log() -> None:
            # Reading the settings has imported third-party modules, whose log lines may quote secrets.
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
        plans = self._pipeline.plans
        self._queue_size = plans.dispatcher.queue_size
        first = max(hello.sequence, self._first_sequence)
        self._translator = Translator(plans.translation, first, misses_records=hello.dropped > 0)
        self._translator.load_memory(hello.memory)
        self._acknowledgements = Acknowledgements(self._messages, first, self._queue_size)
        self._max_weight = max(1, min(_MAX_WEIGHT, self._queue_size // 2))
        self._slice = max(1, min(_SLICE, self._queue_size // 4))
        self._predecessors = Predecessors(
            next((plans.reporters[one.name].spool.folder for one in self._pipeline.deliveries if one.is_durable), None),
            [plan.config for plan in plans.reporters.values() if getattr(plan.config, "remembers_runs", False)],
            plans.config.application_unique,
            driver_identity(self.driver),
            self._report_earlier,
            lambda folder: self._messages.send("mark", folder=str(folder)),
        )
        self._pipeline.dispatcher.start()
        self._measure(plans.config.metrics_otlp_endpoint)
        self._note_disabled()
        self._report_breakers_before()
        samples = plans.translation.deadline.watches_queries
        awaited = self._pipeline.awaited()
        self._messages.send("ready", version=__version__, pid=os.getpid(), awaited=awaited, samples=samples)
        self._first = lines[1:]
        return True

    def run(self) -> None:
        """Process records until all events are delivered or the shutdown timeout has passed.

        Call this method only after :meth:`begin` returned True.
        """
        self._process(self._first)
        self._report_breakers()
        while self._goodbye is None and not self._source.closed:
            self._process(self._source.read(self._patience()))
            self._tick()
            self._follow_up()
            self._report_breakers()
        self._finish()

    @property
    def next_sequence(self) -> int:
        """Sequence number of the next event."""
        return self._translator.next_sequence

    @property
    def reporters(self) -> list[str]:
        """Names of the reporters from the settings and from ``own``; attached reporters are not included."""
        return [delivery.name for delivery in self._pipeline.deliveries]

    def attach(self, make: Callable[[Hooks], Delivery]) -> Delivery:
        """Add a reporter to the running session; thread-safe.

        Spark does not wait for this reporter; acknowledgements do.
        """
        delivery = make(self._hooks())
        self._pipeline.dispatcher.attach(delivery)
        return delivery

    def detach(self, delivery: Delivery) -> None:
        """Remove an attached reporter immediately and drop its backlog."""
        self._pipeline.dispatcher.detach(delivery)

    def _hooks(self) -> Hooks:
        return Hooks(self._acknowledge, self._telemetry.breaker_changed)

    def _patience(self) -> float | None:
        """Return the seconds until the translator's next timer; None if no timer is set."""
        deadline = self._translator.next_deadline
        if deadline is None:
            return None
        return max(0.0, deadline / 1000 - time.time(), self._clock_stands_until - time.monotonic())

    def _tick(self) -> None:
        now = time.time_ns() // 1_000_000
        step = self._clock_steps.take()
        if step:
            _LOG.warning(
                "this machine's clock was set %s by %s; time limits and idle timeouts continue with the time that has"
                " really passed, and the times of later events follow the new clock",
                "ahead" if step > 0 else "back",
                lasting(abs(step)),
            )
            self._translator.clock_stepped(step, now)
        deadline = self._translator.next_deadline
        if deadline is not None and deadline <= now and time.monotonic() >= self._clock_stands_until:
            try:
                events = self._translator.tick(now)
            except Exception:
                # Translate records even while the timers are paused.
                self._defect(None)
                self._clock_stands_until = time.monotonic() + _CLOCK_SECONDS
                events = []
            self._dispatch([Entry(self._last_record, event) for event in events])
            question = self._translator.deadlines.take_question()
            if question is not None:
                self._messages.send("inspect", **question)

    def _report_earlier(self, events: Sequence[Event], settled: Callable[[], None]) -> None:
        """Make the session report an earlier run; thread-safe."""
        self._about_earlier.append((events, settled))
        self._source.wake()

    def _follow_up(self) -> None:
        """Report earlier runs; if this run has ended, record that it has ended."""
        while self._about_earlier:
            events, settled = self._about_earlier.popleft()
            judged = [self._translator.predecessor_ended(event) for event in events]
            self._dispatch([Entry(self._last_record, event) for event in judged])
            self._unsettled.append((self._last_record, settled))
        if self._translator.application_is_over:
            self._predecessors.end()

    def _confirm_settled(self, *, all_of_them: bool = False) -> None:
        """Confirm that events about earlier runs are settled, so that the evidence of these runs can be destroyed."""
        with contextlib.suppress(IndexError):
            while True:
                # Ask the dispatcher after reading the number, when the events of this record are in the mailboxes.
                record, settled = self._unsettled[0]
                if not all_of_them and record > self._pipeline.dispatcher.progress().completed:
                    return
                self._unsettled.popleft()
                settled()

    def _process(self, lines: list[bytes]) -> None:
        # This loop runs for every record, so look up its functions only once.
        translator, translated = self._translator, self._acknowledgements.translated
        entries: list[Entry] = []
        for line in lines:
            record = decode(line)
            if type(record) in _SPECIAL:
                special = self._handle_session_record(record)
                if special is None:
                    continue
                record = special
            number = record.seq
            weight = 1 if len(line) < WEIGHT_BYTES else min(weight_for(len(line)), self._max_weight)
            try:
                for event in translator.translate(record):
                    entries.append(Entry(number, event, weight))
            except Exception:
                # Catch every error: a defect in the translation must cost at most one record, not all events of the
                # application.
                self._defect(record)
            if number:
                self._last_record = number
                translated(number, translator.next_sequence)
            if len(entries) >= self._slice:
                self._dispatch(entries)
                entries = []
        if lines:
            self._dispatch(entries)
        # A Spark Connect client has no driver, and does not learn how the application ends.
        if self._start is not None and self.driver and translator.knows_application:
            self._predecessors.begin(self._start, translator.scope)
            self._start = None

    def _handle_session_record(self, record: object) -> _Numbered | None:
        """Handle a session record; return the record to translate and acknowledge, or None."""
        if isinstance(record, Goodbye):
            self._goodbye = record
            return None
        if isinstance(record, Restored):
            self._restore(record)
            return None
        if isinstance(record, ApplicationStart):
            self._start = record
            return record
        if isinstance(record, (ApplicationEnd, Inspection)):
            return self._amend(record)
        if isinstance(record, JvmShutdown):
            self._jvm_is_going_down = True
            return record
        assert isinstance(record, Unknown)
        return self._skip(record)

    def _dispatch(self, entries: list[Entry]) -> None:
        memory = self._translator.take_memory()
        if memory is not None:
            # Send the memory before the acknowledgement of the records that caused it.
            self._messages.send("remember", memory=memory)
        self._pipeline.dispatcher.dispatch(entries, self._last_record)
        # Acknowledge here too. Otherwise only reporters would trigger acknowledgements, and a hanging reporter never
        # does.
        self._acknowledge()

    def _restore(self, restored: Restored) -> None:
        record = decode(restored.record)
        if isinstance(record, ApplicationStart):
            self._start = record
        try:
            self._translator.restore(record)
        except Exception:
            self._defect(record)

    def _skip(self, record: Unknown) -> Unknown:
        """Count an unknown record, and log each unknown kind once."""
        if record.kind not in self._unknown:
            _LOG.warning("skipping records of kind %r, which spark_events %s does not know", record.kind, __version__)
        self._unknown[record.kind] += 1
        # Record numbers are consecutive, so an unreadable record has the next number.
        return record if record.seq else Unknown(seq=self._last_record + 1, kind=record.kind)

    def _defect(self, record: object | None) -> None:
        self._translator.defects += 1
        if record is None:
            _LOG.exception("a timer of the translation failed; retrying in %g s; report this", _CLOCK_SECONDS)
        else:
            kind = type(record).__name__
            _LOG.exception("a record of kind %s could not be translated; its events are missing; report this", kind)

    def _acknowledge(self) -> None:
        self._acknowledgements.complete(self._pipeline.dispatcher.progress)

    def _observe(self) -> None:
        if self._log is not None:
            self._log.connect()
        # Acknowledge the records that no longer wait for an overdue reporter; no other call acknowledges them.
        self._acknowledge()
        self._confirm_settled()
        self._report_read()
        self._telemetry.numbers(self._pipeline.dispatcher.counters)

    def _measure(self, endpoint: str | None) -> None:
        """If an endpoint is set, export metrics over OTLP; only log a missing library."""
        if endpoint is None:
            return
        from spark_events.reporters.otlp.metrics import OtlpMetrics

        dispatcher, capacity = self._pipeline.dispatcher, self._queue_size

        def counters() -> dict[str, dict[str, int | float | str]]:
            return {name: statistics(one) for name, one in dispatcher.counters().items()}

        try:
            delivery = Delivery(
                _METRICS, lambda: OtlpMetrics(endpoint, counters), DeliveryConfig(), capacity, self._hooks()
            )
        except MissingExtraError as error:
            _LOG.error("events.metrics.otlp.endpoint: no metrics are exported, events are still reported: %s", error)
            return
        dispatcher.attach(delivery)

    def _report_read(self) -> None:
        """Send reading progress to the driver, even while a reporter delays the acknowledgements."""
        if self._last_record != self._reported_read:
            self._reported_read = self._last_record
            self._messages.send("read", seq=self._reported_read)

    def _finish(self) -> None:
        if self._goodbye is not None:
            patience = self._goodbye.within_ms / 1000 - _EXIT_SECONDS
        else:
            patience = self._pipeline.plans.config.shutdown_timeout
            self._report_loss()
        self._follow_up()
        deadline = time.monotonic() + patience
        dispatcher = self._pipeline.dispatcher
        # Drain first: the final report covers all deliveries, so it is the last event that the reporters receive.
        dispatcher.begin_drain()
        settled = dispatcher.drain(deadline - patience * _REPORT_SHARE)
        if self._report_breakers():
            # Drain the breaker events too; otherwise a reporter without a backlog would count as late.
            dispatcher.drain(deadline - patience * _REPORT_SHARE / 2, settled)
        counters = with_those_before(dispatcher.counters(), self._before)
        report = final_report(counters, self._lost_records(), time.time_ns() // 1_000_000)
        dispatcher.dispatch([Entry(self._last_record, self._translator.emit(report))], self._last_record)
        if _METRICS in settled:
            # The last export of metrics includes the delivery of the final report.
            dispatcher.drain(deadline - patience * _REPORT_SHARE / 4, settled)
        dispatcher.stop(deadline)
        self._acknowledge()
        self._telemetry.numbers(dispatcher.counters, at_once=True)
        # All events were delivered, stored or counted as lost.
        self._confirm_settled(all_of_them=True)
        self._predecessors.join()

    def _lost_records(self) -> dict[str, int]:
        return {
            "illegal": self._translator.illegal,
            "without_start": self._translator.jobs_without_start,
            "defective": self._translator.defects,
            "unknown": sum(self._unknown.values()),
            # The driver's count includes drops that the earlier sidecars may have reported.
            "dropped": max(self._translator.dropped, 0 if self._goodbye is None else self._goodbye.dropped),
        }

    def _note_disabled(self) -> None:
        """Log the disabled reporters, and report each of them as an event to the other reporters."""
        for name, problems in self._pipeline.disabled.items():
            why = "; ".join(problems)
            _LOG.error(
                "reporter '%s': disabled, receives no events; other reporters run; correct the setting and restart "
                "the application: %s",
                name,
                why,
            )
            self._telemetry.disabled(name, why)

    def _report_breakers_before(self) -> None:
        """Report the circuit breakers of the previous sidecar as closed.

        These breakers ended with that process, so no other event reports them as closed.
        """
        for name in self.reporters:
            state = _STATES[self._before.get(name, {}).get("breaker", 0)]
            if state is not BreakerState.CLOSED:
                self._telemetry.breaker_changed(name, state, BreakerState.CLOSED, "the sidecar was restarted")

    def _report_breakers(self) -> bool:
        """Dispatch events for circuit breaker changes; return whether a breaker has changed."""
        # Wait for the first records, which supply the application's attributes.
        is_early = not self._translator.knows_application and self._goodbye is None and not self._source.closed
        if is_early or not self._telemetry.changes:
            return False
        changes = self._telemetry.take_changes()
        for change in changes:
            self._dispatch([Entry(self._last_record, self._translator.emit(reporter_status(*change)))])
        return bool(changes)

    def _report_loss(self) -> None:
        if self._translator.application_is_over:
            return
        if not self._jvm_is_going_down and not self._is_driver_gone():
            _LOG.error(
                "the driver closed the pipe but is still running; further events of this application are not reported"
            )
            return
        events = self._translator.driver_lost(time.time_ns() // 1_000_000, self._jvm_is_going_down)
        self._pipeline.dispatcher.dispatch([Entry(self._last_record, event) for event in events], 0)
