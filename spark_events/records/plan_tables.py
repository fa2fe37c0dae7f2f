"""Find tables and paths in the nodes of a physical plan.

The shim and the reader of event logs select the same nodes, so both use this parser. Spark has no fields for the names:
a scan's name is part of the node's name, and a command's target is one of its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

__all__ = ["NAMED_WRITE", "PlannedNode", "tables"]

_PART = r"(?:[\w-]+|`[^`]+`)"
#: Write of a connector of DataSource V2. Since Spark 4.3, the name of the node ends with the table.
NAMED_WRITE = re.compile(
    rf"(?:AppendData|Overwrite(?:ByExpression|PartitionsDynamic)|ReplaceData|WriteDelta) ({_PART}(?:\.{_PART})*)(?= |$)"
)
_SCAN = re.compile(r"(Batch)?Scan (?!ExistingRDD|OneRowRelation)(.*)")
_LOCATION = re.compile(r"\w+(?: ?\(\d+ paths\))? ?\[([^\]]*)\]?")
#: Prefix of the name of a cached table.
_CACHED = "In-memory table "
#: Patterns that find the target in a command's arguments; the most reliable pattern comes first.
_TARGETS = (
    # A table that a connector's catalog creates
    re.compile(r"^[\w.$]*Catalog@[0-9a-f]+, ([^,\s]+),"),
    # A table of Delta Lake in a catalog
    re.compile(r"\bDeltaTableV2\([^,]*,[^,]*,Some\(CatalogTable\(\s*Catalog: (\S+)\s+Database: (\S+)\s+Table: (\S+)"),
    re.compile(r"^RelationV2\[[^\]]*\] ([^,\s]+)"),
    re.compile(r"((?:`[^`]+`\.)*`[^`]+`)"),
    re.compile(r"\b(?:dbtable|table)=([^,)\]\s]+)"),
    re.compile(r"\bpath=(.+?)(?:\]|, [\w.-]+=|\s*$)"),
    re.compile(r"\bDeltaTableV2\([^,]*,\s*([^,\s]+)"),
    # A path may contain commas and spaces.
    re.compile(r"^((?:[a-z][a-z0-9+.-]*:)?/.*?)(?:, |$)"),
    # A table from which rows are deleted, before the condition
    re.compile(r"^((?:[\w-]+\.)+[\w-]+), \["),
)


class PlannedNode(msgspec.Struct, frozen=True):
    """Node of a plan that names a table or a path; ``location`` is that of a scan of files."""

    name: str
    location: str = ""
    arguments: str = ""


def tables(plan: Sequence[PlannedNode]) -> tuple[list[str], list[str]]:
    """Return the tables and paths that a plan reads, and those that a plan writes.

    Each name occurs once.
    """
    reads: dict[str, None] = {}
    writes: dict[str, None] = {}
    for node in plan:
        scan = _SCAN.match(node.name)
        if scan is not None:
            name = _scanned(scan)
            location = _LOCATION.match(node.location)
            reads.update(dict.fromkeys([name] if name else _paths(location[1]) if location else ()))
        elif named := NAMED_WRITE.match(node.name):
            writes[named[1].replace("`", "")] = None
        elif target := next(filter(None, (one.search(node.arguments) for one in _TARGETS)), None):
            writes[".".join(target.groups()).replace("`", "")] = None
    return list(reads), list(writes)


def _paths(location: str) -> list[str]:
    """Return the paths of a location; Spark ends a long list with ``... 3 entries``."""
    paths = (path.strip() for path in location.split(", "))
    return [path for path in paths if not path.startswith("...")]


def _scanned(scan: re.Match[str]) -> str:
    """Return the table of a scan; "" if the node scans paths."""
    name = scan[2].partition("[")[0].strip()
    if name.startswith(_CACHED):
        return name.removeprefix(_CACHED)
    # "Scan parquet spark_catalog.default.t" contains a format before the table; "BatchScan local.db.t[filters=]" does
    # not.
    return name if scan[1] or "(" in name else name.partition(" ")[2].strip()
