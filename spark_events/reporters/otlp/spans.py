"""Trace and span ids of events, and the spans of finished batches, jobs and stages.

The trace and span ids are computed from the ids of the application and the batch, job or stage. Therefore a repeated
delivery produces the same span. A LogRecord can also name the span of its batch, job or stage before that span is
exported. Queries and applications have no spans, because backends show only completed spans.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from typing import NamedTuple

from spark_events.config import Kind
from spark_events.event import Event, Severity

__all__ = ["Parent", "SpanOf", "Spans", "ids", "traceparent"]

#: Maximum number of running jobs whose start is stored.
_MOST_JOBS = 10_000
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_ENDS = ("FINISHED", "FAILED", "CANCELLED")


class Parent(NamedTuple):
    """Span that submitted the application: trace id and span id."""

    trace: int
    span: int


def _traceparent(given: str) -> Parent:
    match = _TRACEPARENT.fullmatch(given.strip().lower())
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        raise ValueError("not a W3C traceparent")
    return Parent(int(match[1], 16), int(match[2], 16))


#: Setting for a W3C ``traceparent``, as a scheduler passes it.
traceparent: Kind[Parent] = Kind("a W3C traceparent, 00-<32 hexadecimal digits>-<16>-<2>", _traceparent)


def _hash(size: int, *facts: object) -> int:
    text = "\x1f".join(map(str, facts)).encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=size).digest(), "big")


def _subject(event: Event) -> tuple[object, ...] | None:
    """Return the batch, job or stage attempt that an event belongs to; None if there is none."""
    about = event.attributes
    if "spark.stage.id" in about:
        return "stage", about["spark.stage.id"], about.get("spark.stage.attempt", 0)
    if "spark.job.id" in about:
        return "job", about["spark.job.id"]
    return _batch(event)


def _batch(event: Event) -> tuple[object, ...] | None:
    about = event.attributes
    if "spark.batch.id" not in about:
        return None
    return "batch", about.get("spark.streaming.query.run_id"), about["spark.batch.id"]


def ids(event: Event, parent: Parent | None) -> tuple[int, int | None]:
    """Return the trace id of the event's application, and the span id of its batch, job or stage.

    Args:
        event: any event.
        parent: the span that submitted the application, which determines the trace id.
    """
    about = event.attributes
    trace = parent.trace if parent else _hash(16, about.get("spark.app.id"), about.get("spark.app.attempt_id"))
    subject = _subject(event)
    return trace, None if subject is None else _hash(8, trace, *subject)


class SpanOf(NamedTuple):
    """Finished span; times are in milliseconds since the epoch."""

    name: str
    trace: int
    span: int
    parent: int | None
    start: int
    end: int
    failed: str | None


class Spans:
    """Create the spans of one application.

    Args:
        parent: the span that submitted the application.
    """

    def __init__(self, parent: Parent | None) -> None:
        self._parent = parent
        # Start time of each job, by span id.
        self._jobs: OrderedDict[int, int] = OrderedDict()

    def of(self, event: Event) -> SpanOf | None:
        """Return the span that this event completes, or None.

        The result is None if the event completes no span, or if the span's start was not recorded.
        """
        about = event.attributes
        trace, span = ids(event, self._parent)
        start: int | None = None
        failed = None
        if span is None:
            return None
        if event.name == "JobStatusChangeEvent" and about.get("spark.entity") == "job":
            status = about.get("spark.status.new")
            if status == "RUNNING":
                self._jobs[span] = event.observed_ts_millis
                if len(self._jobs) > _MOST_JOBS:
                    self._jobs.popitem(last=False)
            elif status in _ENDS:
                start = self._jobs.get(span)
                failed = str(about.get("error.type", status)) if status != "FINISHED" else None
            name = f"job {about['spark.job.id']}"
        elif event.name == "BatchCommitEvent":
            took = about.get("spark.batch.duration.trigger_execution_ms")
            start = event.observed_ts_millis - took if isinstance(took, int) else None
            name = f"batch {about['spark.batch.id']}"
        elif event.name == "StageSummaryEvent":
            took = about.get("spark.stage.duration_ms")
            start = event.observed_ts_millis - took if isinstance(took, int) else None
            failed = "problem" if event.severity >= Severity.ERROR else None
            name = f"stage {about['spark.stage.id']}"
        if start is None:
            return None
        batch = _batch(event)
        above = None if self._parent is None else self._parent.span
        if batch is not None and event.name != "BatchCommitEvent":
            above = _hash(8, trace, *batch)
        return SpanOf(name, trace, span, above, start, event.observed_ts_millis, failed)
