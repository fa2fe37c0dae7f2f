"""A card as text: what is wrong, why, where, which data, how often, whose, links and the next command."""

from __future__ import annotations

from collections.abc import Iterator

from spark_events.event.text import on_one_line, ordinal
from spark_events.report.report_model import ProblemCard
from spark_events.report.wording import named, shortened, when

_LABEL = 9
_MOST_OFFSETS = 160


def card(problem: ProblemCard) -> str:
    """Return at most eight lines of text, without a line for what is unknown."""
    lines = [problem.title]
    lines += [f"  {name}:".ljust(_LABEL + 2) + value for name, value in rows(problem)]
    return "\n".join(lines)


def rows(problem: ProblemCard) -> Iterator[tuple[str, str]]:
    """Yield label and value of each line below the title."""
    if problem.cause:
        about = [problem.failure_class or ""]
        if problem.retry_useful is not None:
            about.append("a rerun may help" if problem.retry_useful else "a rerun does not help")
        elif problem.failure_class:
            about.append("rerun: unknown whether it helps")
        if problem.recommendation:
            about.append(f"try {problem.recommendation}")
        more = "; ".join(filter(None, about))
        yield "why", shortened(problem.cause) + (f" ({more})" if more else "")
    if problem.location:
        source = f": {shortened(problem.source_line)}" if problem.source_line else ""
        yield "line", shortened(problem.location) + source
    if data := "; ".join(_data(problem)):
        yield "data", data
    yield "times", _times(problem)
    yield "where", "; ".join(_place(problem))
    if problem.links:
        yield "links", "  ".join(f"{link.name} {on_one_line(link.url)}" for link in problem.links)
    yield "next", on_one_line(problem.command)


def _times(problem: ProblemCard) -> str:
    """Return how often this occurred in the period."""
    what = "failed run" if problem.kind in ("ended", "crash-loop") else "time"
    times = f"{'first' if problem.times == 1 else ordinal(problem.times)} {what} in this period"
    if problem.kind == "failure" and len(problem.subjects) > 1:
        return f"{times}, {problem.alarms:,} failures of {len(problem.subjects):,} queries"
    if problem.kind == "failure" and problem.alarms > 1:
        incidents = "this incident" if problem.incidents == 1 else f"{problem.incidents:,} incidents"
        return f"{times}, {problem.alarms:,} failures in {incidents}"
    return times


def _data(problem: ProblemCard) -> Iterator[str]:
    if problem.committed_batch is not None:
        at = "" if problem.committed_at is None else f" at {when(problem.committed_at)}"
        yield f"batch {problem.committed_batch} was the last commit{at}"
    if problem.committed_offsets:
        offsets = problem.committed_offsets
        yield f"offsets {offsets if len(offsets) <= _MOST_OFFSETS else f'{offsets[:_MOST_OFFSETS]}…'}"
    if problem.failed_batch is not None:
        yield f"batch {problem.failed_batch} failed"
    if problem.data_file is not None:
        yield f"file {shortened(problem.data_file)}"
    if (record := problem.data_record) is not None:
        yield f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
    if problem.data_partition is not None:
        of = " of the stage" if problem.data_record is not None else ""
        yield f"partition {problem.data_partition}{of}"


def _place(problem: ProblemCard) -> Iterator[str]:
    state = "has ended" if problem.application_ended else "has not ended"
    yield f"application '{named(problem.application)}' {problem.app_id or ''} {state}".replace("  ", " ")
    if problem.environment:
        yield problem.environment
    yield from (f"{name}={value}" for name, value in sorted(problem.tags.items()))
    if problem.host:
        yield f"driver on {problem.host}"
