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
from spark_events.translate.pipeline_definitions import Definitions, PipelineDefinition
from spark_events.translate.standing_failures import same_cause

__all__ = ["FLOW", "PipelineOutcome", "Pipelines", "flow_of"]

#: Attribute of all events of a flow's work.
FLOW = "spark.pipeline.flow"
_DATASET = "spark.pipeline.dataset"
#: File and line of the definition that failed.
_LOCATION = "spark.pipeline.location"
_MOST = 4_096
#: Longest cause in the body of an event, in characters.
_LONGEST_CAUSE = 300
#: Maximum number of failed flows that the body of an event names.
_MOST_NAMED = 5
_COMMAND = re.compile(r"pipeline_command \{\s+(\w+) \{")
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
        definitions: the flows and data sets.
        failed: attributes of the flows whose last failure stands.
        analysis: attributes of the last failures that name no flow: Spark could not analyse a flow.
        status: the status of the application's run; "" before a command defined the pipeline, DEFINED before the run.
        error: message of the failed command.
        rejected: what that command should define; empty if it was no definition.
    """

    commands: dict[str, str] = {}
    definitions: Definitions = msgspec.field(default_factory=Definitions)
    failed: dict[str, dict[str, AttributeValue]] = {}
    analysis: list[dict[str, AttributeValue]] = []
    status: str = ""
    error: str = ""
    rejected: PipelineDefinition = PipelineDefinition()


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
        if kind.startswith("define_"):
            state.definitions.define(record.statement)
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
        self._state.rejected = (
            PipelineDefinition.of(record.statement) if kind.startswith("define_") else PipelineDefinition()
        )
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
        return {FLOW: name, _DATASET: self._state.definitions.dataset(name)}

    def of_execution(self, tags: str, writes: Sequence[str]) -> dict[str, AttributeValue]:
        """Return the attributes of a batch flow, which writes its data set; empty for other SQL executions."""
        if not writes or not self.knows(_operation(tags)):
            return {}
        (written, *_) = writes
        flows = self._state.definitions.flows_of(written)
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
                return PipelineOutcome(
                    "FAILED", "failed before its run started", *_without_run(self._state.definitions.last)
                )
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
        if named:
            return f"failed: {self._named(named)} failed", _one_line(causes[named[0]]), self._about(named[0], found)
        return self._rejected(found)

    def _rejected(self, found: Diagnosis) -> tuple[str, str, dict[str, AttributeValue]]:
        """Return what failed, the cause and the attributes, if Spark rejects a definition or the graph of all."""
        rejected = self._state.rejected
        if rejected.title:
            about = {FLOW: rejected.flow, _DATASET: rejected.dataset, _LOCATION: rejected.place}
            known = {name: value for name, value in about.items() if value}
            return f"failed: Spark rejected {rejected.title}", found.summary, {**found.attributes, **known}
        named = self._state.definitions.named_in(self._state.error)
        if not named:
            return "failed", found.summary, dict(found.attributes)
        return (
            f"failed: Spark rejected {self._named(named)}",
            found.summary,
            {**found.attributes, **_defined(self._state.definitions, named[0])},
        )

    def _unresolved(self, flows: Sequence[str], found: Diagnosis) -> tuple[str, str, dict[str, AttributeValue]]:
        """Return the same about flows that Spark could not analyse; the error names only the flows."""
        causes = self._state.analysis
        cause = "; ".join(dict.fromkeys(_one_line(about.get("failure.root_cause", "")) for about in causes))
        about = {**found.attributes, **(causes[0] if causes else {}), **_defined(self._state.definitions, flows[0])}
        return f"failed: {self._named(flows)} could not be resolved", cause or found.summary, about

    def _named(self, flows: Sequence[str]) -> str:
        failed, definitions = self._state.failed, self._state.definitions
        datasets = {
            flow: failed.get(flow, {}).get(_DATASET) or definitions.dataset(flow) for flow in flows[:_MOST_NAMED]
        }
        named = [definitions.title(flow, str(dataset)) for flow, dataset in datasets.items()]
        more = f" and {len(flows) - _MOST_NAMED} more" if len(flows) > _MOST_NAMED else ""
        return f"{', '.join(named)}{more}"

    def _about(self, flow: str, found: Diagnosis) -> dict[str, AttributeValue]:
        about = {**_defined(self._state.definitions, flow), **self._state.failed[flow]}
        return present({**found.attributes, **about, "failure.will_retry": False})

    def _settle(self, operation: str, status: str) -> None:
        if self._state.commands.get(operation) == "start_run":
            self._state.status, self.is_new = status, True


def _without_run(last: PipelineDefinition) -> tuple[str, dict[str, AttributeValue]]:
    """Return the cause and the attributes of a failure in Python, between two commands.

    The client does not report the exception to Spark, so the last definition that it has sent is the only evidence.
    """
    attributes: dict[str, AttributeValue | None] = {}
    where = f"the definitions, after that of {last.title}" if last.title else "the definitions"
    if last.needs_flow:
        where = f"the function of {last.title}"
        attributes = {_DATASET: last.dataset, _LOCATION: last.place or None}
    return f"an error in {where}; the command's output contains the error", present(attributes)


def _defined(definitions: Definitions, flow: str) -> dict[str, AttributeValue]:
    """Return a flow, its data set and the line of its definition, as attributes."""
    place = definitions.place(flow) or None
    return present({FLOW: flow, _DATASET: definitions.dataset(flow), _LOCATION: place})


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
