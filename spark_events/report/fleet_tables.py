"""Tables of the overview of a fleet, for the terminal and for the page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib import resources
from typing import Any, NamedTuple

from spark_events.event.text import on_one_line
from spark_events.report.fleet import FleetApplication, FleetReport
from spark_events.report.terminal import UNCUT, WIDE
from spark_events.report.wording import counted, shortened, span, when
from spark_events.reporters.reporter import load_extra

__all__ = ["fleet_page", "print_fleet"]

#: Maximum number of applications in the terminal and on the page; --json has all.
_MOST_LINES, _MOST_ROWS = 50, 1_000
#: Parts of the width of the terminal that the names of applications and teams may have.
_PARTS = (3, 6)


class FleetTable(NamedTuple):
    """One table; the cells after the first two are numbers.

    Attributes:
        applications: the application of each row; empty if the rows are not applications.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    applications: Sequence[FleetApplication] = ()


def _hours(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def _headline(report: FleetReport) -> str:
    total = report.total
    runs, failed = total(lambda one: one.runs), total(lambda one: one.failed)
    before, failed_before = total(lambda one: one.runs_before), total(lambda one: one.failed_before)
    spent, lost = total(lambda one: one.core_hours), total(lambda one: one.lost_core_hours)
    failures = total(lambda one: one.failed_core_hours)
    return (
        f"{counted(len(report.applications), 'application')}, {counted(int(runs), 'run')} this week ({before:,.0f} last"
        f" week), {failed:,.0f} failed ({failed_before:,.0f}); {_hours(spent)} core-hours, of which {_hours(lost)}"
        f" lost: {_hours(failures)} in failed runs, {_hours(lost - failures)} in retried tasks"
    )


def _tables(report: FleetReport, most: int) -> Iterator[FleetTable]:
    classes: list[tuple[str, ...]] = [
        (one.failure_class, f"{one.failures:,}", f"{one.failures_before:,}", f"{one.applications:,}")
        for one in report.classes
    ]
    columns = ("Class", "This week", "Last week", "Applications")
    yield FleetTable("Failures by class", columns, classes)
    cost: tuple[str, ...] = ("Cost",) if any(one.cost is not None for one in report.expensive) else ()
    yield _of(
        f"Most expensive ({len(report.expensive)})",
        report.expensive,
        ("Core-hours", "Last week", *cost, "Lost"),
        lambda one: (
            *(_hours(one.core_hours), _hours(one.core_hours_before)),
            *((_hours(one.cost),) if cost else ()),
            _hours(one.lost_core_hours),
        ),
    )
    yield _of(
        f"Most flaky ({len(report.flaky)}): changes between good and failed runs in two weeks",
        report.flaky,
        ("Changes", "Failed", "Runs"),
        lambda one: (
            *(f"{one.changes:,}", f"{one.failed + one.failed_before:,}"),
            f"{one.runs + one.runs_before:,}",
        ),
    )
    yield _of(
        f"Slower than last week ({len(report.slower)}): mean duration of good runs",
        report.slower,
        ("Mean", "Last week", "Growth"),
        lambda one: (span(one.mean_ms), span(one.mean_before_ms), f"{100 * one.growth - 100:+,.0f} %"),
    )
    shown = report.applications[:most]
    more = f", the first {most:,}" if len(report.applications) > most else ""
    yield _of(
        f"Applications ({len(report.applications):,}{more})",
        shown,
        ("Newest run", "Runs", "Failed", "Core-hours", "Lost"),
        lambda one: (
            *(one.status, f"{one.runs:,}", f"{one.failed:,}"),
            *(_hours(one.core_hours), _hours(one.lost_core_hours)),
        ),
    )


def _of(
    title: str,
    applications: Sequence[FleetApplication],
    columns: tuple[str, ...],
    cells: Callable[[FleetApplication], tuple[str, ...]],
) -> FleetTable:
    rows = [(shortened(one.name), shortened(one.team or "–"), *cells(one)) for one in applications]
    return FleetTable(title, ("Application", "Team", *columns), rows, applications)


def print_fleet(report: FleetReport, width: int | None = None) -> None:
    """Print the overview to standard output.

    Args:
        report: the overview.
        width: width of the output; None: no line is continued on the next one.

    Raises:
        MissingExtraError: rich is not installed.
    """
    load_extra("rich", "report")
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width or UNCUT, highlight=False, soft_wrap=width is None)
    console.print(Text(f"Week until {when(report.until)} UTC, {report.source}", style="bold"))
    console.print(Text(_headline(report)))
    for table in _tables(report, _MOST_LINES):
        if not table.rows:
            continue
        console.print(Text(f"\n{table.title}", style="bold"))
        shown: Any = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for number, name in enumerate(table.columns):
            most = (width or WIDE) // _PARTS[number] if number < len(_PARTS) else None
            justify: Any = "left" if number == 0 else "right"
            shown.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis", max_width=most)
        for row in table.rows:
            shown.add_row(*(Text(on_one_line(cell)) for cell in row))
        console.print(shown)
    console.print(Text(f"\nReport on one application: {report.applications[0].command}", style="dim"))


def fleet_page(report: FleetReport, link: Callable[[FleetApplication], str] | None = None) -> str:
    """Return the overview as one HTML page, without a script; text from events is escaped.

    Args:
        report: the overview.
        link: returns the address of an application's own report; None: each name shows the command for this report.
    """
    style = (resources.files("spark_events.report") / "page" / "page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    parts = [
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Fleet of applications</title><style>{style}</style></head><body>",
        f'<header><h1>Fleet of applications</h1><p id="period">Week until {when(report.until)} UTC, '
        f"{escape(report.source)}</p></header><main><section><p>{escape(_headline(report))}</p></section>",
    ]
    for number, table in enumerate(_tables(report, _MOST_ROWS)):
        parts.append(f'<section aria-labelledby="t{number}"><h2 id="t{number}">{escape(table.title)}</h2>')
        if not table.rows:
            parts.append("<p>None.</p></section>")
            continue
        heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
        parts.append(f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>')
        for row, cells in enumerate(table.rows):
            first, *others = (escape(on_one_line(cell)) for cell in cells)
            if table.applications:
                first = _linked(first, table.applications[row], link)
            parts.append(f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>')
        parts.append("</tbody></table></div></section>")
    return "".join([*parts, "</main></body></html>\n"])


def _linked(name: str, one: FleetApplication, link: Callable[[FleetApplication], str] | None) -> str:
    """Return the name of an application with the way to its own report."""
    if link is not None:
        return f'<a href="{escape(link(one))}">{name}</a>'
    return f"<details><summary>{name}</summary><code>{escape(one.command)}</code></details>"
