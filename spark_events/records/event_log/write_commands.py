"""Nodes of a physical plan that write, found as in the shim (``WriteCommand.java``)."""

from __future__ import annotations

import re

from spark_events.records.event_log.logged_plans import arguments_of
from spark_events.records.event_log.shapes import Accumulable, PlanMetric, PlanNode

__all__ = ["WriteCommand", "planned", "write_commands"]

#: Maximum number of nodes above the write, such as that of adaptive execution.
_DEEPEST = 8
#: Maximum number of insertions of a statement.
_MOST = 64
_COMMAND = "Execute "
#: Commands of connectors of the older interface, which report no metrics of their own.
_CONNECTOR = re.compile(r"Execute (?:(?:Save|Insert)IntoDataSource|DeltaDynamicPartitionOverwrite)Command", re.ASCII)
_CREATES_TABLE = re.compile(r"Execute \w*AsSelectCommand|(?:Atomic)?(?:Create|Replace)\w*AsSelect", re.ASCII)
#: The last part of a table's name, at the end of a command.
_TABLE = re.compile(r"([^.`]+)`?$", re.ASCII)
_IGNORE = ", Ignore"
#: Arguments of a command that replaces a table.
_OVERWRITES = re.compile(r"[^,]+, Overwrite\b", re.ASCII)
_V2 = re.compile(
    r"AppendData|Overwrite(?:ByExpression|PartitionsDynamic)|ReplaceData|WriteDelta|DeleteFromTable"
    r"|(?:Atomic)?(?:Create|Replace)\w*AsSelect",
    re.ASCII,
)
_NO_WRITE = "NoopWrite"
_UNION = "Union"
#: The node below a write that merges rows.
_MERGE_ROWS = "MergeRows"
#: Maximum number of nodes between a write and the node that merges its rows.
_DEEPEST_MERGE = 32
#: Numbers of rows that tasks count, and not the driver.
_COUNTED_BY_TASKS = re.compile(r"number of (?:target rows .+|(?:copied|deleted|inserted|updated) rows)", re.ASCII)


class WriteCommand:
    """A node that writes, and the values of its metrics.

    Args:
        node: the node.
        description: the plan as Spark prints it.
        is_alone: whether the plan has no other write. The description names commands of one kind alike, so it does not
            tell which arguments are those of one of several.

    Attributes:
        writes_inside: whether a nested execution may be the write.
        text: the node with the arguments that tell what it writes.
        created: if the command creates a table in which a nested execution writes: the command with the table; else "".
        creation: the same with the mode, if it replaces the table.
        metrics: the metrics of the node.
        counts: the metrics that tasks count.
        values: values of the metrics that Spark has reported, by name.
    """

    def __init__(self, node: PlanNode, description: str, is_alone: bool) -> None:
        name = node.node_name
        is_connector, is_v2 = _CONNECTOR.match(name) is not None, _V2.match(name) is not None
        creates_table = _CREATES_TABLE.match(name) is not None
        self.writes_inside = is_connector or creates_table
        arguments = arguments_of(name, description) if is_alone and self.writes_inside and not is_v2 else ""
        overwrites = None if is_connector else _OVERWRITES.match(arguments)
        shown = arguments if is_connector else overwrites[0] if overwrites else ""
        self.text = f"{node.simple_string} {shown}".strip()
        self.created = ""
        if creates_table and (is_v2 or arguments):
            self.created = self.text if is_v2 else f"{name} {arguments.partition(',')[0]}"
        self.creation = self.text if overwrites else self.created
        is_known = is_connector and bool(arguments) and not arguments.endswith(_IGNORE)
        self._writes_if_successful = is_known or is_v2
        self.metrics: list[PlanMetric] = node.metrics
        self.counts = _counts(node)
        self.values: dict[str, int] = {}

    @property
    def is_done(self) -> bool:
        """Whether the command has written, if its execution succeeds."""
        return self._writes_if_successful or bool(self.values)

    @property
    def creates_without_path(self) -> bool:
        """Whether the plan of a command of the newer interface names the table that it creates, but not its path."""
        return bool(self.created) and not self.created.startswith(_COMMAND)

    def creates_path_of(self, write: WriteCommand) -> bool:
        """Return whether the other command writes to the path of the table that this command creates."""
        table = None if self.creates_without_path else _TABLE.search(self.created)
        return table is not None and f"/{table[1].lower()}," in write.text

    def updated(self, updates: list[tuple[int, int]]) -> None:
        """Note the values of metrics, by accumulator."""
        names = {metric.accumulator_id: metric.name for metric in self.metrics}
        self.values |= {names[number]: value for number, value in updates if number in names}

    def counted(self, accumulables: list[Accumulable]) -> None:
        """Note the values that the tasks of a stage have counted."""
        names = {metric.accumulator_id: metric.name for metric in self.counts}
        for one in accumulables:
            if one.id in names and str(one.value).isdecimal():
                self.values[names[one.id]] = int(str(one.value))


def write_commands(plan: PlanNode | None, description: str) -> list[WriteCommand]:
    """Return the writes of a plan: its first node that writes, or one for each child of a union; empty for none."""
    found = _nodes(plan)
    return [WriteCommand(node, description, len(found) == 1) for node in found]


def planned(commands: list[WriteCommand], plan: PlanNode | None) -> None:
    """Note that adaptive execution planned the writes again, so that their metrics have other accumulators."""
    found = _nodes(plan)
    if len(found) == len(commands):
        for command, node in zip(commands, found, strict=True):
            command.metrics = node.metrics
            command.counts = _counts(node)


def _counts(write: PlanNode) -> list[PlanMetric]:
    if not _V2.match(write.node_name):
        return []
    found, node = list(write.metrics), write
    for _ in range(_DEEPEST_MERGE):
        if len(node.children) != 1:
            break
        node = node.children[0]
        if node.node_name == _MERGE_ROWS:
            found += node.metrics
            break
    return [metric for metric in found if _COUNTED_BY_TASKS.fullmatch(metric.name)]


def _nodes(plan: PlanNode | None) -> list[PlanNode]:
    found: list[PlanNode] = []
    if plan is not None:
        _find(plan, 0, False, found)
    return found


def _find(node: PlanNode, depth: int, is_inside_union: bool, found: list[PlanNode]) -> None:
    if node.node_name.startswith(_COMMAND) or _V2.match(node.node_name):
        if _NO_WRITE not in node.simple_string:
            found.append(node)
        return
    is_union = node.node_name == _UNION and not is_inside_union
    if depth < _DEEPEST and (len(node.children) == 1 or is_union):
        for child in node.children[:_MOST]:
            _find(child, depth + 1, is_inside_union or is_union, found)
