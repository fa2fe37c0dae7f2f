"""What a driver session does several times a second on the dispatcher's watch thread."""

from __future__ import annotations

from spark_events.dispatch.dispatcher import Dispatcher
from spark_events.dispatch.process.setup import LogLines
from spark_events.dispatch.telemetry import DispatcherTelemetry
from spark_events.sidecar.acknowledgements import Acknowledgements, MessageWriter
from spark_events.sidecar.earlier_runs import EarlierRuns
from spark_events.sidecar.outlet import EventOutlet


class DriverSessionWatch:
    """Acknowledge records and send progress, even while every other thread is blocked or busy.

    Args:
        outlet: has the number of the last translated record.
        acknowledgements: acknowledges records.
        earlier: confirms events about earlier runs.
        dispatcher: has the delivery counters.
        telemetry: sends the counters.
        messages: sends the progress of reading.
        log: handler of this process's log lines; None: logging stays as it is.
    """

    def __init__(
        self,
        outlet: EventOutlet,
        acknowledgements: Acknowledgements,
        earlier: EarlierRuns,
        dispatcher: Dispatcher,
        telemetry: DispatcherTelemetry,
        messages: MessageWriter,
        log: LogLines | None,
    ) -> None:
        self._outlet = outlet
        self._acknowledgements = acknowledgements
        self._earlier = earlier
        self._dispatcher = dispatcher
        self._telemetry = telemetry
        self._messages = messages
        self._log = log
        self._read_seq = 0

    def look(self) -> None:
        """Acknowledge, confirm and send what is new."""
        if self._log is not None:
            self._log.connect()
        # Acknowledge the records that no longer wait for an overdue reporter; no other call acknowledges them.
        self._acknowledgements.complete(self._dispatcher.progress)
        self._earlier.confirm()
        if (seq := self._outlet.seq) != self._read_seq:
            self._read_seq = seq
            self._messages.send("read", seq=seq)
        self._telemetry.numbers(self._dispatcher.counters)

    def finish(self) -> None:
        """Acknowledge, confirm and send for the last time, after the dispatcher has stopped."""
        self._acknowledgements.complete(self._dispatcher.progress)
        self._telemetry.numbers(self._dispatcher.counters, at_once=True)
        self._earlier.confirm(all_of_them=True)
