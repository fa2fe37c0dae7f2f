"""Plans of SQL executions in the event log, of which the shim selects the same nodes (``PlanTables.java``)."""

from __future__ import annotations

import re
from collections import deque

from spark_events.records.event_log.redaction import Redaction
from spark_events.records.event_log.shapes import PlanNode
from spark_events.records.plan_tables import PlannedNode

_MOST_NODES = 10_000
#: Limits, in characters, of all selected texts and of one text.
_MOST_TEXT, _LONGEST = 4_096, 512
_SCAN = re.compile(r"(?:Batch)?Scan ")
_WRITE = re.compile(r"Execute |\w*(?:Append|Overwrite|Replace|Write|AsSelect|Insert|DeleteFrom)", re.ASCII)
_EXECUTE = "Execute "
_ARGUMENTS = "\nArguments: "


class _Limit:
    def __init__(self) -> None:
        self.left = _MOST_TEXT

    def kept(self, text: str) -> str:
        kept = text[: min(self.left, _LONGEST)]
        self.left -= len(kept)
        return kept


def planned_nodes(plan: PlanNode | None, description: str, redaction: Redaction) -> list[PlannedNode]:
    """Return the nodes that name tables and paths, from the root to the leaves, with redacted texts.

    Args:
        plan: the root of the plan; None if Spark reports no plan.
        description: the plan as Spark prints it, which alone contains the arguments of a command that is no write.
        redaction: redaction of the texts.
    """
    found: list[PlannedNode] = []
    limit = _Limit()
    waiting = deque(() if plan is None else (plan,))
    visited = 0
    while waiting and limit.left > 0 and visited < _MOST_NODES:
        node, visited = waiting.popleft(), visited + 1
        name = node.node_name
        if _SCAN.match(name):
            # A cached table has children, which are the plan that filled the cache.
            found.append(PlannedNode(limit.kept(name), limit.kept(node.metadata.get("Location", ""))))
            continue
        if _WRITE.match(name):
            arguments = node.simple_string.removeprefix(name).strip() if node.simple_string.startswith(name) else ""
            if not arguments and name.startswith(_EXECUTE):
                arguments = arguments_of(name, description)
            found.append(PlannedNode(limit.kept(name), "", limit.kept(arguments)))
        waiting.extend(node.children)
    text = redaction.text
    return [PlannedNode(*(part and text("plan", part) for part in (n.name, n.location, n.arguments))) for n in found]


def arguments_of(name: str, description: str) -> str:
    """Return the arguments of a command that is executed at once, which the description prints as a node of its own."""
    command = description.find(f") {name.removeprefix(_EXECUTE)}\n")
    start = -1 if command < 0 else description.find(_ARGUMENTS, command)
    gap = -1 if command < 0 else description.find("\n\n", command)
    if start < 0 or 0 <= gap < start:
        return ""
    return description[start + len(_ARGUMENTS) :].partition("\n")[0]
