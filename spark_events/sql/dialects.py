"""Parts of the definitions that differ between SQLite, PostgreSQL and DuckDB.

The definitions contain placeholders in braces: ``{now}`` and other functions, and attributes of an event by their
names, such as ``{incident.key}``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

#: Tolerance for clocks of other machines that are ahead, in milliseconds.
AHEAD_MS = 300_000
_TABLE = {
    "source": "0",
    "by_source": "",
    "with_sources": "spark_events_runs",
    "not_ahead": f"observed_ts_millis <= {{now}} + {AHEAD_MS}",
}
_POSTGRESQL = {
    **_TABLE,
    "now": "CAST(extract(epoch FROM now()) * 1000 AS BIGINT)",
    "greatest": "greatest",
    "least": "least",
    "first_line": "left(split_part({failure.root_cause}, chr(10), 1), 300)",
}
_SQLITE = {
    **_TABLE,
    "now": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "greatest": "max",
    "least": "min",
    "first_line": "substr({failure.root_cause}, 1,"
    " coalesce(nullif(instr({failure.root_cause}, char(10)), 0), 301) - 1)",
}
_DUCKDB = {
    "source": "source",
    "by_source": "GROUP BY source",
    "with_sources": "spark_events",
    "not_ahead": f"(is_ahead IS NOT TRUE AND observed_ts_millis <= {{now}} + {AHEAD_MS})",
}
_ATTRIBUTES = {
    "postgresql": lambda key: f"attributes ->> '{key}'",
    "sqlite": lambda key: f"json_extract(attributes, '$.\"{key}\"')",
}
_ATTRIBUTE = re.compile(r"\{([a-z_.]+)\}")


def in_database(dialect: str, text: str, now: int | None = None) -> str:
    """Return a definition over a table with the columns of the database reporter.

    Args:
        dialect: ``postgresql`` or ``sqlite``.
        text: the definition.
        now: the time, in milliseconds; None: the database's clock.
    """
    functions = _SQLITE if dialect == "sqlite" else _POSTGRESQL
    clock = {} if now is None else {"now": f"CAST({now} AS BIGINT)"}
    return _placed(text, functions | clock, _ATTRIBUTES[dialect])


def attributes_of(text: str) -> set[str]:
    """Return the attributes that a definition uses."""
    return set(_ATTRIBUTE.findall(text)) - {*_POSTGRESQL, *_DUCKDB}


def in_duckdb(text: str, column: Callable[[str], str], now: int) -> str:
    """Return a definition for DuckDB.

    Args:
        text: the definition.
        column: returns the column with an attribute.
        now: the time, in milliseconds.
    """
    return _placed(text, _POSTGRESQL | _DUCKDB | {"now": f"CAST({now} AS BIGINT)"}, column)


def _placed(text: str, functions: dict[str, str], column: Callable[[str], str]) -> str:
    for name, function in functions.items():
        text = text.replace(f"{{{name}}}", function)
    return _ATTRIBUTE.sub(lambda found: column(found[1]), text)
