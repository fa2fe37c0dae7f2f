"""Test doubles: a scripted reporter, events, records in the shim's format, and a small driver."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from spark_events import Event, EventBuilder, PermanentError, Reporter, Severity, ThrottledError
from spark_events.dispatch.telemetry import DeliveryCounters
from spark_events.records.types import decode

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 20.0
T = TypeVar("T")


def eventually(
    look: Callable[[], T | None],
    *,
    within: float = PATIENCE,
    what: str = "",
    meanwhile: Callable[[], object] = lambda: None,
) -> T:
    """Poll ``look`` until it returns a true value, and return this value; fail after ``within`` seconds.

    ``meanwhile`` is called before each poll.
    """
    deadline = time.monotonic() + within
    while True:
        meanwhile()
        if seen := look():
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"timed out after {within} s: {what or look}; last result: {seen!r}")
        time.sleep(0.005)


def balances(counters: DeliveryCounters) -> bool:
    """Return whether the number of accepted events equals the sum of the other counters."""
    return counters.accepted == counters.delivered + counters.lost + counters.spooled + counters.held


def is_gone(pid: int) -> bool:
    """Return whether the process has ended.

    A zombie counts as ended, because PID 1 of a container might not reap zombies.
    """
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def event(number: int = 0, severity: Severity | str = Severity.INFO, **attributes: Any) -> Event:
    """Build an event whose body is ``number``."""
    builder = EventBuilder("tests", "Test").set_body(str(number)).set_severity(severity)
    return builder.set_observed_ts_millis(1_700_000_000_000 + number).set_attributes(attributes).build()


def numbers(events: Sequence[Event]) -> list[int]:
    """Return the numbers of events built by :func:`event`."""
    return [int(e.body) for e in events]


# --- a scripted reporter ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Step:
    """Behavior of one call: raise, never return (``hang``), or succeed."""

    error: Callable[[], BaseException] | None = None
    hang: bool = False


ok = Step()
transient = Step(error=lambda: OSError("connection reset"))
permanent = Step(error=lambda: PermanentError("no such table"))
exits = Step(error=lambda: SystemExit(7))
cancels = Step(error=asyncio.CancelledError)
hang = Step(hang=True)


def throttled(seconds: float) -> Step:
    """Return a step that raises ThrottledError."""
    return Step(error=lambda: ThrottledError("slow down", seconds))


def partly(rejected: int) -> Step:
    """Return a step that permanently rejects the first ``count`` events and accepts all further events."""
    return Step(error=lambda: PermanentError(f"{rejected} are malformed", rejected=rejected))


class FaultyReporter(Reporter):
    """Reporter that runs one step of a script per call. After the script, every call succeeds.

    Args:
        script: steps of ``report``.
        opening: steps of ``open``.
        closing: steps of ``close``.
        forever: step of ``report`` when the script is exhausted.
    """

    def __init__(
        self,
        script: Sequence[Step] = (),
        *,
        opening: Sequence[Step] = (),
        closing: Step = ok,
        forever: Step = ok,
    ) -> None:
        super().__init__()
        self._script = list(script)
        self._opening = list(opening)
        self._closing = closing
        self._forever = forever
        self.attempts: list[tuple[int, ...]] = []
        self.attempted_at: list[float] = []
        self.events: list[Event] = []
        self.opened = 0
        self.closed = 0

    async def open(self) -> None:
        self.opened += 1
        await self._do(self._opening.pop(0) if self._opening else ok)

    async def report(self, events: Sequence[Event]) -> None:
        self.attempts.append(tuple(numbers(events)))
        self.attempted_at.append(time.monotonic())
        try:
            await self._do(self._script.pop(0) if self._script else self._forever)
        except PermanentError as error:
            self.events.extend(events[len(events) if error.rejected is None else error.rejected :])
            raise
        self.events.extend(events)

    async def close(self) -> None:
        self.closed += 1
        await self._do(self._closing)

    async def _do(self, step: Step) -> None:
        if step.hang:
            await asyncio.Event().wait()
        if step.error is not None:
            raise step.error()


class GatedReporter(Reporter):
    """Reporter that blocks its thread until the test opens the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.events: list[Event] = []

    def report(self, events: Sequence[Event]) -> Awaitable[None] | None:
        self.entered.set()
        self.gate.wait(PATIENCE)
        self.events.extend(events)
        return None


class PrintingReporter(Reporter):
    """Reporter that prints to standard output."""

    def report(self, events: Sequence[Event]) -> None:
        print(f"printed {len(events)}", flush=True)
        os.write(1, b'{"kind":"ack","seq":999,"sequence":999}\n')


# --- records, as the shim writes them -----------------------------------------------------------

START = 1_795_263_269_000


def application_start(**changes: Any) -> dict[str, Any]:
    record = {"app_id": "local-1", "app_name": "shop", "attempt_id": None, "user": "ada", "time": START}
    return {"kind": "application_start", "at": START, "spark_version": "4.3.0", "host": "h1", **record, **changes}


def application_end(ending: str = "STOPPED", **changes: Any) -> dict[str, Any]:
    return {"kind": "application_end", "at": START + 9, "time": START + 9, "ending": ending, **changes}


def query_started(run: str = "r1", query: str = "q1", name: str | None = "clicks", **changes: Any) -> dict[str, Any]:
    about = {"id": query, "run_id": run, "name": name, "timestamp": "2026-11-21T12:14:30.000Z"}
    return {"kind": "query_started", "at": START + 1, **about, **changes}


def query_terminated(run: str = "r1", query: str = "q1", **changes: Any) -> dict[str, Any]:
    return {"kind": "query_terminated", "at": START + 8, "id": query, "run_id": run, **changes}


def query_progress(batch: int = 0, run: str = "r1", query: str = "q1", **changes: Any) -> dict[str, Any]:
    """Build the record of a committed batch; ``changes`` override fields of Spark's StreamingQueryProgress."""
    progress = {
        "id": query,
        "runId": run,
        "name": "clicks",
        "timestamp": "2026-11-21T12:14:31.000Z",
        "batchId": batch,
        "numInputRows": 5,
        "durationMs": {"addBatch": 30, "triggerExecution": 100},
        "eventTime": {},
        "stateOperators": [],
        "sources": [],
        "sink": {"description": "noop", "numOutputRows": -1},
    }
    return {"kind": "query_progress", "at": START + 2, "progress": {**progress, **changes}}


def decoded(record: dict[str, Any]) -> Any:
    """Decode a record from JSON without spaces, as the shim sends it."""
    return decode(json.dumps(record, separators=(",", ":")).encode())


# --- a driver for a real sidecar ----------------------------------------------------------------

SIDECAR = [sys.executable, "-c", "from spark_events.sidecar.main import main; main()"]


def sidecar_environment() -> dict[str, str]:
    """Return the environment of a sidecar that can import this module."""
    found = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}:{found}"}


class FakeDriver:
    """Driver that exchanges messages with a sidecar as the shim does.

    As a context manager, the driver kills the sidecar on exit.

    Args:
        errors: file for standard error of the sidecar.
        settings: settings by key.
    """

    def __init__(self, errors: Path, settings: dict[str, str] | None = None, *, greet: bool = True) -> None:
        self._errors = errors.open("ab")
        self.process = subprocess.Popen(
            SIDECAR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=sidecar_environment()
        )
        self.answers: list[dict[str, Any]] = []
        self.strays: list[bytes] = []
        self._seq = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if greet:
            self.send(hello(settings or {}))

    def __enter__(self) -> FakeDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self.answers.append(json.loads(line))
            except ValueError:
                self.strays.append(line)

    def send(self, *lines: dict[str, Any] | bytes) -> None:
        """Write lines unchanged."""
        assert self.process.stdin is not None
        for line in lines:
            self.process.stdin.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def send_records(self, *records: dict[str, Any]) -> int:
        """Write records with sequence numbers and return the last number."""
        for record in records:
            self._seq += 1
            self.send({"seq": self._seq, **record})
        return self._seq

    def close_pipe(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def await_answer(self, kind: str, within: float = PATIENCE, **fields: Any) -> dict[str, Any]:
        """Wait for an answer of the given kind with the given fields."""

        def look() -> dict[str, Any] | None:
            wanted = {"kind": kind, **fields}.items()
            return next((answer for answer in list(self.answers) if wanted <= answer.items()), None)

        return eventually(look, within=within, what=f"{kind} {fields} in {self.answers}")

    def await_exit(self, within: float = PATIENCE) -> int:
        """Wait until the sidecar exits, and return its exit code.

        Afterwards, ``answers`` contains all messages from the sidecar. The method waits until the standard output
        closes when the sidecar exits, because ``Popen.wait`` would poll every 50 ms.
        """
        deadline = time.monotonic() + within
        self._reader.join(within)
        code = self.process.wait(max(0.0, deadline - time.monotonic()))
        self._reader.join(PATIENCE)
        assert not self._reader.is_alive(), "the sidecar ended, but its standard output is still open"
        return code


def hello(settings: dict[str, str], **changes: Any) -> dict[str, Any]:
    """Build the first line of the session."""
    given = [{"key": key, "value": value, "origin": "a test"} for key, value in settings.items()]
    return {"kind": "hello", "protocol": 1, "sequence": 1, "settings": given, **changes}


def goodbye(within_ms: int = 10_000) -> dict[str, Any]:
    """Build the last line of the session."""
    return {"kind": "goodbye", "within_ms": within_ms}


def counters_of(attributes: dict[str, Any], reporter: str) -> dict[str, Any]:
    """Return a reporter's counters from the attributes of a DispatcherReportEvent."""
    accounts: list[dict[str, Any]] = json.loads(attributes["spark.events.reporters"])
    return {account.pop("name"): account for account in accounts}[reporter]


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a ``file`` reporter's complete lines; fail if a line is not JSON.

    An incomplete last line is ignored, because the reporter may be writing this line.
    """
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


class ThrottlingReporter(Reporter):
    """Reporter that raises ThrottledError once, with a delay of one hour. Sidecars load it by its class name."""

    asked = False

    def report(self, events: Sequence[Event]) -> None:
        if not self.asked:
            self.asked = True
            raise ThrottledError("busy", 3600)


class HangingReporter(Reporter):
    """Reporter whose calls never return. Sidecars load it by its class name."""

    async def report(self, events: Sequence[Event]) -> None:
        await asyncio.Event().wait()
