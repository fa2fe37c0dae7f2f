"""The translator's timers, on the driver session's thread."""

from __future__ import annotations

import logging

from spark_events.clocks import SYSTEM, Clocks, ClockSteps
from spark_events.event.text import lasting
from spark_events.sidecar.acknowledgements import MessageWriter
from spark_events.sidecar.outlet import EventOutlet
from spark_events.translate.translator import Translator

_LOG = logging.getLogger(__name__)
#: Pause after an error in one of the translator's timers, in seconds.
_PAUSE_SECONDS = 60.0


class Timers:
    """Call the translator when one of its timers is due.

    Args:
        translator: has the timers.
        outlet: dispatches the events of the timers.
        messages: sends questions to the driver.
        clocks: the clocks of this process.
    """

    def __init__(
        self, translator: Translator, outlet: EventOutlet, messages: MessageWriter, clocks: Clocks = SYSTEM
    ) -> None:
        self._translator = translator
        self._outlet = outlet
        self._messages = messages
        self._clocks = clocks
        # The timers are paused due this time of the monotonic clock.
        self._paused_until = 0.0
        self._clock_steps = ClockSteps(clocks)

    def patience(self) -> float | None:
        """Return the seconds until the next timer; None if no timer is set."""
        due = self._translator.next_due
        if due is None:
            return None
        return max(0.0, due / 1000 - self._clocks.wall(), self._paused_until - self._clocks.monotonic())

    def tick(self) -> None:
        """Dispatch the events of the timers that are due."""
        now = round(self._clocks.wall() * 1000)
        step = self._clock_steps.take()
        if step:
            _LOG.warning(
                "this machine's clock was set %s by %s; time limits and idle timeouts continue with the time that has"
                " really passed, and the times of later events follow the new clock",
                "ahead" if step > 0 else "back",
                lasting(abs(step)),
            )
            self._translator.clock_stepped(step, now)
        due = self._translator.next_due
        if due is None or due > now or self._clocks.monotonic() < self._paused_until:
            return
        try:
            events = self._translator.tick(now)
        except Exception:
            # Records are translated even while the timers are paused.
            self._translator.defects += 1
            _LOG.exception("a timer of the translation failed; retrying in %g s; report this", _PAUSE_SECONDS)
            self._paused_until = self._clocks.monotonic() + _PAUSE_SECONDS
            events = []
        self._outlet.report(events)
        question = self._translator.deadlines.take_question()
        if question is not None:
            self._messages.send("inspect", **question)
