"""Destinations of a command's events: standard output, or the reporters of a configuration."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from spark_events.cli.arguments import UsageError, add_conf, parsed
from spark_events.cli.output import note, writing
from spark_events.config import Settings, duration
from spark_events.config.defaults import default_path, read_settings
from spark_events.dispatch.entries import Entry
from spark_events.dispatch.pipeline import Pipeline, build
from spark_events.dispatch.pipeline_plan import read
from spark_events.errors import SparkEventsError
from spark_events.event import Event, decode_event, encode_lines
from spark_events.event.text import json_for_terminal
from spark_events.translate.translation_config import TranslateConfig

#: Maximum number of events in flight; less than a mailbox's capacity, so that no mailbox sheds an event.
_SLICE = 512
_LOOK_SECONDS = 0.5


class Sink(Protocol):
    """Destination of events that blocks while it is full."""

    def take(self, events: Sequence[Event], *, notify: bool = True) -> None:
        """Accept events; return when the destination has space for more events.

        Without ``notify``, the events are only for reporters that notify nobody.
        """

    def settle(self) -> None:
        """Return when all events are delivered, or dropped with a reason."""

    def take_lines(self, lines: bytes) -> None:
        """Accept events as whole JSON lines."""

    def close(self) -> int:
        """Deliver the remaining events; return the number of events that were not delivered."""


class JsonLines:
    """Write events in the format of the ``file`` reporter: one JSON object per line.

    Args:
        stream: standard output.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def take(self, events: Sequence[Event], *, notify: bool = True) -> None:
        self.take_lines(encode_lines(events))

    def settle(self) -> None:
        with writing():
            self._stream.flush()

    def take_lines(self, lines: bytes) -> None:
        # A terminal obeys some control characters that JSON allows. Most lines are ASCII; do not decode those.
        if not lines.isascii() or b"\x7f" in lines:
            lines = json_for_terminal(lines.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        rest = memoryview(lines)
        with writing():
            # An unbuffered stream (PYTHONUNBUFFERED) may write only a part of the data, and raise an error at the next
            # write.
            while rest:
                rest = rest[self._stream.write(rest) or 0 :]

    def close(self) -> int:
        self.settle()
        return 0


class Reporters:
    """Deliver events to the configured reporters, and wait for each reporter, so that no event is dropped.

    Args:
        pipeline: a pipeline whose mailboxes can hold more events than the command sends at once.
        patience: time without a delivery after which the command fails, in seconds.
    """

    def __init__(self, pipeline: Pipeline, patience: float) -> None:
        self._pipeline = pipeline
        self._patience = patience
        self._waiting: list[Event] = []
        self._quiet = [name for name, plan in pipeline.plans.reporters.items() if not plan.notifies]
        # Whether the waiting events are also for reporters that notify people.
        self._notify = True
        pipeline.dispatcher.start()

    def take(self, events: Sequence[Event], *, notify: bool = True) -> None:
        if notify != self._notify:
            self.settle()
            self._notify = notify
        self._waiting.extend(events)
        while len(self._waiting) >= _SLICE:
            self._enqueue(self._waiting[:_SLICE])
            del self._waiting[:_SLICE]

    def settle(self) -> None:
        self._enqueue(self._waiting)
        self._waiting.clear()

    def take_lines(self, lines: bytes) -> None:
        self.take([decode_event(line) for line in lines.splitlines() if line])

    def close(self) -> int:
        try:
            self._enqueue(self._waiting)
        except SparkEventsError as error:
            # Close all reporters, even if one of them is blocked. The result counts the undelivered events.
            note(str(error))
        self._pipeline.dispatcher.stop(time.monotonic() + self._pipeline.plans.config.shutdown_timeout)
        return sum(counters.lost for counters in self._pipeline.dispatcher.counters().values())

    def _enqueue(self, events: Sequence[Event]) -> None:
        dispatcher = self._pipeline.dispatcher
        dispatcher.dispatch([Entry(0, event) for event in events], 0, None if self._notify else self._quiet)
        held, since = self._held(), time.monotonic()
        while held:
            dispatcher.drain(time.monotonic() + _LOOK_SECONDS)
            before, held = held, self._held()
            if held != before:
                since = time.monotonic()
            elif time.monotonic() - since > self._patience:
                stuck, patience = ", ".join(sorted(held)), self._patience
                # This reporter has just timed out, so `close` must not wait for it again.
                self._patience = 0.0
                raise SparkEventsError(
                    f"aborted: reporter {stuck} delivered no event for {patience:g} s;"
                    " check its destination, or raise --patience"
                )

    def _held(self) -> dict[str, int]:
        return {name: counters.held for name, counters in self._pipeline.dispatcher.counters().items() if counters.held}


def add_sink(parser: argparse.ArgumentParser, *, patience: bool = True) -> None:
    """Add the arguments that select the reporters; without ``patience``, the command waits for them forever."""
    add_conf(parser, "a spark-defaults.conf: use its spark.events.* settings and its reporters")
    parser.add_argument(
        "--to",
        action="append",
        metavar="NAME",
        help="deliver only to this reporter of --conf or, without --conf, of Spark's spark-defaults.conf (repeatable)",
    )
    if not patience:
        parser.set_defaults(patience=math.inf)
        return
    parser.add_argument(
        "--patience",
        type=parsed(duration),
        default="60s",
        metavar="TIME",
        help="abort if a reporter delivers no event for this time (default: %(default)s)",
    )


def sink_of(chosen: argparse.Namespace, *, alerts: bool = True) -> tuple[TranslateConfig, Callable[[], Sink]]:
    """Validate the configuration; return its translation settings and a function that opens the destination.

    Args:
        chosen: the arguments of the command.
        alerts: whether to include reporters that notify people.

    Raises:
        ConfigError: when the configuration is invalid.
        UsageError: when ``--to`` has no configuration, or when no reporter remains without alerts.
    """
    path = chosen.conf
    if chosen.to and path is None:
        path = default_path()
        if path is None:
            raise UsageError("--to needs a configuration with that reporter: pass --conf FILE")
    if path is None:
        return TranslateConfig(), lambda: JsonLines(sys.stdout.buffer)
    settings = _settings(path, chosen.to)
    plan = read(settings)
    if not settings.names_below("events.reporter"):
        return plan.translation, lambda: JsonLines(sys.stdout.buffer)
    silent = [name for name, reporter in plan.reporters.items() if not reporter.notifies]
    if not alerts and len(silent) < len(plan.reporters):
        left_out = ", ".join(name for name in plan.reporters if name not in silent)
        if not silent:
            raise UsageError(
                f"no reporter remains, because {left_out} would notify people: pass --alerts, or another --to"
            )
        note(f"left out {left_out}, which would notify people; pass --alerts to include them")
        settings = _settings(path, silent)
    return plan.translation, lambda: Reporters(build(settings, strict=True), chosen.patience)


def _settings(path: Path, reporters: Sequence[str] | None) -> Settings:
    """Read a configuration.

    Args:
        path: the file.
        reporters: the active reporters; None: as configured.
    """
    extra = {"events.reporters": ",".join(reporters)} if reporters else {}
    # Set no time limit in the pipeline, because the command itself waits for the reporters. The heartbeats are those of
    # the applications, whose reporters --to may leave out.
    return read_settings(path, without=("events.dispatcher.", "events.heartbeat."), extra=extra)
