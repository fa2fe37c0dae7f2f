"""``spark-events report``: report on stored events."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from spark_events.cli.arguments import UsageError, add_conf, add_jobs, parsed
from spark_events.cli.output import OutputError, columns, note, show, show_json, writing
from spark_events.cli.times import TIME, millis_of
from spark_events.config import integer, positive_duration
from spark_events.config.defaults import read_settings
from spark_events.config.quoting import quoted_source
from spark_events.dispatch.pipeline_plan import read
from spark_events.errors import SparkEventsError
from spark_events.event.text import on_one_line
from spark_events.report import serve
from spark_events.report.build import ReportOptions, build
from spark_events.report.fleet import FleetOptions, FleetReport, fleet_of, is_pattern
from spark_events.report.fleet_tables import fleet_page, print_fleet
from spark_events.report.page import page_of
from spark_events.report.report_model import EventReport
from spark_events.report.sources import Reading, source_to_type
from spark_events.report.table import EventTable
from spark_events.report.terminal import print_report
from spark_events.translate.replays import cores
from spark_events.translate.translation_config import TranslateConfig

_MOST_NOTES = 3


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "report",
        help="report uptime, failures, slow commits and current problems",
        description=(
            "Reports on stored events: outcomes, uptime, downtime with its cause, failures by root cause, commits over"
            " an SLA, watermarks, overdue work, enrichments. Events that occur in several sources count once."
        ),
        epilog="Exit codes: 0; 1 for an error, and with --fail-on-sla if a commit is over the SLA; 2 for wrong usage;"
        " 3 with --fail-on now if anything is wrong now.",
    )
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="+",
        help="a file or folder of JSON lines or of Spark's event logs, or the URL of a database or of event logs"
        " (s3://, gs://, abfs://, hdfs://)",
    )
    add_conf(
        parser,
        "a spark-defaults.conf: use its spark.events.* settings for event logs, such as the price of a core-hour",
    )
    parser.add_argument("--since", metavar="TIME", help=f"start of the period: {TIME}")
    add_jobs(parser)
    parser.add_argument("--until", metavar="TIME", help="end of the period, in the same form")
    parser.add_argument(
        "--app", metavar="NAME", action="append", default=[], help="name, pattern or id of an application (repeatable)"
    )
    parser.add_argument(
        "--query", metavar="NAME", action="append", default=[], help="name, pattern or id of a query (repeatable)"
    )
    parser.add_argument(
        "--sla", type=parsed(positive_duration), metavar="TIME", help="longest duration of a commit, for example 30s"
    )
    parser.add_argument("--fail-on-sla", action="store_true", help="exit with 1 if a commit took longer than --sla")
    parser.add_argument(
        "--fail-on", choices=["now"], metavar="WHAT", help="exit with 3 if anything is wrong now, for cron and CI"
    )
    parser.add_argument(
        "--fleet",
        action="store_true",
        help="overview of many applications in the week before --until: failures by class, cost, flaky, slower",
    )
    parser.add_argument(
        "--team",
        metavar="NAME",
        action="append",
        default=[],
        help="with --fleet: value or pattern of the tag 'team' (repeatable)",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print the report as JSON")
    output.add_argument("--html", metavar="FILE", type=Path, help="write the report as one HTML page")
    output.add_argument(
        "--serve", action="store_true", help="serve the page on 127.0.0.1; each request reads new events"
    )
    parser.add_argument(
        "--port", type=parsed(integer(0, 65535)), default=4041, help="port of --serve (default: %(default)s; 0: any)"
    )
    parser.set_defaults(run=_run)


def _run(chosen: argparse.Namespace) -> int:
    if chosen.fail_on_sla and chosen.sla is None:
        raise UsageError("--fail-on-sla needs --sla TIME")
    if chosen.serve and chosen.fail_on_sla:
        raise UsageError("--fail-on-sla cannot be combined with --serve")
    if chosen.serve and chosen.fail_on:
        raise UsageError("--fail-on cannot be combined with --serve")
    if chosen.html is not None and os.path.isdir(chosen.html):
        raise UsageError(f"--html: given '{chosen.html}', which is a folder; give the name of a file")
    if chosen.team and not chosen.fleet:
        raise UsageError("--team needs --fleet")
    _options(chosen, _now())  # reject an invalid time before reading any event
    config = TranslateConfig() if chosen.conf is None else read(read_settings(chosen.conf)).translation
    if chosen.fleet:
        return _fleet(chosen, config)
    if chosen.serve:
        compute = functools.partial(_report, chosen, config, draw=True)
        serve.serve(lambda: serve.ReportServer(compute, chosen.port), chosen.port, _announce)
        return 0
    report = _report(chosen, config, draw=chosen.html is not None)
    if chosen.json:
        show_json(report.as_json().decode())
    elif chosen.html is not None:
        _write(chosen.html, page_of(report))
        note(f"wrote {chosen.html}")
    else:
        with writing():
            print_report(report, columns())
    if chosen.fail_on == "now" and report.is_wrong:
        return 3
    return 1 if chosen.fail_on_sla and report.violates_sla else 0


def _fleet(chosen: argparse.Namespace, config: TranslateConfig) -> int:
    unsuitable = ("query", "since", "sla", "fail_on")
    if given := next((name for name in unsuitable if getattr(chosen, name)), None):
        raise UsageError(f"--{given.replace('_', '-')} cannot be combined with --fleet")
    if len(chosen.sources) > 1:
        raise UsageError(f"--fleet: given {len(chosen.sources)} sources, expected one")
    if chosen.serve:

        def overview() -> str:
            return fleet_page(_overview(chosen, config), lambda one: serve.link_to(one.name))

        def application(name: str) -> str:
            return page_of(_report(argparse.Namespace(**{**vars(chosen), "app": [name]}), config, draw=True))

        serve.serve(lambda: serve.FleetServer(overview, application, chosen.port), chosen.port, _announce)
        return 0
    report = _overview(chosen, config)
    if chosen.json:
        show_json(report.as_json().decode())
    elif chosen.html is not None:
        _write(chosen.html, fleet_page(report))
        note(f"wrote {chosen.html}")
    else:
        with writing():
            print_fleet(report, columns())
    return 0


def _overview(chosen: argparse.Namespace, config: TranslateConfig) -> FleetReport:
    options = FleetOptions(_options(chosen, _now()).until or _now(), chosen.app, chosen.team)
    [source] = chosen.sources

    def load(table: EventTable) -> None:
        Reading(table, options.since, config, progress, chosen.jobs or cores()).read(source)

    with _progress() as progress:
        return fleet_of(source, options, load)


def _announce(text: str) -> None:
    show(text, flush=True)


def _report(chosen: argparse.Namespace, config: TranslateConfig, *, draw: bool) -> EventReport:
    now = _now()
    options = _options(chosen, now)
    with _progress() as progress, EventTable() as table:
        named = [] if any(map(is_pattern, chosen.app)) else chosen.app
        reading = Reading(table, options.since, config, progress, chosen.jobs or cores(), named)
        for source in chosen.sources:
            reading.read(source)
        progress("computing", None)
        if not table.count():
            sources = ", ".join(map(quoted_source, chosen.sources))
            if all(one.kind == "empty" for one in reading.summaries):
                raise SparkEventsError(f"{sources}: the source is empty and has no event yet")
            details = "".join(f"; {note}" for note in reading.notes[:_MOST_NOTES])
            raise SparkEventsError(f"{sources}: no event{details}")
        return build(table, options, now, reading.summaries, reading.notes, draw)


def _options(chosen: argparse.Namespace, now: int) -> ReportOptions:
    since, until = (
        None if given is None else millis_of(name, given, now)
        for name, given in (("--since", chosen.since), ("--until", chosen.until))
    )
    if since is not None and since > (now if until is None else until):
        raise UsageError(f"--since: given {chosen.since}, which is after the end of the period; choose an earlier time")
    sla_ms = None if chosen.sla is None else round(chosen.sla * 1000)
    return ReportOptions(since, until, chosen.app, chosen.query, sla_ms, source_to_type(chosen.sources[0]))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, float | None], None]]:
    """Show progress on standard error if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda text, fraction: None
        return
    from spark_events.reporters.reporter import load_extra

    load_extra("rich", "report")
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("reading") as status:

        def update(text: str, fraction: float | None) -> None:
            line = escape(on_one_line(text))
            status.update(line if fraction is None else f"{line}: {fraction:.0%}")

        yield update
