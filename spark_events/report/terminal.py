"""Output of a report in a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from spark_events.event.text import on_one_line
from spark_events.report.findings import ahead, names_of, title
from spark_events.report.page import MOST_SLOW
from spark_events.report.report_model import Downtime, EventReport, SubjectReport
from spark_events.report.wording import counted, percent, shortened, span, when
from spark_events.reporters.reporter import load_extra

_STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}
_OUTCOMES = {
    "FAILED": "red",
    "SILENT": "yellow",
    "LOST": "bold red",
    "UNKNOWN": "yellow",
    "CANCELLED": "yellow",
    "RUNNING": "green",
}
_COSTS = {"core_hours_idle": "Idle core-h", "cost": "Cost"}
#: Width from which tables have all columns; names in a file or pipe are cut as in a terminal of this width.
WIDE = 120
#: Width of a console in which no table is cut.
UNCUT = 10_000
#: Columns that a narrower terminal does not show.
_ONLY_WIDE = ("Down", "Failed", "Restarts", "p50", "p99", "Over SLA", "Rows/s", "Idle core-h", "Core-h")
#: Tolerance for the ends of a downtime of an application and of its queries, in milliseconds.
_TOLERANCE = 60_000
#: Maximum number of lines of a list in the terminal; --json and the page show more.
_MOST = 20
#: Maximum number of findings, of applications or queries in a table, and of applications and queries with details.
_MOST_SUBJECTS = 200
#: Maximum number of queries in a table that have one card.
_MOST_ALIKE = 5
#: Beginnings of the lines of a card that are copied.
_COPIED = ("  links:", "  next:")


class _Whole(str):
    """Line that is never broken, because its commands and links are copied."""

    __slots__ = ()


def print_report(report: EventReport, width: int | None = None) -> None:
    """Print the report to standard output, in colours if standard output is a terminal.

    Args:
        report: the report.
        width: width of the output; None: no line is continued on the next one.

    Raises:
        MissingExtraError: rich is not installed.
    """
    load_extra("rich", "report")
    from rich.console import Console
    from rich.text import Text

    console = Console(width=width or UNCUT, highlight=False)
    for style, line in lines(report, width or WIDE):
        if isinstance(line, str):
            is_whole = width is None or isinstance(line, _Whole)
            console.print(Text(on_one_line(line), style=style), soft_wrap=is_whole)
        else:
            console.print(line)


def lines(report: EventReport, width: int) -> Iterator[tuple[str, Any]]:
    """Yield styled lines and tables; in a terminal of less than 120 columns, the tables have fewer columns."""
    ends = {"given": "", "now": " (now)", "newest event": " (the newest event)"}[report.until_is]
    yield "bold", f"{when(report.since)} to {when(report.until)} UTC{ends}, {counted(report.events, 'event')}"
    yield "", ""
    yield "bold red" if report.is_wrong else "green", report.status
    for stale in report.stale:
        yield "yellow", f"! {stale.source}: no event since {when(stale.newest)} ({span(stale.age_ms)})"
    if report.ahead_events:
        yield "yellow", f"! {ahead(report)}"
    for problem in report.problems[:_MOST]:
        yield "", ""
        headline, *details = problem.text.split("\n")
        yield _STYLES[problem.level], f"! {headline}"
        yield from (("", _Whole(line) if line.startswith(_COPIED) else line) for line in details)
    yield from (("", line) for line in _more(len(report.problems), "problem"))
    others = report.findings[len(report.problems) :]
    for number, finding in enumerate(others[:_MOST_SUBJECTS]):
        if number == 0:
            yield "", ""
        yield _STYLES[finding.level], f"{'!' if finding.now else '-'} {finding.text}"
    yield from (("", line) for line in _more(len(others), most=_MOST_SUBJECTS))
    joined = {key for one in report.problems for key in one.subjects[_MOST_ALIKE:]}
    queries = [one for one in report.queries if one.key not in joined]
    for kind, subjects in (("Application", report.applications), ("Query", queries)):
        if subjects:
            yield "", ""
            yield "", _overview(kind, subjects[:_MOST_SUBJECTS], width)
            yield from (("", line) for line in _more(len(subjects), most=_MOST_SUBJECTS))
    if joined:
        yield "", f"… {counted(len(joined), 'more query', 'more queries')} of the cards above: --json or --html"
    yield from _all_details(report, joined)
    yield from _section(f"Failures by root cause ({len(report.failures):,})", _failures(report))
    stages = counted(report.slow_stage_count, "stage")
    yield from _section(f"Why it was slow ({stages})", _slow_stages(report))
    yield from _section("About the data", _notes(report))


def _section(title: str, lines: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the lines, indented below a title, or nothing if there is no line."""
    for number, (style, line) in enumerate(lines):
        if number == 0:
            yield "", ""
            yield "bold", title
        yield style, f"  {line}"


def _all_details(report: EventReport, joined: Collection[str]) -> Iterator[tuple[str, str]]:
    downtimes = {one.name: one.downtimes for one in report.applications}
    names = names_of(report.subjects)
    sections = [
        (title(subject, names[subject.key]), lines)
        for subject in report.subjects
        if subject.key not in joined
        and (
            lines := list(_details(subject, downtimes.get(subject.application, ()) if subject.kind == "query" else ()))
        )
    ]
    for name, lines in sections[:_MOST_SUBJECTS]:
        yield from _section(name, (("", line) for line in lines))
    if (more := len(sections) - _MOST_SUBJECTS) > 0:
        what = counted(more, "more application or query", "more applications and queries")
        yield "", ""
        yield "", f"… details of {what}: --json or --html"


def _overview(kind: str, subjects: Sequence[SubjectReport], width: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    numbers = ("Uptime", "Down", "Runs", "Failed", "Restarts")
    costs = [name for name in ("core_hours_idle", "cost") if any(getattr(one, name) is not None for one in subjects)]
    more = (
        ("Failures", "Core-h", *(_COSTS[name] for name in costs))
        if kind == "Application"
        else ("p50", "p95", "p99", "Over SLA", "Rows/s", "Lag")
    )
    shown = [name for name in (*numbers, *more) if width >= WIDE or name not in _ONLY_WIDE]
    # Whole words, at least; a longer name is cut.
    table.add_column(kind, overflow="ellipsis", no_wrap=True, max_width=width // 3)
    table.add_column("Outcome", no_wrap=True)
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    names = names_of(subjects)
    for one in subjects:
        cells = [percent(one.uptime_percent), span(one.downtime_ms) if one.is_long_running else "–"]
        cells += [f"{one.run_count:,}", f"{one.failed_runs:,}", f"{one.restarts:,}"]
        commits = one.commits
        if kind == "Application":
            cells.append(f"{one.incidents:,}")
            cells += [
                "–" if (value := getattr(one, name)) is None else f"{value:,.2f}" for name in ("core_hours", *costs)
            ]
        elif commits is None:
            cells += ["–"] * 6
        else:
            lag = one.watermark.lag_ms if one.watermark else None
            rate = "–" if commits.rows_per_second is None else f"{commits.rows_per_second:,.1f}"
            cells += [span(commits.p50_ms), span(commits.p95_ms), span(commits.p99_ms)]
            cells += [f"{commits.over_sla:,}", rate, span(lag)]
        outcome = Text(on_one_line(one.outcome), style=_OUTCOMES.get(one.outcome, ""))
        kept = [cell for name, cell in zip((*numbers, *more), cells, strict=True) if name in shown]
        table.add_row(Text(shortened(names[one.key])), outcome, *(Text(cell) for cell in kept))
    return table


def _details(subject: SubjectReport, covered: Sequence[Downtime]) -> Iterator[str]:
    """Yield the details, without the downtimes that the details of its application contain."""
    downtimes = [
        down
        for down in subject.downtimes
        if not any(one.start - _TOLERANCE <= down.start and down.end <= one.end + _TOLERANCE for one in covered)
    ]
    for down in downtimes[:_MOST]:
        end = "still down" if down.ongoing else f"until {when(down.end)}"
        yield f"down {when(down.start)} {end} ({span(down.end - down.start)}): {down.cause}"
    yield from _more(len(downtimes))
    if subject.commits is not None:
        for slow in subject.commits.slow[:_MOST]:
            batch = "a batch" if slow.batch_id is None else f"batch {slow.batch_id}"
            yield f"slow {when(slow.at)} {batch} took {span(slow.duration_ms)}"
        listed = "--json or --html" if subject.commits.over_sla <= MOST_SLOW else "--json"
        yield from _more(subject.commits.over_sla, "slow commit", listed)
    for work in subject.overdue[:_MOST]:
        end = "still overdue" if work.end is None else f"until {when(work.end)}"
        limit = "" if work.limit_ms is None else f", limit {span(work.limit_ms)}"
        place = "" if work.place is None else f", at {work.place}"
        yield f"overdue {when(work.start)} {end}: {work.what} (rule {work.rule}{limit}){place}"
    yield from _more(len(subject.overdue))
    for idle in subject.idle[:_MOST]:
        still = "" if idle.ongoing_since is None else f", still idle since {when(idle.ongoing_since)}"
        yield f"idle {idle.source}: {counted(idle.times, 'time')}, {span(idle.total_ms)} in total{still}"
    yield from _more(len(subject.idle))
    for one in subject.enrichment[:_MOST]:
        calls = f"{counted(one.calls, 'call')}, {counted(one.retries, 'retry', 'retries')}"
        yield f"enrichment {shortened(one.function)}: {calls}, p99 {span(one.p99_ms)} (highest of a batch)"
    yield from _more(len(subject.enrichment))
    if subject.kind == "application" and subject.dropped:
        yield f"dropped {counted(subject.dropped, 'record or event', 'records or events')}"


def _failures(report: EventReport) -> Iterator[tuple[str, str]]:
    for group in report.failures[:_MOST]:
        kinds = ", ".join(f"{count:,} {entity}" for entity, count in group.entities.items())
        yield "red", shortened(group.cause)
        place = f" at {shortened(group.location)};" if group.location else ""
        label = "".join(f" {text}," for text in (group.label, group.failure_class) if text)
        if group.retry_useful is not None:
            label += f" a retry {'may help' if group.retry_useful else 'does not help'},"
        times = when(group.first) if group.first == group.last else f"{when(group.first)} to {when(group.last)}"
        yield "", f"  {group.incidents:,} × ({kinds}),{label}{place} {times}"
    yield from (("", line) for line in _more(len(report.failures), "root cause"))


def _slow_stages(report: EventReport) -> Iterator[tuple[str, str]]:
    for stage in report.slow_stages[:_MOST]:
        lost = f", {span(stage.lost_ms)} lost" if stage.lost_ms else ""
        yield "yellow", f"{when(stage.at)}{lost}"
        yield "", f"  {on_one_line(stage.text)}"
    yield from (("", line) for line in _more(report.slow_stage_count))


def _notes(report: EventReport) -> Iterator[tuple[str, str]]:
    yield from (("dim", note) for note in report.notes[:_MOST_SUBJECTS])
    yield from (("dim", line) for line in _more(len(report.notes), "note", "--json", _MOST_SUBJECTS))
    if report.duplicates:
        yield "dim", f"{counted(report.duplicates, 'event')} occurred in several sources and count once."


def _more(total: int, what: str = "", listed: str = "--json or --html", most: int = _MOST) -> Iterator[str]:
    """Yield a line with the number of entries that the terminal omits, if any."""
    if (more := total - most) > 0:
        yield f"… {counted(more, f'more {what}') if what else f'{more:,} more'}: {listed}"
