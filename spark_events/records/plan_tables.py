"""Find tables and paths in the description of a physical plan.

The description is in Spark's mode ``formatted``, the default. The shim and the reader of event logs select the same
lines of the description, so both use this parser.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_SCAN = re.compile(r"\(\d+\) (Batch)?Scan (?!ExistingRDD|OneRowRelation)(.+)")
_LOCATION = re.compile(r"Location: \w+(?: ?\(\d+ paths\))? ?\[([^\]]*)\]?")
#: Prefix of the name of a cached table.
_CACHED = "In-memory table "
#: Patterns that find the target in a command's arguments; the most reliable pattern comes first.
_TARGETS = (
    re.compile(r"((?:`[^`]+`\.)*`[^`]+`)"),
    re.compile(r"\b(?:dbtable|table)=([^,)\]\s]+)"),
    re.compile(r"\bpath=([^,\]\s]+)"),
    re.compile(r"Arguments: ([a-z][a-z0-9+.-]*:/[^,]*|/[^,]*)"),
)


def tables(plan: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the tables and paths that a plan reads, and those that a plan writes.

    Each name occurs once.
    """
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    node = ""
    for line in plan:
        if line.startswith("("):
            node = line
            name = _scanned(line)
            if name:
                reads[name] = None
                node = ""
        elif line.startswith("Location: ") and _SCAN.match(node):
            found = _LOCATION.match(line)
            reads.update(dict.fromkeys(_paths(found[1]) if found else ()))
        elif line.startswith("Arguments: ") and node and not _SCAN.match(node):
            target = next((found[1] for found in (pattern.search(line) for pattern in _TARGETS) if found), None)
            if target:
                writes[target.replace("`", "")] = None
    return list(reads), list(writes)


def _paths(location: str) -> list[str]:
    """Return the paths of a location; Spark ends a long list with ``... 3 entries``."""
    paths = (path.strip() for path in location.split(","))
    return [path for path in paths if not path.startswith("...")]


def _scanned(header: str) -> str:
    """Return the table of a scan; "" if the node is not a scan or scans paths."""
    found = _SCAN.match(header)
    if found is None:
        return ""
    name = found[2].partition("[")[0].strip()
    if name.startswith(_CACHED):
        return name.removeprefix(_CACHED)
    # "Scan parquet spark_catalog.default.t" contains a format before the table; "BatchScan local.db.t[filters=]" does
    # not.
    return name if found[1] or "(" in name else name.partition(" ")[2].strip()
