"""What a driver session says about itself: its reporters' circuit breakers, lost records, the final report."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from spark_events.dispatch.breaker import BreakerState
from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.telemetry import DispatcherTelemetry, QueueChange, with_those_before
from spark_events.sidecar.outlet import EventOutlet
from spark_events.sidecar.record_reader import RecordReader
from spark_events.translate.dispatch_reports import final_report, queue_status, reporter_status
from spark_events.translate.translator import Translator

#: Circuit breaker states in the order of their numbers in the driver's metrics.
_STATES = (BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN)
_LOG = logging.getLogger(__name__)


class DriverSessionReports:
    """Events about the dispatcher of one driver session.

    Args:
        translator: counts records without an event.
        outlet: dispatches the events.
        reader: counts unknown records, and has the driver's goodbye message.
        dispatcher: has the delivery counters.
        telemetry: collects the changes of breakers.
        before: the counters of the previous sidecar of this application, by reporter.
    """

    def __init__(
        self,
        translator: Translator,
        outlet: EventOutlet,
        reader: RecordReader,
        dispatcher: Dispatcher,
        telemetry: DispatcherTelemetry,
        before: Mapping[str, Mapping[str, int]],
    ) -> None:
        self._translator = translator
        self._outlet = outlet
        self._reader = reader
        self._dispatcher = dispatcher
        self._telemetry = telemetry
        self._before = before

    def note_disabled(self, disabled: Mapping[str, Sequence[str]]) -> None:
        """Log the disabled reporters, and report each of them as an event to the other reporters.

        Args:
            disabled: the problems of each reporter, by name.
        """
        for name, problems in disabled.items():
            why = "; ".join(problems)
            _LOG.error(
                "reporter '%s': disabled, receives no events; other reporters run; correct the setting and restart "
                "the application: %s",
                name,
                why,
            )
            self._telemetry.disabled(name, why)

    def note_breakers_before(self, reporters: Sequence[str]) -> None:
        """Report the circuit breakers of the previous sidecar as closed.

        These breakers ended with that process, so no other event reports them as closed.
        """
        for name in reporters:
            state = _STATES[self._before.get(name, {}).get("breaker", 0)]
            if state is not BreakerState.CLOSED:
                self._telemetry.breaker_changed(name, state, BreakerState.CLOSED, "the sidecar was restarted")

    def report_changes(self, *, is_end: bool) -> bool:
        """Dispatch events for the changes of reporters; return whether there were any.

        Args:
            is_end: whether no further records follow. Otherwise the changes wait for the first records, which supply
                the application's attributes.
        """
        if not self._telemetry.changes or not (is_end or self._translator.knows_application):
            return False
        for change in self._telemetry.take_changes():
            self._outlet.emit(queue_status(*change) if isinstance(change, QueueChange) else reporter_status(*change))
        return True

    def report_totals(self) -> None:
        """Dispatch the final report."""
        counters = with_those_before(self._dispatcher.counters(), self._before)
        self._outlet.emit(final_report(counters, self._lost_records(), time.time_ns() // 1_000_000))

    def _lost_records(self) -> dict[str, int]:
        translator, goodbye = self._translator, self._reader.goodbye
        return {
            "illegal": translator.illegal,
            "without_start": translator.jobs_without_start,
            "defective": translator.defects,
            "unknown": sum(self._reader.unknown.values()),
            # The driver's count includes drops that the earlier sidecars may have reported.
            "dropped": max(translator.dropped, 0 if goodbye is None else goodbye.dropped),
        }
