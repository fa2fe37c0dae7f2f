"""``spark-events send-test``: send one event to each reporter and print the outcome."""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import functools
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from spark_events.cli.arguments import add_configuration, configuration, parsed
from spark_events.cli.output import show, table
from spark_events.config import positive_duration
from spark_events.dispatch.pipeline import Pipeline, build
from spark_events.dispatch.reporter_calls import Call, asked_pause, begin, describe, end, made
from spark_events.errors import PermanentError, SparkEventsError, ThrottledError
from spark_events.event import AttributeValue, Event, EventBuilder, Severity
from spark_events.event.text import on_one_line
from spark_events.reporters.reporter import Reporter
from spark_events.translate.enrichers import TypeEnricher
from spark_events.translate.failures import Diagnostics


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
    parser.add_argument(
        "--sample",
        choices=SAMPLES,
        metavar="SAMPLE",
        default="event",
        help="event: one harmless event; failure: an alert as people will see it, and then its recovery, so that"
        " nothing stays open (default: %(default)s)",
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
    about = _identity(pipeline)
    samples = {one.name: SAMPLES[chosen.sample](one.name, about) for one in pipeline.deliveries}
    outcomes = {one.name: _start(one.name, one.make, samples[one.name], chosen.timeout) for one in pipeline.deliveries}
    rows = [
        (name, given.value(f"events.reporter.{name}.type") or "", "disabled", "", on_one_line("; ".join(problems)))
        for name, problems in pipeline.disabled.items()
    ]
    failed = len(rows)
    for name, promise in outcomes.items():
        outcome = _result(promise, chosen.timeout, len(samples[name]))
        failed += outcome.error is not None
        kind = given.value(f"events.reporter.{name}.type") or "log"
        why = on_one_line(_reason(outcome, settings.confidence(f"events.reporter.{name}").hide))
        rows.append((name, kind, _verdict(outcome), f"{outcome.seconds * 1000:.0f} ms", why))
    # Flush first: reporters of type log print to standard error, and their lines must come before the table.
    sys.stderr.flush()
    show(table(("reporter", "type", "outcome", "took", "why"), rows), flush=True)
    return 1 if failed else 0


def _start(
    name: str, make: Callable[[], Reporter], events: Sequence[Event], timeout: float
) -> concurrent.futures.Future[SendOutcome]:
    promise: concurrent.futures.Future[SendOutcome] = concurrent.futures.Future()

    def run() -> None:
        promise.set_result(asyncio.run(_send(make, events, timeout)))

    # Use a daemon thread instead of a pool, because a reporter that blocks its thread must not prevent the command's
    # exit.
    threading.Thread(target=run, name=f"send-test-{name}", daemon=True).start()
    return promise


_TRACE = """Traceback (most recent call last):
  File "/jobs/sample.py", line 16, in book
    raise TestFailure(payment)
TestFailure: this is a test of reporter '{name}'; no action needed
"""


def event_for(name: str, about: Mapping[str, AttributeValue]) -> Event:
    """Return the test event for this reporter, with the environment and the tags."""
    builder = EventBuilder("spark_events.cli", "TestEvent").set_body(f"Test of reporter '{name}'; no action needed")
    builder.set_attributes({**about, "spark.events.test": True, "spark.events.reporter.name": name})
    return builder.set_attribute("host.name", socket.gethostname()).build()


def _event(name: str, about: Mapping[str, AttributeValue]) -> list[Event]:
    return [event_for(name, about)]


def _failure(name: str, about: Mapping[str, AttributeValue]) -> list[Event]:
    """Return the alarm of a failed query and its recovery, with a key that no earlier alert has."""
    key = f"spark-events-test-{uuid.uuid4().hex[:8]}/query=sample/failure"
    common: dict[str, AttributeValue] = {
        **about,
        "spark.events.test": True,
        "spark.app.name": "spark-events-test",
        "spark.app.id": "test",
        "spark.streaming.query.name": "sample",
        "host.name": socket.gethostname(),
        "incident.key": key,
        "incident.id": uuid.uuid4().hex,
    }
    # The same code describes a real failure.
    diagnosis = Diagnostics([TypeEnricher()]).of_text(_TRACE.format(name=name))
    failed: dict[str, AttributeValue] = {"incident.role": "alarm", "spark.batch.id": 41, **diagnosis.attributes}
    committed: dict[str, AttributeValue] = {"incident.role": "recovery"}
    made = []
    for event_name, severity, body, own in (
        ("JobFailureEvent", Severity.ERROR, f"query 'sample' failed at batch 41: {diagnosis.summary}", failed),
        ("BatchCommitEvent", Severity.INFO, "query 'sample' committed batch 41 in 100 ms: 5 rows", committed),
    ):
        builder = EventBuilder("spark.streaming.query", event_name).set_body(f"spark-events-test: {body}")
        made.append(builder.set_severity(severity).set_attributes({**common, **own}).build())
    return made


SAMPLES: dict[str, Callable[[str, Mapping[str, AttributeValue]], list[Event]]] = {
    "event": _event,
    "failure": _failure,
}


def _identity(pipeline: Pipeline) -> Mapping[str, AttributeValue]:
    """Return the environment and the tags, which route alerts."""
    return pipeline.plans.translation.identity.attributes


async def _send(make: Callable[[], Reporter], events: Sequence[Event], timeout: float) -> SendOutcome:
    began = time.monotonic()
    stage = "make"
    try:
        reporter = made(make)
        stage = "open"
        await asyncio.wait_for(_call(reporter.open), timeout)
        stage = "report"
        for event in events:
            await asyncio.wait_for(_call(functools.partial(reporter.report, [event])), timeout)
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


def _result(promise: concurrent.futures.Future[SendOutcome], timeout: float, count: int) -> SendOutcome:
    try:
        # Wait for the timeouts of all calls, plus one second for the start of the thread.
        return promise.result((2 + count) * timeout + 1)
    except concurrent.futures.TimeoutError:
        return SendOutcome(
            "open or report", (2 + count) * timeout, TimeoutError("the reporter did not return and blocks its thread")
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
