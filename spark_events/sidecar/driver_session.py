"""Driver session: read records, dispatch events, acknowledge records.

The reporters start before the first record is read, so that they can accept the first events. When the driver sends
its goodbye message or its pipe closes, the driver session stops reading. Then the reporters deliver their backlog, and
the driver session sends the last acknowledgement.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_events._version import __version__
from spark_events.clocks import SYSTEM, Clocks
from spark_events.config import Setting, Settings
from spark_events.dispatch.delivery import Delivery, Hooks
from spark_events.dispatch.delivery_config import DeliveryConfig
from spark_events.dispatch.pipeline import Pipeline, build
from spark_events.dispatch.process.setup import LogLines
from spark_events.dispatch.spool.ownership import driver_identity
from spark_events.dispatch.telemetry import DispatcherTelemetry, statistics
from spark_events.errors import MissingExtraError, ProtocolError
from spark_events.records.types import PROTOCOL, Hello, decode
from spark_events.reporters.reporter import Reporter
from spark_events.sidecar.acknowledgements import Acknowledgements, MessageWriter
from spark_events.sidecar.driver_session_reports import DriverSessionReports
from spark_events.sidecar.driver_session_watch import DriverSessionWatch
from spark_events.sidecar.earlier_runs import EarlierRuns
from spark_events.sidecar.outlet import EventOutlet
from spark_events.sidecar.predecessors import Predecessors
from spark_events.sidecar.record_reader import Amend, RecordReader
from spark_events.sidecar.timers import Timers
from spark_events.translate.translator import Translator

#: Fraction of the shutdown time that is reserved for the final report.
_REPORT_FRACTION = 0.1
#: Part of the driver's shutdown wait that is reserved for the steps after the last acknowledgement, in seconds.
_EXIT_SECONDS = 0.1
#: Name of the metrics exporter in the delivery counters; not a valid name for a reporter.
_METRICS = "(metrics)"
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


@dataclass(frozen=True, slots=True)
class DriverSessionOptions:
    """What distinguishes the sidecar's driver session from that of an in-process stream.

    Attributes:
        own: factories, by name, of reporters that are not configured by settings.
        choose: selects the settings to use from the settings that the driver sends.
        log: handler of this process's log lines; None: logging is not changed.
        first_sequence: number of the first event, unless the driver sends a higher number.
        strict: if a reporter's settings are unusable, raise an error instead of disabling the reporter.
        amend: adds data about the driver's Python process to inspection, application-start and application-end records.
        clocks: the clocks of this process.
    """

    own: Mapping[str, Callable[[], Reporter]] | None = None
    choose: Callable[[list[Setting]], list[Setting]] = lambda settings: settings
    log: LogLines | None = None
    first_sequence: int = 1
    strict: bool = False
    amend: Amend = lambda record: record
    clocks: Clocks = SYSTEM


@dataclass(frozen=True, slots=True)
class DriverSession:
    """Connection with one driver, from its first line to its goodbye message; :meth:`open` creates it.

    Attributes:
        driver: process id of the driver; 0 if unknown.
    """

    driver: int
    _first: Sequence[bytes]  # lines after the hello message
    _source: RecordSource
    _is_driver_gone: Callable[[int], bool]
    _translator: Translator
    _pipeline: Pipeline
    _hooks: Hooks
    _reader: RecordReader
    _timers: Timers
    _outlet: EventOutlet
    _reports: DriverSessionReports
    _earlier: EarlierRuns
    _predecessors: Predecessors
    _watch: DriverSessionWatch

    @staticmethod
    def open(
        source: RecordSource,
        messages: MessageWriter,
        is_driver_gone: Callable[[int], bool],
        options: DriverSessionOptions | None = None,
    ) -> DriverSession | None:
        """Read the driver's first line and start the reporters.

        Args:
            source: the source of records.
            messages: sends acknowledgements and other messages to the driver.
            is_driver_gone: returns whether the driver, given by its process id, has died; called if the source closes
                without a goodbye message.
            options: the options of the driver session.

        Returns:
            The driver session, whose :meth:`run` must be called; None if the source ended before the first line.

        Raises:
            ConfigError: when the settings are unusable.
            ProtocolError: when the versions of the jar and of this package differ.
        """
        lines = source.read()
        if not lines:
            return None
        hello, options = _hello_of(lines[0]), options or DriverSessionOptions()
        telemetry = DispatcherTelemetry(source.wake, lambda numbers: messages.send("stats", reporters=numbers))

        # The dispatcher's threads call back into the parts that are built from it below; they start at the end.
        def on_watch() -> None:
            watch.look()

        hooks = Hooks(
            lambda: acknowledgements.complete(dispatcher.progress),
            telemetry.breaker_changed,
            telemetry.fullness_changed,
        )
        pipeline = _pipeline_of(hello, options, hooks, on_watch)
        plans, dispatcher = pipeline.plans, pipeline.dispatcher
        first = max(hello.sequence, options.first_sequence)
        acknowledgements = Acknowledgements(messages, first, plans.dispatcher.queue_size)
        translator = Translator(plans.translation, first, hello.dropped > 0, options.clocks)
        translator.load_memory(hello.memory)
        outlet = EventOutlet(translator, dispatcher, messages, hooks.on_progress)
        reader = RecordReader(translator, outlet, acknowledgements, plans.dispatcher.queue_size, options.amend)
        earlier = EarlierRuns(translator, outlet, source.wake)
        predecessors = Predecessors(
            next((plans.reporters[one.name].spool.folder for one in pipeline.deliveries if one.is_durable), None),
            [plan.config for plan in plans.reporters.values() if getattr(plan.config, "remembers_runs", False)],
            plans.config.application_unique,
            driver_identity(hello.driver),
            earlier.report,
            lambda folder: messages.send("mark", folder=str(folder)),
            options.clocks,
        )
        reports = DriverSessionReports(translator, outlet, reader, dispatcher, telemetry, hello.before)
        watch = DriverSessionWatch(outlet, acknowledgements, earlier, dispatcher, telemetry, messages, options.log)
        timers = Timers(translator, outlet, messages, options.clocks)
        dispatcher.start()
        _export_metrics(plans.config.metrics_otlp_endpoint, pipeline, hooks)
        reports.note_disabled(pipeline.disabled)
        reports.note_breakers_before([delivery.name for delivery in pipeline.deliveries])
        samples = plans.translation.deadline.watches_queries
        messages.send("ready", version=__version__, pid=os.getpid(), awaited=pipeline.awaited(), samples=samples)
        return DriverSession(
            hello.driver,
            lines[1:],
            source,
            is_driver_gone,
            translator,
            pipeline,
            hooks,
            reader,
            timers,
            outlet,
            reports,
            earlier,
            predecessors,
            watch,
        )

    def run(self) -> None:
        """Process records until all events are delivered or the shutdown timeout has passed."""
        self._read(self._first)
        self._reports.report_changes(is_end=self._is_over)
        while not self._is_over:
            self._read(self._source.read(self._timers.patience()))
            self._timers.tick()
            self._follow_up()
            self._reports.report_changes(is_end=self._is_over)
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
        """Add a reporter while the driver session runs; thread-safe.

        Spark does not wait for this reporter; acknowledgements do.
        """
        delivery = make(self._hooks)
        self._pipeline.dispatcher.attach(delivery)
        return delivery

    def detach(self, delivery: Delivery) -> None:
        """Remove an attached reporter immediately and drop its backlog."""
        self._pipeline.dispatcher.detach(delivery)

    @property
    def _is_over(self) -> bool:
        """Whether no further lines follow."""
        return self._reader.goodbye is not None or self._source.closed

    def _read(self, lines: Sequence[bytes]) -> None:
        self._reader.read(lines)
        # A Spark Connect client has no driver, and does not learn how the application ends.
        if self.driver and (started := self._reader.take_start()) is not None:
            self._predecessors.begin(started, self._translator.scope)

    def _follow_up(self) -> None:
        """Report earlier runs; if this run has ended, record that it has ended."""
        self._earlier.dispatch()
        if self._translator.application_is_over:
            self._predecessors.end()

    def _finish(self) -> None:
        if self._reader.goodbye is not None:
            patience = self._reader.goodbye.within_ms / 1000 - _EXIT_SECONDS
        else:
            patience = self._pipeline.plans.config.shutdown_timeout
            self._report_loss()
        self._follow_up()
        until = time.monotonic() + patience
        dispatcher = self._pipeline.dispatcher
        # Drain first: the final report covers all deliveries, so it is the last event that the reporters receive.
        dispatcher.begin_drain()
        settled = dispatcher.drain(until - patience * _REPORT_FRACTION)
        if self._reports.report_changes(is_end=True):
            # Drain the breaker events too; otherwise a reporter without a backlog would count as late.
            dispatcher.drain(until - patience * _REPORT_FRACTION / 2, settled)
        self._reports.report_totals()
        if _METRICS in settled:
            # The last export of metrics includes the delivery of the final report.
            dispatcher.drain(until - patience * _REPORT_FRACTION / 4, settled)
        dispatcher.stop(until)
        # All events were delivered, stored or counted as lost.
        self._watch.finish()
        self._predecessors.join()

    def _report_loss(self) -> None:
        """Report the loss of a driver that closed the pipe without a goodbye message."""
        if self._translator.application_is_over:
            return
        if not self._reader.jvm_is_going_down and not self._is_driver_gone(self.driver):
            _LOG.error(
                "the driver closed the pipe but is still running; further events of this application are not reported"
            )
            return
        now = time.time_ns() // 1_000_000
        self._outlet.report(self._translator.driver_lost(now, self._reader.jvm_is_going_down))


def _hello_of(line: bytes) -> Hello:
    """Return the driver's first message.

    Raises:
        ProtocolError: when the versions of the jar and of this package differ.
    """
    hello = decode(line)
    if not isinstance(hello, Hello) or hello.protocol != PROTOCOL or hello.version not in ("", __version__):
        jar = getattr(hello, "version", "") or "of another version"
        raise ProtocolError(
            f"the jar on the driver's class path is spark-events {jar}, the Python package is {__version__}; no"
            " event is reported. Install the same version of both; `spark-events conf` prints the package's jar"
        )
    return hello


def _pipeline_of(hello: Hello, options: DriverSessionOptions, hooks: Hooks, on_watch: Callable[[], None]) -> Pipeline:
    given = [Setting(s.key, s.value, s.origin) for s in hello.settings]
    settings, log = Settings(options.choose(given)), options.log

    def keep_log() -> None:
        # Reading the settings has imported third-party modules, whose log lines may quote secrets.
        if log is not None:
            log.hide = settings.confidence().hide
            log.connect()

    return build(
        settings,
        hooks,
        on_watch,
        hello.application,
        options.own or {},
        keep_log,
        hello.driver,
        strict=options.strict,
    )


def _export_metrics(endpoint: str | None, pipeline: Pipeline, hooks: Hooks) -> None:
    """If an endpoint is set, export metrics over OTLP; only log a missing library."""
    if endpoint is None:
        return
    from spark_events.reporters.otlp.metrics import OtlpMetrics

    dispatcher, capacity = pipeline.dispatcher, pipeline.plans.dispatcher.queue_size

    def counters() -> dict[str, dict[str, int | float | str]]:
        return {name: statistics(one) for name, one in dispatcher.counters().items()}

    try:
        delivery = Delivery(_METRICS, lambda: OtlpMetrics(endpoint, counters), DeliveryConfig(), capacity, hooks)
    except MissingExtraError as error:
        _LOG.error("events.metrics.otlp.endpoint: no metrics are exported, events are still reported: %s", error)
        return
    dispatcher.attach(delivery)
