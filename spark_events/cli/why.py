"""``spark-events why``: the card of one incident, and what changed since the last good run."""

from __future__ import annotations

import argparse
import fnmatch
import shlex
import time

import msgspec

from spark_events.cli.arguments import add_conf, add_jobs
from spark_events.cli.output import columns, show, show_json
from spark_events.cli.times import TIME, millis_of
from spark_events.config.defaults import read_settings
from spark_events.config.quoting import quoted_source
from spark_events.dispatch.pipeline_plan import read
from spark_events.errors import SparkEventsError
from spark_events.event.text import on_one_line
from spark_events.report.brief import brief, fitted
from spark_events.report.build import ReportOptions, build
from spark_events.report.changes import comparison, lines_of
from spark_events.report.find_record import program_of
from spark_events.report.report_model import EventReport, ProblemCard
from spark_events.report.sources import Reading, source_to_type
from spark_events.report.table import EventTable, without_environment
from spark_events.report.wording import counted, typed
from spark_events.translate.replays import cores
from spark_events.translate.translation_config import TranslateConfig

_MOST_NAMES = 10
#: The shortest beginning of an incident.id.
_SHORTEST_ID = 8
_IDS = """
SELECT incident_id, incident_key, max(ts) FROM event WHERE starts_with(incident_id, ?) AND incident_key IS NOT NULL
GROUP BY ALL
"""
_OPEN = "SELECT incident_key, min(opened_ts_millis) FROM spark_events_incidents WHERE is_open GROUP BY 1"


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "why",
        help="explain the newest or one named incident, and what changed since the last good run",
        description=(
            "Prints the card of the newest open incident: what is wrong, why, where, which data, links and the next"
            " command; and what changed since the last good run of the application."
        ),
        epilog=("Exit codes: 0, also if nothing is wrong; 1 for an error; 2 for wrong usage."),
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a file or folder of JSON lines or of Spark's event logs, or the URL of a database or of event logs"
        " (s3://, gs://, abfs://, hdfs://)",
    )
    parser.add_argument("app", metavar="APP", nargs="?", help="name, pattern or id of an application")
    parser.add_argument(
        "--incident",
        metavar="KEY",
        help="an incident.key, an incident.id or its first 8 characters or more, or the id in a page's #incident=…",
    )
    parser.add_argument("--since", metavar="TIME", help=f"read only events and logs from this time on: {TIME}")
    add_jobs(parser)
    add_conf(parser, "a spark-defaults.conf: use its spark.events.* settings for event logs")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print the card and the changes as JSON")
    output.add_argument(
        "--program",
        action="store_true",
        help="print a program that reads only the file, or the offsets, of the failure",
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    now = time.time_ns() // 1_000_000
    since = None if chosen.since is None else millis_of("--since", chosen.since, now)
    config = TranslateConfig() if chosen.conf is None else read(read_settings(chosen.conf)).translation
    with EventTable() as table:
        reading = Reading(table, since, config, jobs=chosen.jobs or cores())
        reading.read(chosen.source)
        if not table.count():
            raise SparkEventsError(f"{quoted_source(chosen.source)}: no event")
        source = source_to_type(chosen.source)
        report = build(table, ReportOptions(source=source), now, reading.summaries, reading.notes)
        problem = _chosen(table, report, chosen.app, chosen.incident)
        if problem is None:
            if chosen.json:
                show_json(msgspec.json.encode({"status": report.status, "problem": None}).decode())
            else:
                about = "" if chosen.app is None else f"Nothing is wrong with '{chosen.app}' now. Of all applications: "
                show(on_one_line(f"{about if report.problems else ''}{report.status}"))
            return 0
        has_failed = problem.kind in ("failure", "ended", "crash-loop") or problem.failed_runs > 0
        changed = comparison(table, problem.application, problem.app_id, report.at, has_failed)
    program = program_of(problem)
    if chosen.program:
        if program is None:
            raise SparkEventsError("--program: the failure names neither a file nor offsets of Kafka")
        show(program)
        return 0
    if chosen.json:
        answer = {"status": report.status, "problem": problem, "changed": changed}
        show_json(msgspec.json.encode(answer).decode())
        return 0
    others = 0 if chosen.incident is not None else len(report.problems) - 1
    width = columns()
    needed, useful = _commands(source, problem, others, has_program=program is not None)
    show("\n".join(brief(problem, needed, useful, width)))
    if changes := lines_of(changed):
        show("\n".join(["", *(fitted(on_one_line(line), width) for line in changes)]))
    return 0


def _commands(source: str, problem: ProblemCard, others: int, *, has_program: bool) -> tuple[list[str], list[str]]:
    """Return the commands that say something new, and those that only show more of the same."""
    given = shlex.quote(source)
    application = shlex.quote(typed(problem.application, problem.app_id))
    report = f"spark-events report {given} --app {application}"
    page = [] if "://" in source else [f"{report} --html report.html"]
    program = [f"spark-events why {given} {application} --program > find.py"] if has_program else []
    if others:
        every = f"spark-events report {given}  # {counted(others, 'more problem')} now"
        return [*program, every], [report, *page]
    return [report, *program], page


def _chosen(
    table: EventTable, report: EventReport, application: str | None, incident: str | None
) -> ProblemCard | None:
    """Return the named problem, else the newest one of the application; None if nothing is wrong.

    Raises:
        SparkEventsError: no application or incident has this name, or several incidents have ids that begin so.
    """
    found = list(report.problems)
    if application is not None:
        known = {one.name: one.id for one in report.applications}
        names = {name for name in known if name == application or fnmatch.fnmatchcase(name, application)}
        names = names or {name for name in known if without_environment(name) == application}
        names |= {one.application for one in found if one.app_id == application}
        names |= {one.name for one in report.applications if any(run.id == application for run in one.runs)}
        if not names:
            raise SparkEventsError(f"no application '{application}'; the source has: {_listed(known)}")
        found = [one for one in found if one.application in names]
    if incident is not None:
        keys = {key: one.id for one in found for key in one.incident_keys or (one.id,)}
        of_id = _open_of_id(table, incident)
        named = [one for one in found if incident in (one.id, one.incident_key)]
        hiding = [one for one in found if incident in one.incident_keys or not of_id.isdisjoint(one.incident_keys)]
        found = named or hiding
        if not found:
            raise SparkEventsError(f"no open incident '{incident}'; open: {_listed(keys)}")
    return max(found, key=lambda one: one.last, default=None)


def _open_of_id(table: EventTable, start: str) -> set[str]:
    """Return the keys of the open incident whose id begins so. A closed incident may have had the same key.

    Raises:
        SparkEventsError: the ids of several incidents begin so.
    """
    rows = table.run(_IDS, start) if len(start) >= _SHORTEST_ID else []
    ids = {row[0]: None for row in rows}
    if len(ids) > 1 and start not in ids:
        raise SparkEventsError(f"several incidents have an id that begins with '{start}': {_listed(ids)}")
    opened = dict(table.run(_OPEN))
    chosen = {key: time for found, key, time in rows if found == start or len(ids) == 1}
    return {key for key, time in chosen.items() if key in opened and time >= opened[key]}


def _listed(names: object) -> str:
    known = sorted(map(str, names)) if isinstance(names, (dict, list)) else []
    more = f" and {len(known) - _MOST_NAMES:,} more" if len(known) > _MOST_NAMES else ""
    return (", ".join(known[:_MOST_NAMES]) or "none") + more
