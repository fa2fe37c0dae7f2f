"""Intervals between two events: idle watermarks and overdue work."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from typing import TypeAlias

from spark_events.report.numbers import QUERY
from spark_events.report.report_model import IdleTime, Overdue
from spark_events.report.runs import RunKey
from spark_events.report.table import NO_APPLICATION, EventTable
from spark_events.report.wording import shortened

_IDLE = f"""
SELECT app, coalesce(app_id, ''), coalesce(attempt, ''), coalesce(run_id, ''),
  coalesce({QUERY}, 'q:?'), watermark_subject, source_index, source, partition, status, ts,
  idle_since, held_back_by
FROM event WHERE name = 'WatermarkStatusChangeEvent' ORDER BY ts, sequence
"""
_OVERDUE = f"""
SELECT app, coalesce(app_id, ''), coalesce(attempt, ''), CASE WHEN query_id IS NOT NULL THEN coalesce(run_id, '') END,
  coalesce({QUERY}, 'a:' || app), overdue_subject, rule, job_id, stage_id, batch_id, overdue_source, topic,
  status, ts, limit_ms, elapsed_ms, deadline_location, place
FROM event WHERE name = 'DeadlineStatusChangeEvent' ORDER BY ts, sequence
"""


#: End times of runs; None while a run continues.
Ends: TypeAlias = Mapping[RunKey, int | None]


@dataclasses.dataclass(slots=True)
class IdleInterval:
    """Idle interval in the lane of a query; ``end`` is None while the interval continues."""

    subject: str
    start: int
    end: int | None
    text: str


@dataclasses.dataclass(slots=True)
class _Idle:
    subject: str
    source: str
    intervals: list[IdleInterval] = dataclasses.field(default_factory=list)
    held_back_by: str | None = None


def idle_times(
    table: EventTable, ends: Ends, since: int, until: int
) -> tuple[dict[str, tuple[IdleTime, ...]], list[IdleInterval]]:
    """Return the idle times by query, and the idle intervals of queries and sources for the timeline lanes."""
    open_intervals: dict[tuple[RunKey, tuple[object, ...]], IdleInterval] = {}
    found: dict[str, dict[tuple[object, ...], _Idle]] = defaultdict(dict)
    for row in table.run(_IDLE):
        run: RunKey = row[:4]
        query, subject, index, description, partition, status, ts, idle_since, held = row[4:]
        source = _source(subject, index, description, partition)
        key = (subject, index, partition)
        idle = found[query].setdefault(key, _Idle(str(subject), source))
        if status == "IDLE":
            idle.held_back_by = held or idle.held_back_by
            if (run, key) not in open_intervals:
                start = ts if idle_since is None else min(ts, idle_since)
                interval = IdleInterval(query, start, None, f"{source} idle")
                idle.intervals.append(interval)
                open_intervals[run, key] = interval
        elif (run, key) in open_intervals:
            open_intervals.pop((run, key)).end = ts
    for (run, _), interval in open_intervals.items():
        end = _end_of(run, ends)
        interval.end = None if end is None else max(interval.start, end)
    numbers = {
        query: tuple(one for idle in of_query.values() if (one := _total(idle, since, until)) is not None)
        for query, of_query in found.items()
    }
    lanes = [
        interval
        for of_query in found.values()
        for idle in of_query.values()
        if idle.subject != "partition"
        for interval in idle.intervals
    ]
    return numbers, lanes


def _end_of(run: RunKey, ends: Ends) -> int | None:
    return ends.get(run, ends.get((*run[:3], None)))


def _source(subject: str, index: int | None, description: str | None, partition: str | None) -> str:
    if subject == "query":
        return "watermark"
    source = f"source {index}" + (f" ({shortened(description)})" if description else "")
    return f"{source}, {partition}" if subject == "partition" else source


def _total(idle: _Idle, since: int, until: int) -> IdleTime | None:
    inside = [one for one in idle.intervals if one.start < until and (one.end is None or one.end > since)]
    if not inside:
        return None
    total = sum(min(until if one.end is None else one.end, until) - max(one.start, since) for one in inside)
    ongoing = next((one.start for one in inside if one.end is None), None)
    return IdleTime(idle.subject, idle.source, len(inside), total, ongoing, idle.held_back_by)


def overdue_work(table: EventTable, ends: Ends, since: int, until: int) -> dict[str, tuple[Overdue, ...]]:
    """Return overdue work by application or query, oldest first."""
    found: list[tuple[str, Overdue]] = []
    still: dict[tuple[RunKey, tuple[object, ...]], tuple[str, Overdue]] = {}
    for row in table.run(_OVERDUE):
        run: RunKey = row[:4]
        subject, what, rule, job, stage, batch, source, topic, status, ts, limit, elapsed, location, place = row[4:]
        key = (run, (what, rule, job if what == "job" else None, source, topic))
        if status == "OVERDUE":
            if run[0] == NO_APPLICATION and subject.startswith("a:"):
                continue
            old = still.get(key)
            start = ts if old is None else old[1].start
            where = shortened(location or place) or (old[1].place if old is not None else None)
            number = {"batch": batch, "job": job, "stage": stage}.get(what)
            text = what if number is None else f"{what} {number}"
            if topic is not None:
                text += f", topic {topic}"
            still[key] = subject, Overdue(text, str(rule), start, None, limit, elapsed, where)
        elif key in still:
            _, work = still.pop(key)
            found.append((subject, dataclasses.replace(work, end=ts, elapsed_ms=elapsed or work.elapsed_ms)))
    for (run, _), (subject, work) in still.items():
        end = _end_of(run, ends)
        found.append((subject, dataclasses.replace(work, end=None if end is None else max(work.start, end))))
    by_subject: dict[str, list[Overdue]] = defaultdict(list)
    for subject, work in sorted(found, key=lambda one: one[1].start):
        if work.start < until and (work.end is None or work.end > since):
            by_subject[subject].append(work)
    return {subject: tuple(works) for subject, works in by_subject.items()}
