"""Definitions of a declarative pipeline: its flows, their data sets, and the lines that define them.

The client sends one command for each data set and for each flow. Python calls the function of a data set between the
two, so that an error in the function leaves a data set without a flow.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

__all__ = ["Definitions", "PipelineDefinition", "is_same"]

_MOST = 4_096
#: Field of a command.
_FIELD = re.compile(r'^    (?:  )?(\w+): (?:"((?:[^"\\]|\\.)*)"|(\w+))$', re.MULTILINE)
_ESCAPED = re.compile(r"((?:\\[0-7]{3})+)|\\(.)", re.DOTALL)
_BREAKS = {"n": "\n", "t": "\t", "r": "\r"}
#: Flow that a SQL file defines; a flow without a name of its own has the name of its data set.
_SQL_FLOW = re.compile(
    r"\bCREATE\s+FLOW\s+([\w.`]+)\s+AS\s+(?:INSERT\s+INTO|AUTO\s+CDC\s+INTO)\s+([\w.`]+)", re.IGNORECASE
)
#: Data sets whose flow always follows. A table may have no flow, or flows with functions of their own.
_WITH_FLOW = ("MATERIALIZED_VIEW", "TEMPORARY_VIEW")
_QUOTED = re.compile(r"['`]([\w.`-]+)['`]")


class PipelineDefinition(NamedTuple):
    """What one command defines.

    Attributes:
        flow: name of the flow; "" if the command defines a data set.
        dataset: name of the data set; "" if the command sends a file in SQL.
        place: file and line; "" if unknown.
        needs_flow: whether the data set's flow must follow.
    """

    flow: str = ""
    dataset: str = ""
    place: str = ""
    needs_flow: bool = False

    @classmethod
    def of(cls, command: str) -> PipelineDefinition:
        """Read a command, which Spark describes in the text format of protocol buffers."""
        fields = _fields(command)
        flow, output, line = fields.get("flow_name", ""), fields.get("output_name", ""), fields.get("line_number")
        place = f"{fields.get('file_name')}:{line}" if line else fields.get("sql_file_path", "")
        dataset = fields.get("target_dataset_name", flow) or output
        return cls(flow, dataset, place, bool(output) and fields.get("output_type") in _WITH_FLOW)

    @property
    def title(self) -> str:
        """The flow or data set and the last part of its place, in words; "" if nothing is known."""
        place = re.split(r"[/\\]", self.place)[-1]
        name = f"data set '{self.dataset}'" if self.dataset else ""
        if self.flow:
            name = f"flow '{self.flow}' of {name}"
        return f"{name} ({place})" if name and place else name or place


class Definitions(msgspec.Struct):
    """The definitions that the commands have sent; the next sidecar receives them.

    Attributes:
        datasets: the data set of each flow.
        places: file and line of each flow and of each data set.
        last: the last definition.
    """

    datasets: dict[str, str] = {}
    places: dict[str, str] = {}
    last: PipelineDefinition = PipelineDefinition()

    def define(self, command: str) -> None:
        """Note what a command defines."""
        self.last = defined = PipelineDefinition.of(command)
        if defined.flow:
            _put(self.datasets, defined.flow, defined.dataset)
        if defined.place and defined.dataset:
            _put(self.places, defined.flow or defined.dataset, defined.place)
        for flow, target in _SQL_FLOW.findall(_fields(command).get("sql_text", "")):
            _put(self.datasets, flow.replace("`", ""), target.replace("`", ""))

    def dataset(self, flow: str) -> str:
        """Return the data set of a flow, whose name in a query has a catalog and a schema."""
        return next((dataset for name, dataset in self.datasets.items() if is_same(name, flow)), flow)

    def flows_of(self, table: str) -> list[str]:
        """Return the flows that write a data set."""
        return [flow for flow, dataset in self.datasets.items() if is_same(dataset, table)]

    def place(self, name: str) -> str:
        """Return file and line of a flow's or data set's definition; "" if unknown."""
        return next((place for known, place in self.places.items() if is_same(known, name)), "")

    def title(self, flow: str, dataset: str) -> str:
        """Return a flow, its data set and its line, in words."""
        return PipelineDefinition(flow, dataset, self.place(flow)).title

    def named_in(self, error: str) -> list[str]:
        """Return the flows whose names, or those of their data sets, an error quotes."""
        quoted = [name.replace("`", "") for name in _QUOTED.findall(error)]
        found = (flow for name in quoted for flow in self.datasets if is_same(flow, name) or self._writes(flow, name))
        return list(dict.fromkeys(found))

    def _writes(self, flow: str, table: str) -> bool:
        return is_same(self.datasets[flow], table)


def is_same(name: str, qualified: str) -> bool:
    """Return whether a name, perhaps without catalog and schema, is that of a qualified name."""
    return name == qualified or qualified.endswith(f".{name}") or name.endswith(f".{qualified}")


def _fields(command: str) -> dict[str, str]:
    return {name: _unescaped(text) or word for name, text, word in _FIELD.findall(command)}


def _put(known: dict[str, str], key: str, value: str) -> None:
    known[key] = value
    if len(known) > _MOST:
        del known[next(iter(known))]


def _unescaped(text: str) -> str:
    """Return a string of the text format of protocol buffers, in which other bytes than ASCII are octal numbers."""

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return bytes(int(octal, 8) & 0xFF for octal in found[1].split("\\")[1:]).decode("utf-8", "replace")
        return _BREAKS.get(found[2], found[2])

    return _ESCAPED.sub(replaced, text)
