"""``spark-events send-test``: send one event to each reporter and print the outcome."""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from spark_events.cli.arguments import add_configuration, configuration, parsed
from spark_events.cli.output import show, table
from spark_events.config import positive_duration
from spark_events.dispatch.calls import Call, asked_pause, begin, describe, end, made
from spark_events.dispatch.pipeline import build
from spark_events.errors import PermanentError, SparkEventsError, ThrottledError
from spark_events.event import AttributeValue, Event, EventBuilder
from spark_events.event.text import on_one_line
from spark_events.reporters.reporter import Reporter
from spark_events.translate.incidents.config import read_identity


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "send-test",
        help="send one event to each reporter and print the outcome",
        description="Sends one event to each active reporter, bypassing its filter, and prints the outcome.",
    )
    add_configuration(parser)
    parser.add_argument(
        "--timeout",
        type=parsed(positive_duration),
        default="10s",
        metavar="TIME",
        help="time limit of each call of a reporter (default: %(default)s)",
    )
    parser.set_defaults(run=_run)


class SendOutcome(NamedTuple):
    """Outcome for one reporter: the last stage, the seconds until this stage was complete, and an exception or None."""

    stage: str
    seconds: float
    error: BaseException | None


def _run(chosen: argparse.Namespace) -> int:
    given = configuration(chosen)
    settings = given.settings()
    pipeline = build(settings)
    # Receivers route alerts by environment and tags.
    tags = read_identity(settings).attributes
    outcomes = {one.name: _start(event_for(one.name, tags), one.make, chosen.timeout) for one in pipeline.deliveries}
    rows = [
        (name, given.value(f"events.reporter.{name}.type") or "", "disabled", "", on_one_line("; ".join(problems)))
        for name, problems in pipeline.disabled.items()
    ]
    failed = len(rows)
    for name, promise in outcomes.items():
        outcome = _result(promise, chosen.timeout)
        failed += outcome.error is not None
        kind = given.value(f"events.reporter.{name}.type") or "log"
        why = on_one_line(_reason(outcome, settings.confidence(f"events.reporter.{name}").hide))
        rows.append((name, kind, _verdict(outcome), f"{outcome.seconds * 1000:.0f} ms", why))
    # Flush first: reporters of type log print to standard error, and their lines must come before the table.
    sys.stderr.flush()
    show(table(("reporter", "type", "outcome", "took", "why"), rows), flush=True)
    return 1 if failed else 0


def _start(event: Event, make: Callable[[], Reporter], timeout: float) -> concurrent.futures.Future[SendOutcome]:
    promise: concurrent.futures.Future[SendOutcome] = concurrent.futures.Future()

    def run() -> None:
        promise.set_result(asyncio.run(_send(make, event, timeout)))

    # Use a daemon thread instead of a pool, because a reporter that blocks its thread must not prevent the command's
    # exit.
    threading.Thread(target=run, name="send-test", daemon=True).start()
    return promise


def event_for(name: str, tags: Mapping[str, AttributeValue]) -> Event:
    """Return the test event for this reporter, with the environment and the tags."""
    builder = EventBuilder("spark_events.cli", "TestEvent").set_body(f"Test of reporter '{name}'; no action needed")
    builder.set_attributes({**tags, "spark.events.test": True, "spark.events.reporter.name": name})
    return builder.set_attribute("host.name", socket.gethostname()).build()


async def _send(make: Callable[[], Reporter], event: Event, timeout: float) -> SendOutcome:
    began = time.monotonic()
    stage = "make"
    try:
        reporter = made(make)
        stage = "open"
        await asyncio.wait_for(_call(reporter.open), timeout)
        stage = "report"
        await asyncio.wait_for(_call(lambda: reporter.report([event])), timeout)
        took = time.monotonic() - began
        stage = "close"
        await asyncio.wait_for(_call(reporter.close), timeout)
    except asyncio.CancelledError:
        return SendOutcome(stage, time.monotonic() - began, RuntimeError("cancelled by the reporter itself"))
    except Exception as error:
        return SendOutcome(stage, time.monotonic() - began, error)
    return SendOutcome("delivered", took, None)


async def _call(method: Call) -> None:
    if (rest := begin(method)) is not None:
        await end(rest)


def _result(promise: concurrent.futures.Future[SendOutcome], timeout: float) -> SendOutcome:
    try:
        # Wait for the timeouts of three calls, plus one second for the start of the thread.
        return promise.result(3 * timeout + 1)
    except concurrent.futures.TimeoutError:
        return SendOutcome(
            "open or report", 3 * timeout, TimeoutError("the reporter did not return and blocks its thread")
        )


def _verdict(outcome: SendOutcome) -> str:
    if outcome.error is None:
        return "delivered"
    if isinstance(outcome.error, PermanentError):
        return f"refused ({outcome.stage})"
    if isinstance(outcome.error, ThrottledError):
        return f"throttled ({outcome.stage})"
    return f"failed ({outcome.stage})"


def _reason(outcome: SendOutcome, hide: Callable[[str], str]) -> str:
    error = outcome.error
    if error is None:
        return ""
    reason = describe(error, hide)
    if isinstance(error, SparkEventsError):
        reason = reason.removeprefix(f"{type(error).__name__}: ")
    pause = asked_pause(error)
    return f"{reason}; the destination requests a retry in {pause:g} s" if pause else reason
