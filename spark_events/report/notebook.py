"""Report that a notebook shows."""

from __future__ import annotations

import html
import os
import time
from collections.abc import Iterable
from pathlib import Path

from spark_events.event import Event
from spark_events.report.build import ReportOptions, build
from spark_events.report.page import page_of
from spark_events.report.report_model import EventReport
from spark_events.report.sources import Reading
from spark_events.report.table import EventTable

_HEIGHT = 900


class InlineReport:
    """Report that a notebook displays as an HTML page, like ``spark-events report --html``.

    Args:
        model: the computed report, with its drawing.
    """

    def __init__(self, model: EventReport) -> None:
        self.model = model

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file."""
        Path(path).write_text(page_of(self.model), encoding="utf-8")

    def __repr__(self) -> str:
        wrong = "\n".join(finding.text for finding in self.model.findings if finding.now)
        return f"<InlineReport of {self.model.events:,} events>\n{wrong or self.model.status}"

    def _repr_html_(self) -> str:
        """Return the page in a frame that cannot access the notebook."""
        page = html.escape(page_of(self.model), quote=True)
        style = f"width:100%;height:{_HEIGHT}px;border:0"
        return f'<iframe title="Spark events report" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


def inline_report(events: Iterable[Event], sla_ms: int | None = None) -> InlineReport:
    """Report on events in memory.

    Raises:
        MissingExtraError: DuckDB is not installed.
        SparkEventsError: there is no event.
    """
    with EventTable() as table:
        reading = Reading(table)
        reading.add(iter([list(events)]), "this session", "memory")
        now = time.time_ns() // 1_000_000
        return InlineReport(build(table, ReportOptions(sla_ms=sla_ms), now, reading.summaries, (), True))
