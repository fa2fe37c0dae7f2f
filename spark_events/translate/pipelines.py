"""Declarative pipelines (``spark-pipelines run``): their flows and data sets, and the outcome of their runs.

Spark sends a pipeline's own events (``PipelineEvent``) to the client only, so no listener receives them. The client is
the program ``spark-pipelines``, which defines and runs the pipeline by commands to Spark Connect. The text of a command
names the flow and its data set; the end of the command ``start_run`` is the end of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from spark_events.event import AttributeValue, Severity
from spark_events.records.types import (
    ApplicationStart,
    PipelineCommandCancelled,
    PipelineCommandEnded,
    PipelineCommandStarted,
    StatementFailed,
)
from spark_events.translate.clients import with_client
from spark_events.translate.draft import Draft, present
from spark_events.translate.entities import failure
from spark_events.translate.failures import Diagnosis, Diagnostics
from spark_events.translate.job_tags import job_tags
from spark_events.translate.standing_failures import same_cause

__all__ = ["FLOW", "PipelineOutcome", "Pipelines", "flow_of"]

#: Attribute of all events of a flow's work.
FLOW = "spark.pipeline.flow"
_DATASET = "spark.pipeline.dataset"
_MOST = 4_096
#: Longest cause in the body of an event, in characters.
_LONGEST_CAUSE = 300
#: Maximum number of failed flows that the body of an event names.
_MOST_NAMED = 5
#: Field of a command, which Spark describes in the text format of protocol buffers.
_FIELD = re.compile(r'^    (?:  )?(\w+): (?:"((?:[^"\\]|\\.)*)"|(\w+))$', re.MULTILINE)
_COMMAND = re.compile(r"pipeline_command \{\s+(\w+) \{")
_ESCAPED = re.compile(r"((?:\\[0-7]{3})+)|\\(.)", re.DOTALL)
_BREAKS = {"n": "\n", "t": "\t", "r": "\r"}
#: Flow that a SQL file defines; a flow without a name of its own has the name of its data set.
_SQL_FLOW = re.compile(
    r"\bCREATE\s+FLOW\s+([\w.`]+)\s+AS\s+(?:INSERT\s+INTO|AUTO\s+CDC\s+INTO)\s+([\w.`]+)", re.IGNORECASE
)
#: Status code with which Spark Connect begins the message of a failed command.
_STATUS = re.compile(r"^[A-Z_]+:\s+")
#: Application that a Python program creates for a Spark Connect server of its own.
_OWN_SERVER = re.compile(r"\bpyspark-shell$")
_UNRESOLVED = re.compile(r"^Flows with errors: (\S.*)$", re.MULTILINE)
_CAUSE = ("error.", "exception.", "failure.")
_Value = TypeVar("_Value")


class PipelineOutcome(NamedTuple):
    """How the application's pipeline ended.

    Attributes:
        status: the status of the application.
        how: continues the sentence that begins with the application.
        cause: summary of the error; "" for a success.
        attributes: attributes of the failure.
    """

    status: str
    how: str
    cause: str = ""
    attributes: Mapping[str, AttributeValue] = {}


class _Commands(msgspec.Struct):
    """What is known about the pipelines; the next sidecar receives it.

    Attributes:
        commands: the commands of pipelines, by the ids of their operations.
        datasets: the data set of each flow.
        failed: attributes of the flows whose last failure stands.
        analysis: attributes of the last failures that name no flow: Spark could not analyse a flow.
        status: the status of the application's run; "" before a command defined the pipeline, DEFINED before the run.
        error: message of the failed command.
    """

    commands: dict[str, str] = {}
    datasets: dict[str, str] = {}
    failed: dict[str, dict[str, AttributeValue]] = {}
    analysis: list[dict[str, AttributeValue]] = []
    status: str = ""
    error: str = ""


class Pipelines:
    """The pipelines that the application runs for clients of its Spark Connect server.

    Args:
        diagnostics: analyses errors.

    Attributes:
        is_application: whether the application belongs to one pipeline, so that the pipeline's outcome is its own.
        is_new: whether the state has changed since the last call of :meth:`take_memory`.
    """

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._state = _Commands()
        self._has_own_server = False
        self.is_new = False

    @property
    def is_application(self) -> bool:
        return self._has_own_server and bool(self._state.status)

    def application_started(self, record: ApplicationStart) -> None:
        """Note whether the application has a server of its own, or serves several clients."""
        self._has_own_server = _OWN_SERVER.search(record.command.strip()) is not None

    def started(self, record: PipelineCommandStarted) -> None:
        """Note what a command defines, or that it runs the pipeline; emit no event."""
        state, command = self._state, _COMMAND.match(record.statement)
        kind = command[1] if command else ""
        _put(state.commands, record.statement_id, kind)
        fields = {name: _unescaped(text) or word for name, text, word in _FIELD.findall(record.statement)}
        if flow := fields.get("flow_name"):
            _put(state.datasets, flow, fields.get("target_dataset_name", flow))
        for flow, dataset in _SQL_FLOW.findall(fields.get("sql_text", "")):
            _put(state.datasets, flow.replace("`", ""), dataset.replace("`", ""))
        state.status = "RUNNING" if kind == "start_run" else "DEFINED"
        self.is_new = True

    def ended(self, record: PipelineCommandEnded) -> None:
        """Note that a command succeeded; emit no event."""
        self._settle(record.statement_id, "FINISHED")

    def cancelled(self, record: PipelineCommandCancelled) -> None:
        """Note that a command was cancelled; emit no event."""
        self._settle(record.statement_id, "CANCELLED")

    def knows(self, operation: str) -> bool:
        """Return whether an operation of Spark Connect is a command of a pipeline."""
        return operation in self._state.commands

    def failed(self, record: StatementFailed) -> Iterator[Draft]:
        """Handle a command that failed.

        The failure of the application's own pipeline is reported at the end of the application. On a server that
        several clients share, it is WARN, as that of any statement.
        """
        kind = self._state.commands.get(record.statement_id, "")
        self._state.error = _STATUS.sub("", record.error)
        self._settle(record.statement_id, "FAILED")
        self._state.status, self.is_new = "FAILED", True
        if not self._has_own_server:
            how, cause, about = self._explained()
            details: dict[str, AttributeValue | None] = {
                "spark.connect.user_id": record.user,
                "spark.connect.session_id": record.session_id,
                "spark.connect.operation_id": record.statement_id,
                "failure.will_retry": False,
                **about,
            }
            body = f"{with_client('Pipeline', details)} {how}: {cause}"
            yield failure("sql", ("pipeline", kind, record.statement_id), body, Severity.WARN, record.time, details)

    def of_query(self, name: str | None, tags: str) -> dict[str, AttributeValue]:
        """Return the attributes of a streaming flow, whose query has its name; empty for other queries."""
        if name is None or not self.knows(_operation(tags)):
            return {}
        return {FLOW: name, _DATASET: self._dataset(name)}

    def of_execution(self, tags: str, writes: Sequence[str]) -> dict[str, AttributeValue]:
        """Return the attributes of a batch flow, which writes its data set; empty for other SQL executions."""
        if not writes or not self.knows(_operation(tags)):
            return {}
        (written, *_) = writes
        flows = [flow for flow, dataset in self._state.datasets.items() if _is_same(dataset, written)]
        return {FLOW: flows[0] if len(flows) == 1 else written, _DATASET: written}

    def observe(self, draft: Draft) -> None:
        """Note which flows have failed or succeeded, from the events of their work."""
        flow = str(draft.attributes.get(FLOW, ""))
        if not flow:
            if draft.name == "JobFailureEvent" and self.knows(str(draft.attributes.get("spark.connect.operation_id"))):
                self._state.analysis = [*self._state.analysis, _cause_in(draft)][-_MOST_NAMED:]
                self.is_new = True
            return
        if draft.name == "JobFailureEvent" and draft.attributes.get("spark.entity") in ("query", "job", "sql"):
            about = {**_cause_in(draft), _DATASET: draft.attributes.get(_DATASET, flow)}
            if draft.severity >= Severity.WARN or flow not in self._state.failed:
                _put(self._state.failed, flow, about)
                self.is_new = True
        elif (draft.name == "DataWrittenEvent" and "spark.batch.id" not in draft.attributes) or (
            draft.attributes.get("spark.entity") == "query" and draft.attributes.get("spark.status.new") == "FINISHED"
        ):
            self.is_new |= self._state.failed.pop(flow, None) is not None

    def outcome(self) -> PipelineOutcome | None:
        """Return how the pipeline that the application belongs to ended; None if that is unknown, or there is none."""
        if not self.is_application:
            return None
        match self._state.status:
            case "FINISHED":
                return PipelineOutcome("FINISHED", "finished: its run has completed")
            case "CANCELLED":
                return PipelineOutcome("CANCELLED", "was cancelled: its run was interrupted")
            case "FAILED":
                return PipelineOutcome("FAILED", *self._explained())
            case "DEFINED":
                how = "failed before its run started"
                cause = "an error in its definitions; the command's output contains the error"
                return PipelineOutcome("FAILED", how, cause)
            case _:
                return None

    def take_memory(self) -> str:
        """Return the state as a string, for the next sidecar."""
        self.is_new = False
        return msgspec.json.encode(self._state).decode() if self._state.status else ""

    def load_memory(self, memory: str) -> None:
        """Load the state that the preceding sidecar knew."""
        if memory:
            self._state = msgspec.json.decode(memory, type=_Commands)

    def _explained(self) -> tuple[str, str, dict[str, AttributeValue]]:
        """Return what failed, the cause, and the attributes of the failure."""
        found = self._diagnostics.of_text(self._state.error)
        failed = self._state.failed
        if unresolved := _UNRESOLVED.search(self._state.error):
            return self._unresolved(unresolved[1].split(", "), found)
        causes = {flow: str(about.get("failure.root_cause", "")) for flow, about in failed.items()}
        named = [flow for flow, cause in causes.items() if same_cause(cause, found.root_cause)] or list(failed)
        if not named:
            return "failed", found.summary, dict(found.attributes)
        return f"failed: {self._named(named)} failed", _one_line(causes[named[0]]), self._about(named[0], found)

    def _unresolved(self, flows: Sequence[str], found: Diagnosis) -> tuple[str, str, dict[str, AttributeValue]]:
        """Return the same about flows that Spark could not analyse; the error names only the flows."""
        causes = self._state.analysis
        cause = "; ".join(dict.fromkeys(_one_line(about.get("failure.root_cause", "")) for about in causes))
        about = {**found.attributes, **(causes[0] if causes else {}), FLOW: flows[0], _DATASET: self._dataset(flows[0])}
        return f"failed: {self._named(flows)} could not be resolved", cause or found.summary, about

    def _named(self, flows: Sequence[str]) -> str:
        failed = self._state.failed
        datasets = {flow: failed.get(flow, {}).get(_DATASET) or self._dataset(flow) for flow in flows[:_MOST_NAMED]}
        named = [f"flow '{flow}' of data set '{dataset}'" for flow, dataset in datasets.items()]
        more = f" and {len(flows) - _MOST_NAMED} more" if len(flows) > _MOST_NAMED else ""
        return f"{', '.join(named)}{more}"

    def _about(self, flow: str, found: Diagnosis) -> dict[str, AttributeValue]:
        about = {FLOW: flow, **self._state.failed[flow]}
        return present({**found.attributes, **about, "failure.will_retry": False})

    def _settle(self, operation: str, status: str) -> None:
        if self._state.commands.get(operation) == "start_run":
            self._state.status, self.is_new = status, True

    def _dataset(self, flow: str) -> str:
        """Return the data set of a flow, whose name in a query has a catalog and a schema."""
        datasets = self._state.datasets
        return next((dataset for name, dataset in datasets.items() if _is_same(name, flow)), flow)


def _one_line(cause: AttributeValue) -> str:
    return " ".join(str(cause).split())[:_LONGEST_CAUSE]


def _cause_in(draft: Draft) -> dict[str, AttributeValue]:
    return {name: value for name, value in draft.attributes.items() if name.startswith(_CAUSE)}


def flow_of(attributes: Mapping[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return those attributes that name a flow and its data set; empty if there are none."""
    return {name: attributes[name] for name in (FLOW, _DATASET) if name in attributes}


def _put(known: dict[str, _Value], key: str, value: _Value) -> None:
    known[key] = value
    if len(known) > _MOST:
        del known[next(iter(known))]


def _operation(tags: str) -> str:
    return str(job_tags(tags).attributes.get("spark.connect.operation_id", ""))


def _is_same(name: str, qualified: str) -> bool:
    """Return whether a name, perhaps without catalog and schema, is that of a qualified name."""
    return name == qualified or qualified.endswith(f".{name}") or name.endswith(f".{qualified}")


def _unescaped(text: str) -> str:
    """Return a string of the text format of protocol buffers, in which other bytes than ASCII are octal numbers."""

    def replaced(found: re.Match[str]) -> str:
        if found[1]:
            return bytes(int(octal, 8) & 0xFF for octal in found[1].split("\\")[1:]).decode("utf-8", "replace")
        return _BREAKS.get(found[2], found[2])

    return _ESCAPED.sub(replaced, text)
