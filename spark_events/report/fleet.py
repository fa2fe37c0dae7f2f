"""Overview of many applications, computed from Parquet files, in a database, or from a report's table."""

from __future__ import annotations

import dataclasses
import fnmatch
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from spark_events.config.quoting import quoted_source
from spark_events.errors import SparkEventsError
from spark_events.records.event_log.log_paths import LogPath, place_of
from spark_events.report.columnar import narrowed, own_column, parquet_files
from spark_events.report.sources import database_rows, is_database, source_to_type
from spark_events.report.table import EventTable, column_of, named
from spark_events.report.wording import typed
from spark_events.sql import definitions
from spark_events.sql.dialects import in_database, in_duckdb
from spark_events.sql.fleet_views import WEEK

__all__ = ["ClassCount", "FleetApplication", "FleetOptions", "FleetReport", "fleet_of", "is_pattern"]

_MOST_RANKED = 10
#: Number of runs below which an application is not called flaky, and factor from which it is called slower.
_LEAST_RUNS, _LEAST_GROWTH = 4, 1.1


@dataclasses.dataclass(frozen=True, slots=True)
class FleetOptions:
    """Selection of applications.

    Attributes:
        until: end of this week, in milliseconds.
        applications: names or patterns; empty: all.
        teams: values or patterns of the tag ``team``; empty: all.
    """

    until: int
    applications: Sequence[str] = ()
    teams: Sequence[str] = ()

    @property
    def since(self) -> int:
        """Start of last week, in milliseconds."""
        return self.until - 2 * WEEK

    def has(self, name: str, team: str | None) -> bool:
        """Return whether an application is selected."""
        return _matches(name, self.applications) and (not self.teams or _matches(team or "", self.teams))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FleetApplication:
    """One application by name, in the last two weeks; ``_before`` is last week.

    Large, because it is one row of the definition in SQL.

    Attributes:
        app_id: id of the newest run.
        status: status of the newest run.
        changes: how often a run failed after a good one, or was good after a failed one.
        lost_core_hours: core-hours of failed runs, and of failed and killed task attempts of other runs.
        failed_core_hours: the part of failed runs.
        mean_ms: mean duration of good runs.
        command: prints the application's own report.
    """

    name: str
    team: str | None
    app_id: str
    status: str
    started: int
    runs: int
    failed: int
    runs_before: int
    failed_before: int
    changes: int
    core_hours: float | None
    core_hours_before: float | None
    cost: float | None
    lost_core_hours: float | None
    failed_core_hours: float | None
    mean_ms: float | None
    mean_before_ms: float | None
    command: str = ""

    @property
    def growth(self) -> float:
        """Mean duration of this week, as a multiple of last week's; 0: unknown."""
        return (self.mean_ms or 0.0) / self.mean_before_ms if self.mean_before_ms else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class ClassCount:
    """Number of alarms of one class of failures."""

    failure_class: str
    failures: int
    failures_before: int
    applications: int


@dataclasses.dataclass(frozen=True, slots=True)
class FleetReport:
    """The overview.

    Attributes:
        until: end of this week, in milliseconds.
        applications: all selected applications: those with failures first, then by core-hours.
        classes: failures by class, the most frequent first.
        expensive: those with the most core-hours.
        flaky: those that changed most often between good and failed runs.
        slower: those whose good runs take longer than last week, by the time that this adds.
    """

    source: str
    until: int
    applications: tuple[FleetApplication, ...]
    classes: tuple[ClassCount, ...]
    expensive: tuple[FleetApplication, ...]
    flaky: tuple[FleetApplication, ...]
    slower: tuple[FleetApplication, ...]

    def as_json(self) -> bytes:
        """Return the whole overview as JSON."""
        return msgspec.json.encode(self)

    def total(self, number: Callable[[FleetApplication], float | None]) -> float:
        """Return the sum of a number of all applications."""
        return sum(number(one) or 0 for one in self.applications)


def fleet_of(source: str, options: FleetOptions, load: Callable[[EventTable], None]) -> FleetReport:
    """Compute the overview.

    Args:
        source: a folder of Parquet files, a Delta table, the URL of a database, or another source of a report.
        options: selection of applications.
        load: adds the events of another source to a table.

    Raises:
        SparkEventsError: the source cannot be read, or has no event of the selected applications.
    """
    applications, failures = _queried(source, options.until, load)
    _name_environments(applications, failures)
    command = f"spark-events report {shlex.quote(source_to_type(source))} --app"
    chosen = [
        msgspec.convert({**row, "command": _selecting(command, row["name"])}, FleetApplication, strict=False)
        for row in applications
        if row["name"] is not None and options.has(row["name"], row["team"])
    ]
    if not chosen:
        raise SparkEventsError(f"{quoted_source(source)}: no run of a selected application in the last two weeks")
    chosen.sort(key=lambda one: (-one.failed, -(one.core_hours or 0.0), one.name))
    names = {one.name for one in chosen}
    return FleetReport(
        source=quoted_source(source),
        until=options.until,
        applications=tuple(chosen),
        classes=_classes(row for row in failures if row["name"] in names),
        expensive=_ranked(chosen, lambda one: one.core_hours or 0.0),
        flaky=_ranked(chosen, lambda one: one.changes if one.runs + one.runs_before >= _LEAST_RUNS else 0),
        slower=_ranked(chosen, _added),
    )


def _selecting(command: str, name: str) -> str:
    pattern = shlex.quote(typed(name, None))
    # After a space, a name with a hyphen would be an option.
    return f"{command}{'=' if name.startswith('-') else ' '}{pattern}"


def _queried(source: str, now: int, load: Callable[[EventTable], None]) -> list[list[dict[str, Any]]]:
    if is_database(source):
        return [list(database_rows(source, _in_dialect(text, now))) for text in definitions.FLEET]
    with EventTable() as table:
        column = column_of
        place = _folder_of(source)
        if place is not None and (files := parquet_files(place)):
            column = own_column
            table.read_files(place, narrowed(files, definitions.attributes_of_fleet()))
        else:
            load(table)
            table.compute_sources(now)
        table.compute(now, column, definitions.UNDER_FLEET)
        return [table.rows(in_duckdb(text, column, now)) for text in definitions.FLEET]


def _folder_of(source: str) -> LogPath | None:
    """Return the folder of a source; None if the source is not a folder, or cannot be reached."""
    try:
        place = place_of(source)
        return place if place.is_dir() else None
    except OSError:
        return None


def _name_environments(*tables: Sequence[dict[str, Any]]) -> None:
    """Add the environment to the name of each application of several environments, as the report does."""
    known: dict[str, set[str]] = {}
    for row in chain(*tables):
        known.setdefault(row["name"], set()).add(row["environment"])
    for row in chain(*tables):
        environment = row.pop("environment")
        if environment and len(known[row["name"]]) > 1:
            row["name"] = named(row["name"], environment)


def _in_dialect(text: str, now: int) -> Callable[[str], str]:
    return lambda dialect: in_database(dialect, text, now)


def is_pattern(given: str) -> bool:
    """Return whether a name of an application is a pattern."""
    return any(character in given for character in "*?[")


def _matches(text: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def _added(one: FleetApplication) -> float:
    """Return the milliseconds that this week's good runs took longer than last week's."""
    if one.growth < _LEAST_GROWTH:
        return 0.0
    return ((one.mean_ms or 0.0) - (one.mean_before_ms or 0.0)) * (one.runs - one.failed)


def _ranked(
    applications: Sequence[FleetApplication], rank: Callable[[FleetApplication], float]
) -> tuple[FleetApplication, ...]:
    found = sorted((one for one in applications if rank(one) > 0), key=rank, reverse=True)
    return tuple(found[:_MOST_RANKED])


def _classes(rows: Iterable[Mapping[str, Any]]) -> tuple[ClassCount, ...]:
    new: Counter[str] = Counter()
    before: Counter[str] = Counter()
    affected: Counter[str] = Counter()
    for row in rows:
        name = row["failure_class"]
        new[name] += int(row["failures"])
        before[name] += int(row["failures_before"])
        affected[name] += 1 if row["failures"] else 0
    found = [ClassCount(name, new[name], before[name], affected[name]) for name in new]
    return tuple(sorted(found, key=lambda one: (-one.failures, -one.failures_before, one.failure_class)))
