"""Aggregate the data of the page's charts to about ten thousand points at most; every failure stays visible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from spark_events.report.intervals import IdleInterval
from spark_events.report.numbers import DURATION, LAG, QUERY
from spark_events.report.report_model import Drawing, FailureGroup, Marker, Point, Segment, Step, SubjectReport
from spark_events.report.runs import FAILURE, GROUP, SubjectRun
from spark_events.report.table import NO_APPLICATION, EventTable

# Maximum numbers of points. Each bucket of a query has three points: duration, rate and lag.
_SEGMENTS, _BUCKETS, _EXECUTORS, _MARKERS = 2_500, 2_000, 1_000, 1_000
_MOST_LANES, _MOST_SERIES, _MOST_BUCKETS = 200, 100, 400
_LEAST_SEGMENTS = 8

_RUN_STATES = {"FAILED": "failed", "LOST": "failed", "CANCELLED": "cancelled", "UNKNOWN": "unknown"}
#: States from worst to best. If a bucket has several states, the chart shows the worst.
_UNKNOWN = "no event reports what happened"
_WORST = ("down", "failed", "overdue", "no data", "unknown", "idle", "cancelled")

# The rate is the number of rows in a bucket, divided by the sum of the times since each preceding commit. Dividing by
# the width of the bucket would produce a sawtooth curve if buckets are not much longer than batches.
_SERIES = f"""
SELECT query, (ts - {{since}}) // {{width}} AS bucket, count(*), min(took), median(took), max(took),
  1000.0 * sum(rows_in) FILTER (pause > 0) / nullif(sum(pause), 0), max(lag)
FROM (
  SELECT {QUERY} AS query, ts, {DURATION} AS took, rows_in, {LAG} AS lag,
    ts - lag(ts) OVER (PARTITION BY {QUERY}, run_id ORDER BY ts, sequence) AS pause
  FROM period WHERE name = 'BatchCommitEvent' AND list_contains(?, {QUERY})
) GROUP BY 1, 2 ORDER BY 1, 2
"""
_MARKERS_SQL = f"""
SELECT coalesce({QUERY}, 'a:' || app), {GROUP} AS grp, (ts - {{since}}) // {{width}} AS bucket,
  min(ts), max(ts), count(*)
FROM period WHERE {FAILURE} GROUP BY 1, 2, 3 ORDER BY 4
"""
_EXECUTOR_CHANGES = """
SELECT 'a:' || app, app, coalesce(app_id, ''), coalesce(attempt, ''), ts,
  CASE WHEN executor IS NULL THEN coalesce(more_added, 0) - coalesce(more_removed, 0)
    WHEN status = 'ADDED' THEN 1 WHEN status IN ('LOST', 'REMOVED') THEN -1 ELSE 0 END
FROM event WHERE name = 'ExecutorStatusChangeEvent' ORDER BY ts, sequence
"""


def drawing_of(
    table: EventTable,
    subjects: Sequence[SubjectReport],
    runs: Mapping[str, list[SubjectRun]],
    idle_intervals: Sequence[IdleInterval],
    groups: Sequence[FailureGroup],
    quiet: Mapping[str, int],
    since: int,
    until: int,
    axis_end: int,
) -> Drawing:
    """Aggregate the data of all charts; until the end of the axis, only the lanes continue."""
    worst = sorted(subjects, key=lambda one: (-bool(one.downtimes), -one.failed_runs, -len(one.failures)))[:_MOST_LANES]
    shown = {one.key for one in worst}
    overlays: dict[str, list[Segment]] = defaultdict(list)
    for idle in idle_intervals:
        if idle.subject in shown:
            end = until if idle.end is None else idle.end
            overlays[idle.subject].append((idle.start, end, "idle", idle.text))
    for subject in worst:
        for work in subject.overdue:
            end = until if work.end is None else work.end
            overlays[subject.key].append((work.start, end, "overdue", f"{work.what} overdue"))
    lines = {
        one.key: _line(one, runs[one.key], quiet.get(one.key), until, axis_end) for one in subjects if one.key in shown
    }
    for key, some in overlays.items():
        overlays[key] = _while_running(some, lines[key])
    # Lanes with many segments receive the points that lanes with few segments do not need.
    left, lanes = _SEGMENTS, {}
    for done, key in enumerate(sorted(lines, key=lambda key: len(lines[key]) + len(overlays[key]))):
        most = max(_LEAST_SEGMENTS, left // (2 * (len(lines) - done)))
        lanes[key] = (*_merged(lines[key], most, since, axis_end), *_merged(overlays[key], most, since, until))
        left -= len(lanes[key])
    drawn = sorted(
        (one for one in subjects if one.commits is not None),
        key=lambda one: (-len(one.failures), -(one.commits.over_sla if one.commits else 0), one.key),
    )[:_MOST_SERIES]
    buckets = min(_MOST_BUCKETS, _BUCKETS // max(1, len(drawn)))
    width = max(1, -(-(until - since + 1) // buckets))
    markers, marker_ms = _markers(table, groups, since, until)
    return Drawing(
        lanes=lanes,
        series=_series(table, [one.key for one in drawn], since, width),
        executors=_executors(table, runs, since, until),
        bucket_ms=width,
        markers=markers,
        until=axis_end,
        marker_ms=marker_ms,
    )


def _while_running(overlays: list[Segment], line: list[Segment]) -> list[Segment]:
    """Cut overlays to the times in which the application or query ran: a lane has one state at a time."""
    ran = [(start, end) for start, end, state, _ in line if state == "running"]
    return [
        (max(start, first), min(end, last), state, text)
        for start, end, state, text in overlays
        for first, last in ran
        if start < last and end > first
    ]


def _line(
    subject: SubjectReport, runs: Sequence[SubjectRun], quiet: int | None, until: int, axis_end: int
) -> list[Segment]:
    """Return an application's or query's runs and downtimes as segments of its lane."""
    segments = []
    for run in runs:
        if run.end is None and quiet is not None:
            segments.append((max(run.start, quiet), max(axis_end, quiet), "no data", _UNKNOWN))
        end = run.end if run.end is not None else until if quiet is None else max(run.start, min(quiet, until))
        ended = "finished" if run.end is not None else "running"
        state = "running" if subject.is_long_running else _RUN_STATES.get(run.status, ended)
        name = run.key[3] or run.key[1]
        segments.append((run.start, end, state, f"{name}: {run.status}"))
    segments += [(down.start, down.end, "down", down.cause) for down in subject.downtimes]
    if axis_end > until and any(down.ongoing for down in subject.downtimes):
        segments.append((until, axis_end, "no data", _UNKNOWN))
    return segments


def _merged(segments: list[Segment], most: int, since: int, until: int) -> tuple[Segment, ...]:
    """Clip the segments to the period; if there are too many segments, return the worst state of each bucket."""
    inside = [
        (max(start, since), min(end, until), state, text)
        for start, end, state, text in segments
        if start <= until and end >= since
    ]
    inside.sort()
    if len(inside) <= most:
        return tuple(inside)
    width = max(1, -(-(until - since + 1) // most))
    states: dict[int, str] = {}
    for start, end, state, _ in inside:
        for bucket in range((start - since) // width, (end - since) // width + 1):
            if bucket not in states or _rank(state) < _rank(states[bucket]):
                states[bucket] = state
    return tuple(
        (since + bucket * width, min(until, since + (bucket + 1) * width), state, "several runs")
        for bucket, state in sorted(states.items())
    )


def _rank(state: str) -> int:
    return _WORST.index(state) if state in _WORST else len(_WORST)


def _series(table: EventTable, queries: list[str], since: int, width: int) -> dict[str, tuple[Point, ...]]:
    found: dict[str, list[Point]] = defaultdict(list)
    for query, bucket, count, least, middle, most, rate, lag in table.run(
        _SERIES.format(since=since, width=width), queries
    ):
        found[query].append((since + bucket * width, count, least, middle, most, rate, lag))
    return {query: tuple(points) for query, points in found.items()}


def _markers(
    table: EventTable, groups: Sequence[FailureGroup], since: int, until: int
) -> tuple[tuple[Marker, ...], int]:
    """Return the failures, grouped into the allowed number of buckets, and the width of a bucket if it is wide.

    The sum of the counts stays exact.
    """
    indexes = {group.key: index for index, group in enumerate(groups)}
    merged: dict[tuple[str, int, int], Marker] = {}
    for buckets in (_MOST_BUCKETS, 100, 25, 5, 1):
        width = max(1, -(-(until - since + 1) // buckets))
        merged = {}
        for subject, key, bucket, first, last, count in table.run(_MARKERS_SQL.format(since=since, width=width)):
            place = (subject, indexes.get(key, len(groups) - 1), bucket)
            old = merged.get(place, Marker(*place[:2], first, last, 0))
            merged[place] = Marker(*place[:2], min(first, old.first), max(last, old.last), count + old.count)
        if len(merged) <= _MARKERS:
            break
    return tuple(merged.values()), 0 if buckets == _MOST_BUCKETS else width


def _executors(
    table: EventTable, runs: Mapping[str, list[SubjectRun]], since: int, until: int
) -> dict[str, tuple[Step, ...]]:
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    left: dict[tuple[str, ...], int] = defaultdict(int)
    for subject, *key, ts, change in table.run(_EXECUTOR_CHANGES):
        if subject == f"a:{NO_APPLICATION}" or left[tuple(key)] + change < 0:
            continue  # no event reports the start of this lost executor
        left[tuple(key)] += change
        changes[subject].append((ts, change))
    for subject, some in changes.items():
        for run in runs.get(subject, ()):
            if run.end is not None and left[run.key[:3]]:
                some.append((run.end, -left[run.key[:3]]))
    width = max(1, -(-(until - since + 1) // max(10, _EXECUTORS // max(1, len(changes)))))
    return {subject: _steps(sorted(some), since, until, width) for subject, some in changes.items()}


def _steps(changes: list[tuple[int, int]], since: int, until: int, width: int) -> tuple[Step, ...]:
    """Return the number of executors for each bucket in which the number changes."""
    number = 0
    buckets: dict[int, tuple[int, int, int]] = {}
    for ts, change in changes:
        before, number = number, max(0, number + change)
        if ts > until:
            break
        bucket = max(0, (ts - since) // width)
        if ts < since:
            buckets[0] = (number, number, number)
            continue
        low, high, _ = buckets.get(bucket, (before, before, before))
        buckets[bucket] = min(low, number), max(high, number), number
    return tuple((since + bucket * width, *numbers) for bucket, numbers in sorted(buckets.items()))
