"""HTML page of a report, self-contained in one file.

Text from events cannot inject HTML. The page contains this text as JSON without ``<``, ``>`` and ``&``, and the page's
script displays it only through ``textContent``. The Content-Security-Policy allows only the page's own script and
style.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import string
from importlib import resources

import msgspec

from spark_events.report.report_model import EventReport, FailureGroup, SubjectReport

_MOST_RUNS, MOST_SLOW, _MOST_ITEMS = 50, 200, 200
#: Maximum number of characters of a stack trace, for the most frequent causes and for other causes.
_STACK, _FULL_STACKS, _SHORT_STACK = 8_192, 200, 1_024
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page_of(report: EventReport, refresh_seconds: int | None = None) -> str:
    """Return the page.

    Args:
        report: a report with its drawing.
        refresh_seconds: interval at which the page fetches ``data.json``; None: never.
    """
    style, script, template = (_asset(name) for name in ("page.css", "page.js", "page.html"))
    sources = f"script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    connect = "'none'" if refresh_seconds is None else "'self'"
    policy = f"default-src 'none'; {sources}; connect-src {connect}; base-uri 'none'; form-action 'none'"
    return string.Template(template).substitute(
        policy=policy, style=style, data=data_of(report), refresh=refresh_seconds or 0, script=script
    )


def data_of(report: EventReport) -> str:
    """Return the page's data as JSON that is safe within a script element."""
    notes = report.notes[:_MOST_ITEMS]
    if (more := len(report.notes) - len(notes)) > 0:
        notes += (f"{more:,} more notes: spark-events report --json",)
    trimmed = dataclasses.replace(
        report,
        notes=notes,
        failures=tuple(_group(index, group) for index, group in enumerate(report.failures)),
        applications=tuple(_subject(one) for one in report.applications),
        queries=tuple(_subject(one) for one in report.queries),
        slow_stages=report.slow_stages[:_MOST_ITEMS],
    )
    text = msgspec.json.encode(trimmed).decode()
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _group(index: int, group: FailureGroup) -> FailureGroup:
    most = _STACK if index < _FULL_STACKS else _SHORT_STACK
    if group.stack is None or len(group.stack) <= most:
        return group
    return dataclasses.replace(group, stack=f"{group.stack[:most]}\n…")


def _subject(one: SubjectReport) -> SubjectReport:
    """Return an application or query without the list entries that the page omits; the counts stay exact."""
    commits = one.commits
    return dataclasses.replace(
        one,
        runs=one.runs[-_MOST_RUNS:],
        downtimes=one.downtimes[-_MOST_ITEMS:],
        overdue=one.overdue[-_MOST_ITEMS:],
        idle=one.idle[:_MOST_ITEMS],
        commits=None if commits is None else dataclasses.replace(commits, slow=commits.slow[:MOST_SLOW]),
    )


def _asset(name: str) -> str:
    return (resources.files("spark_events.report") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
