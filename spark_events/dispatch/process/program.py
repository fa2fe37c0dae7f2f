"""Program of a reporter's process: it answers the sidecar's requests."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Awaitable
from typing import NoReturn

from spark_events.config import Settings
from spark_events.dispatch.process import messages
from spark_events.dispatch.process.messages import Answer, Done, LogLine, Make, Open, Report, Request
from spark_events.dispatch.process.setup import LogLines, ignore_driver_signals, take_standard_streams
from spark_events.dispatch.reporter_calls import begin, end, linger_of, lingers_through_of, most_of, rest_of
from spark_events.errors import ConfigError
from spark_events.reporters.reporter import Reporter
from spark_events.reporters.reporter_types import factory

_SET_PARENT_DEATH_SIGNAL = 1
#: Niceness of the process. With this value, a reporter in a busy loop gets about a third of the CPU time of a driver
#: thread.
_NICENESS = 5


class _Answers(LogLines):
    """Send answers to the sidecar, and log lines for the driver's log."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._writing = threading.Lock()

    def send(self, answer: Answer) -> None:
        view = memoryview(messages.encode(answer))
        with self._writing:
            while view:
                view = view[os.write(self._fd, view) :]

    def write(self, logger: str, level: int, line: str) -> None:
        self.send(LogLine(messages.text(logger), level, messages.text(line)))


class _Host:
    """Hold the reporter, and turn its errors into answers."""

    def __init__(self) -> None:
        self._reporter: Reporter | None = None

    async def answer(self, request: Request) -> Answer:
        try:
            if (rest := begin(lambda: self._call(request))) is not None:
                await end(rest)
        except asyncio.CancelledError:
            return messages.failure(RuntimeError("cancelled by the reporter itself"))
        except Exception as error:
            return messages.failure(error)
        if (reporter := self._reporter) is None:
            return Done()
        return Done(most_of(reporter), linger_of(reporter), lingers_through_of(reporter), rest_of(reporter))

    def _call(self, request: Request) -> Awaitable[None] | None:
        if isinstance(request, Make):
            self._reporter = _made(request)
            # Lower the process priority only after the start, because the start must be fast even on a busy machine.
            os.nice(_NICENESS)
            return None
        assert self._reporter is not None
        if isinstance(request, Open):
            return self._reporter.open()
        if isinstance(request, Report):
            return self._reporter.report(request.events)
        return self._reporter.close()


def _made(request: Make) -> Reporter:
    made_by = factory(request.kind)
    settings = Settings(request.settings)
    config = settings.read(made_by.Config, f"events.reporter.{request.name}")
    if config is None:
        # The sidecar has already validated the settings with the same Python and the same path.
        raise ConfigError(["the reporter's process rejects settings that the sidecar has accepted"])
    return made_by(config)


async def _serve(requests: int, answers: _Answers) -> NoReturn:
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[Request] = asyncio.Queue()

    def listen() -> None:
        # A separate thread detects the exit of the sidecar even while the reporter blocks the event loop.
        while (data := messages.read(requests)) is not None:
            loop.call_soon_threadsafe(inbox.put_nowait, messages.REQUESTS.decode(data))
        os._exit(0)

    threading.Thread(target=listen, name="spark-events-requests", daemon=True).start()
    host = _Host()
    while True:
        answer = await host.answer(await inbox.get())
        answers.connect()
        answers.send(answer)


def _end_with(parent: int) -> None:
    """Make the kernel kill this process when the sidecar exits.

    The kernel sends the signal even while the reporter holds the GIL. The signal is sent when the sidecar's thread that
    started this process ends.
    """
    # Ignore an error of the system call: this process also exits when it reads the end of the pipe.
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _prefer_for_oom_killer() -> None:
    """Make the kernel's OOM killer prefer this process to the driver."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def main(parent: int) -> NoReturn:
    """Serve requests until the sidecar closes the pipe.

    Args:
        parent: the sidecar's process id.
    """
    _end_with(parent)
    ignore_driver_signals()
    _prefer_for_oom_killer()
    requests, fd = take_standard_streams()
    # After a crash, print the Python stack to standard error, which this process shares with the driver.
    faulthandler.enable(sys.stderr, all_threads=False)
    answers = _Answers(fd)
    answers.connect()
    asyncio.run(_serve(requests, answers))
    raise AssertionError("_serve returned, although it must run until the process ends")
