"""Compute the report from a table of events."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections import Counter
from collections.abc import Sequence

from spark_events.errors import SparkEventsError
from spark_events.event.heartbeat import HEARTBEAT
from spark_events.event.text import plain
from spark_events.report.drawing import drawing_of
from spark_events.report.findings import findings, notes_on
from spark_events.report.intervals import idle_times, overdue_work
from spark_events.report.numbers import Numbers, numbers_of
from spark_events.report.problems import problems_of, stale_sources
from spark_events.report.report_model import (
    EventReport,
    Finding,
    IdleTime,
    Overdue,
    ProblemCard,
    RunSummary,
    SourceSummary,
    StaleSource,
    SubjectReport,
)
from spark_events.report.runs import SubjectRun, downtimes, latest, runs_of, uptime
from spark_events.report.table import EventTable
from spark_events.report.wording import counted, span, when
from spark_events.sql.dialects import AHEAD_MS

_DAY = 86_400_000
#: A time before 2000 comes from a clock that was not set; it does not begin the period.
_YEAR_2000 = 946_684_800_000
_MOST_RUNS = 1_000
#: Time since which nothing is known of an application or query that has not ended.
_SILENT = """
SELECT CASE entity WHEN 'query' THEN 'q:' ELSE 'a:' END || subject, since_ts_millis FROM spark_events_silent
"""
_MOST_NAMES = 10
#: The axis of data older than a day goes on after the newest event for this time, in milliseconds, or for this part of
#: the period if that is longer.
_TAIL = 900_000
_TAIL_PART = 20


@dataclasses.dataclass(frozen=True, slots=True)
class ReportOptions:
    """Selection of applications and period for a report.

    Attributes:
        since: start of the period; None: the oldest event.
        until: end of the period, at most now or the newest event, whichever is later. None: now if the newest event is
            at most a day old, else the newest event.
        applications: names, ids or patterns of applications; empty: all.
        queries: names, ids or patterns of queries; empty: all.
        sla_ms: limit for the duration of a commit.
        source: the source in the report's commands, such as a folder with many logs; None: the first that was read.
    """

    since: int | None = None
    until: int | None = None
    applications: Sequence[str] = ()
    queries: Sequence[str] = ()
    sla_ms: int | None = None
    source: str | None = None


def build(
    table: EventTable,
    options: ReportOptions,
    now: int,
    sources: Sequence[SourceSummary] = (),
    notes: Sequence[str] = (),
    draw: bool = False,
) -> EventReport:
    """Compute the report.

    Args:
        table: the events; the function deletes the events that the report does not need.
        options: the selection of applications and period.
        now: time in milliseconds.
        sources: summaries of the sources that were read.
        notes: problems with the sources.
        draw: whether to compute the data of the page's charts.

    Raises:
        SparkEventsError: there is no event, or no event matches the options.
    """
    duplicates = table.remove_duplicates()
    table.separate_environments()
    ahead, ahead_events = _date_back(table, now)
    # Whether events still arrive is asked of all events and of the real clock, whatever the period is.
    clock = max(now, table.newest() or 0)
    table.compute_sources(clock)
    newest = table.newest(is_ahead=False) or 0
    at = _choose_period(table, options, now)
    _choose(table, options)
    since, until, until_is = _period(table, options, now)
    table.compute(at)
    table.run(f"CREATE OR REPLACE VIEW period AS SELECT * FROM event WHERE ts BETWEEN {since} AND {until}")
    runs = {
        subject: some
        for subject, some in runs_of(table).items()
        if any(run.start <= until and (run.end is None or run.end >= since or run.is_bad) for run in some)
    }
    source = options.source or (sources[0].source if sources else "SOURCE")
    problems = problems_of(table, since, at, plain(source))
    quiet: dict[str, int] = dict(table.run(_SILENT))
    is_unknown = any(run.end is None for subject in quiet for run in runs.get(subject, ()))
    axis_end = _axis_end(since, until, at) if is_unknown and until_is == "newest event" else until
    uptimes = {subject: uptime(some, since, min(until, quiet.get(subject, until))) for subject, some in runs.items()}
    numbers = numbers_of(table, options.sla_ms, uptimes)
    ends = {run.key: run.end for some in runs.values() for run in some}
    idle, idle_lanes = idle_times(table, ends, since, until)
    overdue = overdue_work(table, ends, since, until)
    dropped: Counter[str] = Counter()
    for lost in numbers.lost:
        dropped[f"a:{lost.application}"] += lost.count
    subjects = [
        _subject(
            *(some, numbers, uptimes[subject], since, until),
            *(idle.get(subject, ()), overdue.get(subject, ()), dropped[subject], subject in quiet),
        )
        for subject, some in runs.items()
    ]
    subjects.sort(key=lambda one: (one.kind, one.application, one.name, one.key))
    found = findings(subjects, numbers, runs, problems, options.sla_ms)
    stale = stale_sources(table, [plain(one.source) for one in sources], at)
    is_wrong = any(one.now and one.level != "note" for one in found) or any(one.running for one in stale)
    return EventReport(
        generated=now,
        since=since,
        until=until,
        until_is=until_is,
        newest=newest,
        sla_ms=options.sla_ms,
        events=int(table.run("SELECT count(*) FROM period")[0][0]),
        duplicates=duplicates,
        damaged_lines=table.damaged,
        sources=tuple(dataclasses.replace(one, source=plain(one.source)) for one in sources),
        findings=found,
        notes=(*map(plain, notes), *notes_on(runs, subjects, 0 if ahead_events else ahead)),
        applications=tuple(one for one in subjects if one.kind == "application"),
        queries=tuple(one for one in subjects if one.kind == "query"),
        failures=numbers.groups,
        failure_count=sum(group.count for group in numbers.groups),
        lost=numbers.lost,
        at=at,
        newest_age_ms=max(0, clock - newest),
        ahead_events=ahead_events,
        ahead_ms=ahead if ahead_events else 0,
        problems=problems,
        stale=stale,
        is_wrong=is_wrong,
        status=_status(problems, found, stale, max(0, clock - newest), subjects, at if at < now else None),
        slow_stages=numbers.slow_stages,
        slow_stage_count=numbers.slow_stage_count,
        drawing=drawing_of(table, subjects, runs, idle_lanes, numbers.groups, quiet, since, until, axis_end)
        if draw
        else None,
    )


def _date_back(table: EventTable, now: int) -> tuple[int, int]:
    """Give the events of clocks that are ahead the current time.

    Otherwise one such event would extend the period and the uptimes into the future. These events are no sign of life:
    they are marked, and heartbeats are deleted. If all events are from the future, the clock of this machine is wrong,
    and no event is changed.

    Returns:
        How far the newest event is ahead, in milliseconds, and the number of these events.
    """
    latest = now + AHEAD_MS
    oldest, newest, late = table.run(f"SELECT min(ts), max(ts), count(*) FILTER (ts > {latest}) FROM event")[0]
    if newest is None:
        return 0, 0
    if oldest <= latest < newest:
        table.run(f"DELETE FROM event WHERE ts > {latest} AND name = '{HEARTBEAT}'")
        table.run(f"UPDATE event SET ts = {now}, is_ahead = true WHERE ts > {latest}")
        return newest - now, late
    return max(0, newest - now), 0


def _choose_period(table: EventTable, options: ReportOptions, now: int) -> int:
    """Delete the events after the period; return the time at which a problem is current."""
    newest = table.run("SELECT max(ts) FROM event")[0][0]
    if options.until is not None:
        table.run(f"DELETE FROM event WHERE ts > {options.until}")
    if not table.count():
        period = options.since is not None or options.until is not None
        raise SparkEventsError("no event in this period" if period else "no event in the sources")
    latest = max(now, int(newest))
    return latest if options.until is None else min(options.until, latest)


def _choose(table: EventTable, options: ReportOptions) -> None:
    if options.applications:
        chosen = _matching(table, "--app", "app", "app_id, app_name", options.applications)
        table.run("DELETE FROM event WHERE NOT coalesce(list_contains(?, app), false)", chosen)
    if options.queries:
        name = "coalesce(query_name, query_id)"
        chosen = _matching(table, "--query", name, "query_id", options.queries)
        table.run(f"DELETE FROM event WHERE query_id IS NOT NULL AND NOT list_contains(?, {name})", chosen)
        table.run("DELETE FROM event WHERE app NOT IN (SELECT app FROM event WHERE query_id IS NOT NULL)")


def _matching(table: EventTable, option: str, name: str, others: str, patterns: Sequence[str]) -> list[str]:
    """Return the applications or queries whose name, id, or name without its environment, matches a pattern.

    Raises:
        SparkEventsError: a pattern matches no name and no id.
    """
    known = table.run(f"SELECT DISTINCT {name}, [{others}] FROM event WHERE {name} IS NOT NULL")
    chosen = set()
    for pattern in patterns:
        found = {one for one, keys in known if pattern in keys or fnmatch.fnmatchcase(one, pattern) or one == pattern}
        if not found:
            names = sorted({one for one, _ in known})
            more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
            there = ", ".join(names[:_MOST_NAMES]) or "none"
            raise SparkEventsError(f"{option}: given {pattern!r}, the sources have: {there}{more}")
        chosen |= found
    return sorted(chosen)


def _period(table: EventTable, options: ReportOptions, now: int) -> tuple[int, int, str]:
    real = f"coalesce(min(ts) FILTER (ts >= {_YEAR_2000}), min(ts))"
    oldest, newest = table.run(f"SELECT {real}, max(ts) FROM event")[0]
    if options.until is not None and options.until <= max(now, newest):
        until, until_is = options.until, "given"
    elif newest <= now and (now <= newest + _DAY or options.until is not None):
        until, until_is = now, "now"
    else:
        until, until_is = newest, "newest event"
    since = oldest if options.since is None else options.since
    if since > until:
        raise SparkEventsError("no event in this period")
    return since, until, until_is


def _axis_end(since: int, until: int, at: int) -> int:
    """Return where the axis of old data ends if a run has not ended, so that the grey part of its lane is seen."""
    return max(until, min(at, until + max(_TAIL, (until - since) // _TAIL_PART)))


def _status(
    problems: Sequence[ProblemCard],
    found: Sequence[Finding],
    stale: Sequence[StaleSource],
    age: int,
    subjects: Sequence[SubjectReport],
    past: int | None,
) -> str:
    """Return the status now, or at the time to which ``--until`` goes back."""
    applications = [one for one in subjects if one.kind == "application"]
    then = "now" if past is None else f"at {when(past)} UTC"
    newest = f"newest event {span(age)} ago, of {counted(len(applications), 'application')}"
    warnings = sum(one.now and one.level != "note" for one in found) - len(problems)
    if problems:
        more = f" and {counted(warnings, 'warning')}" if warnings else ""
        return f"{counted(len(problems), 'problem')}{more} {then}; {newest}."
    if warnings:
        return f"{counted(warnings, 'warning')} {then}; {newest}."
    if running := sum(one.running for one in stale):
        open_now = counted(running, "application has", "applications have")
        return f"Unknown: no event for more than 15 min, although {open_now} not ended; {newest}."
    return f"OK: nothing {'is' if past is None else 'was'} wrong {then}; {newest}."


def _subject(
    runs: list[SubjectRun],
    numbers: Numbers,
    up: int,
    since: int,
    until: int,
    idle: tuple[IdleTime, ...],
    overdue: tuple[Overdue, ...],
    dropped: int,
    is_quiet: bool,
) -> SubjectReport:
    last = latest(runs)
    key = last.subject
    kind = "query" if last.key[3] is not None else "application"
    is_long_running = kind == "query" or any(run.has_queries for run in runs)
    downs = tuple(downtimes(runs, since, until)) if is_long_running else ()
    down = sum(one.end - one.start for one in downs)
    inside = [run for run in runs if run.start <= until and (run.end is None or run.end >= since)]
    return SubjectReport(
        key=key,
        kind=kind,
        id=key[2:] if kind == "query" else last.key[1],
        name=last.name,
        application=last.key[0],
        outcome="SILENT" if is_quiet else last.status,
        is_long_running=is_long_running,
        uptime_ms=up,
        downtime_ms=down,
        # A percentage says something only after a restart.
        uptime_percent=100 * up / (up + down) if is_long_running and len(inside) > 1 and up + down else None,
        restarts=sum(run.start >= since for run in runs[1:]),
        runs=tuple(_summary(run) for run in inside[-_MOST_RUNS:]),
        run_count=len(inside),
        failed_runs=sum(run.is_bad for run in inside),
        doubtful_runs=sum(run.is_doubtful for run in inside),
        downtimes=downs,
        commits=numbers.commits.get(key),
        watermark=numbers.watermarks.get(key),
        idle=idle,
        overdue=overdue,
        enrichment=numbers.enrichment.get(key, ()),
        failures=numbers.failures.get(key, ()),
        incidents=numbers.incidents.get(key, 0),
        executors_lost=numbers.executors_lost.get(key, ()),
        dropped=dropped,
        downtime_count=len(downs),
        overdue_count=len(overdue),
        idle_count=len(idle),
        **numbers.costs.get(key, {}),
    )


def _summary(run: SubjectRun) -> RunSummary:
    app_id, attempt, run_id = run.key[1:]
    name = run_id if run_id is not None else f"{app_id} (attempt {attempt})" if attempt else app_id
    return RunSummary(name, run.start, run.end, run.status, run.start_known, run.last, run.cause)
