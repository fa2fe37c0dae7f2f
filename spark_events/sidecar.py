"""The sidecar: the process beside the driver that makes events of records and delivers them.

It starts, in this order: its answers (so that whatever goes wrong can be said), the reporters (so that
nothing is translated that cannot be taken), the reading of records. It ends in the other order: no
record is read any more, the reporters deliver what they hold, the last acknowledgement is sent. It
lives as long as its standard input: a pipe that closes without a goodbye is how it learns that the
driver was killed.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections import Counter
from typing import NoReturn

from spark_events._version import __version__
from spark_events.bridge.acknowledgements import Acknowledgements
from spark_events.bridge.pipe import Answers, RecordPipe
from spark_events.bridge.records import Decoder, Goodbye, Hello, JvmShutdown, Restored, Unknown
from spark_events.config import Setting, Settings
from spark_events.dispatch.books import account
from spark_events.dispatch.delivery import Hooks
from spark_events.dispatch.interruption import Uninterrupted
from spark_events.dispatch.observation import Observation
from spark_events.dispatch.store import Entry
from spark_events.errors import ConfigError, ProtocolError
from spark_events.pipeline import Pipeline, build
from spark_events.reporters.log import DRIVER_LOGGER, severity_of
from spark_events.translate.dispatch_reports import final_report, reporter_status
from spark_events.translate.translator import Translator

__all__ = ["main"]

PROTOCOL = 1
#: So many events are dispatched at once: less than a mailbox holds, so that a burst can be taken as it comes.
_SLICE = 128
#: Of the time for the end, the part that is kept for the report on it.
_REPORT_SHARE = 0.1
_LOG = logging.getLogger(__name__)
#: Of the time the driver waits at its end, this much is kept for the process itself to go away.
_EXIT_SECONDS = 0.1
#: How long a thread that computes keeps the others waiting for the interpreter's lock. Python's own 5 ms are meant for
#: throughput; here a reporter that spins must not cost the others that much at each of their turns.
SWITCH_SECONDS = 0.0005
#: A driver that was killed is gone for the system a moment after its pipe has closed.
_DEATH_SECONDS = 1.0


class Sidecar:
    """One conversation with one driver.

    Args:
        pipe: where records come from.
        answers: where acknowledgements go.
        parent: the driver's process id.
    """

    def __init__(self, pipe: RecordPipe, answers: Answers, parent: int) -> None:
        self._pipe = pipe
        self._answers = answers
        self._parent = parent
        self._decoder = Decoder()
        self._translator = Translator()
        self._pipeline: Pipeline
        self._last_record = 0
        self._held: int | None = None
        self._jvm_is_going_down = False
        self._goodbye: Goodbye | None = None
        self._unknown: Counter[str] = Counter()
        self._acknowledgements = Acknowledgements(answers, 1)
        self._observation = Observation(pipe.wake, lambda numbers: answers.send("stats", reporters=numbers))

    def run(self) -> None:
        """Returns when everything is delivered, or when the time for it is up.

        Raises:
            ConfigError: the settings cannot be used.
            ProtocolError: the shim is not one that this version understands.
        """
        lines = self._pipe.read()
        if not lines:
            return
        hello = self._decoder.decode(lines[0])
        if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
            raise ProtocolError(
                f"the jar on the class path and the package spark_events {__version__} do not belong together;"
                " take the jar that `spark-events conf` names"
            )
        settings = Settings(Setting(s.key, s.value, s.origin) for s in hello.settings)
        hooks = Hooks(self._acknowledge, self._observation.breaker_changed)
        self._pipeline = build(settings, hooks, self._observe, hello.application)
        self._translator = Translator(self._pipeline.translation, hello.sequence)
        self._acknowledgements = Acknowledgements(self._answers, hello.sequence)
        self._pipeline.dispatcher.start()
        self._answers.send("ready", version=__version__, pid=os.getpid(), awaited=self._pipeline.awaited())
        self._process(lines[1:])
        while self._goodbye is None and not self._pipe.closed:
            self._process(self._pipe.read(self._patience()))
            self._tick()
            self._tell_of_breakers()
        self._finish()

    def _patience(self) -> float | None:
        """How long the pipe may be silent before time itself makes an event."""
        deadline = self._translator.next_deadline
        return None if deadline is None else max(0.0, deadline / 1000 - time.time())

    def _tick(self) -> None:
        deadline = self._translator.next_deadline
        now = time.time_ns() // 1_000_000
        if deadline is not None and deadline <= now:
            # What was held back belongs to the oldest record that it was held back for.
            record = self._translator.held_record or self._last_record
            try:
                events = self._translator.tick(now)
            except Exception:
                # Without its timers the translation still tells what records tell.
                self._defect("the clock")
                events = []
            self._dispatch([Entry(record, event) for event in events])

    def _process(self, lines: list[bytes]) -> None:
        # Everything in this loop is paid for with every record: hence the names for what does not change.
        decode, translator, translated = self._decoder.decode, self._translator, self._acknowledgements.translated
        entries: list[Entry] = []
        for line in lines:
            record = decode(line)
            if isinstance(record, (Goodbye, Restored, JvmShutdown, Unknown)):
                special = self._understand(record)
                if special is None:
                    continue
                record = special
            number = record.seq
            oldest = translator.held_record or number
            try:
                for event in translator.translate(record):
                    entries.append(Entry(oldest if oldest < number else number, event))
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

    def _understand(self, record: Goodbye | Restored | JvmShutdown | Unknown) -> JvmShutdown | Unknown | None:
        """What is said to the sidecar itself; returns what is to be translated and acknowledged all the same."""
        if isinstance(record, Goodbye):
            self._goodbye = record
            return None
        if isinstance(record, Restored):
            self._restore(record)
            return None
        if isinstance(record, JvmShutdown):
            self._jvm_is_going_down = True
            return record
        return self._skip(record)

    def _dispatch(self, entries: list[Entry]) -> None:
        # A new hold counts before its record does; one that is over, only when its event is in the mailboxes.
        held = self._translator.held_record
        if held is not None and self._held is None:
            self._acknowledgements.hold(held)
        self._pipeline.dispatcher.dispatch(entries, self._last_record)
        self._held = held
        self._acknowledgements.hold(held)
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

    def _defect(self, record: object) -> None:
        self._translator.defects += 1
        _LOG.exception("a record of kind %s could not be translated", type(record).__name__)

    def _acknowledge(self) -> None:
        dispatcher = self._pipeline.dispatcher
        self._acknowledgements.complete(dispatcher.completed_through(), dispatcher.answered_through())

    def _observe(self) -> None:
        # One that is late is not waited for any longer: nobody else would say so.
        self._acknowledge()
        self._observation.numbers(self._pipeline.dispatcher.books)

    def _finish(self) -> None:
        if self._goodbye is not None:
            patience = self._goodbye.within_ms / 1000 - _EXIT_SECONDS
        else:
            patience = self._pipeline.config.shutdown_timeout
            self._report_loss()
        deadline = time.monotonic() + patience
        dispatcher = self._pipeline.dispatcher
        # Those that can be delivered are; the report on that is the last thing the others are given.
        dispatcher.drain(deadline - patience * _REPORT_SHARE)
        self._tell_of_breakers()
        report = final_report(account(dispatcher.books()), self._doubtful(), time.time_ns() // 1_000_000)
        dispatcher.dispatch([Entry(self._last_record, self._translator.emit(report))], self._last_record)
        dispatcher.stop(deadline)
        self._acknowledge()
        self._observation.numbers(dispatcher.books, at_once=True)

    def _doubtful(self) -> dict[str, int]:
        return {
            "illegal": self._translator.illegal,
            "defective": self._translator.defects,
            "unknown": sum(self._unknown.values()),
        }

    def _tell_of_breakers(self) -> None:
        for change in self._observation.take_changes():
            self._dispatch([Entry(self._last_record, self._translator.emit(reporter_status(*change)))])

    def _report_loss(self) -> None:
        if self._translator.application_is_over:
            return
        if not self._jvm_is_going_down and not self._parent_is_gone():
            _LOG.error("the driver has closed the pipe but lives on; its further events are not reported")
            return
        events = self._translator.driver_lost(time.time_ns() // 1_000_000, self._jvm_is_going_down)
        self._pipeline.dispatcher.dispatch([Entry(self._last_record, event) for event in events], 0)

    def _parent_is_gone(self) -> bool:
        deadline = time.monotonic() + _DEATH_SECONDS
        while os.getppid() == self._parent:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True


class _DriverLog(logging.Handler):
    """What the sidecar itself has to say goes into the driver's log."""

    def __init__(self, answers: Answers) -> None:
        super().__init__()
        self._answers = answers

    def createLock(self) -> None:
        # The answers have one that is never left taken; logging's own is, by a thread interrupted at the wrong moment.
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        with Uninterrupted():
            self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == DRIVER_LOGGER:
            # What a reporter hands over, not what the sidecar has to say.
            self._answers.send("event", level=severity_of(record.levelno), message=record.getMessage())
        else:
            self._answers.send("log", level=record.levelname, message=self.format(record))


def _leave_the_driver_s_signals_alone() -> None:
    """Ctrl-C and a resource manager's SIGTERM are meant for the driver; the sidecar ends after it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        os.setsid()
    except OSError:
        # Already the leader of a group of its own.
        return


def main() -> NoReturn:
    """Runs the sidecar on standard input and output, and ends the process."""
    parent = os.getppid()
    _leave_the_driver_s_signals_alone()
    sys.setswitchinterval(SWITCH_SECONDS)
    # The answers get a descriptor of their own: a reporter that prints must not print into them.
    answers = Answers(os.dup(1))
    os.dup2(2, 1)
    logging.basicConfig(level=logging.WARNING, handlers=[_DriverLog(answers)], format="%(message)s")
    # Which events are wanted, the reporter's filter decides, and the driver's configuration of that logger.
    logging.getLogger(DRIVER_LOGGER).setLevel(1)
    code = 0
    try:
        Sidecar(RecordPipe(0), answers, parent).run()
    except ConfigError as error:
        answers.send("refused", reason="; ".join(error.problems))
        code = 2
    except ProtocolError as error:
        answers.send("refused", reason=str(error))
        code = 2
    except BaseException:
        _LOG.exception("the sidecar has failed")
        code = 1
    # Not sys.exit: a reporter's library may have left threads behind that would never end.
    sys.stderr.flush()
    os._exit(code)
