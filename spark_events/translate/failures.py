"""Failures as event attributes: type, message, root cause, location and labels."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Mapping, Sequence

from spark_events.event import AttributeValue
from spark_events.records.cancellation import is_cancellation
from spark_events.records.types import Failure, MemoryPeaks
from spark_events.translate.data_places import place_of_data
from spark_events.translate.draft import present
from spark_events.translate.enrichers import FailureContext, FailureEnricher
from spark_events.translate.failure_classes import decide
from spark_events.translate.incidents.fingerprint import fingerprint, short_location
from spark_events.translate.recommendations import recommended
from spark_events.translate.root_causes import Cause, causes, other_members, outermost, root_cause
from spark_events.translate.user_code import UserCode

__all__ = ["Diagnosis", "Diagnostics"]

_LOG = logging.getLogger(__name__)

MESSAGE_LIMIT = 4_096
SUMMARY_LIMIT = 300
_SOURCE_LIMIT = 200
#: Value of ``error.type`` that OpenTelemetry prescribes for an error without a known type.
_NAMELESS = "_OTHER"
#: Addition to a summary if a rerun may do harm.
_HARM = "the commit may have succeeded, so a rerun may write the rows a second time"
_PYTHON = "Traceback (most recent call last):"
_PYTHON_EXCEPTION = ".PythonException"

# Spark's error classes contain an underscore. A word such as [ERROR] or [ORDERS] in a message is not an error class.
_ERROR_CLASS = re.compile(r"\[(?=[A-Z0-9]*_)([A-Z_][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ")
# Error classes that only wrap another error; the message of the wrapped error follows.
_WRAPPERS = re.compile(r"TASK_WRITE_FAILED|STREAM_FAILED|FAILED_READ_FILE\.NO_HINT|_LEGACY_ERROR_TEMP_\d+")
_SQL_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnosis:
    """Analysis of a failure.

    Attributes:
        summary: the root cause and its location, in one line.
        cancelled: whether the user or Spark cancelled the job; a cancellation needs no action.
        is_fetch_failure: whether a task could not fetch shuffle output.
        attributes: the whole analysis, as event attributes.
    """

    summary: str
    cancelled: bool
    is_fetch_failure: bool
    attributes: dict[str, AttributeValue]

    @property
    def error_type(self) -> str:
        """Spark's error class, else the type of the root cause."""
        return str(self.attributes["error.type"])

    @property
    def root_cause(self) -> str:
        """Type and message of the root cause."""
        return str(self.attributes["failure.root_cause"])

    def with_error_type(self, error_type: str) -> Diagnosis:
        """Return a copy of this analysis with another error type."""
        return dataclasses.replace(self, attributes={**self.attributes, "error.type": error_type})


class Diagnostics:
    """Analyzer of failures, which also labels them.

    Args:
        enrichers: objects that may add labels; each label becomes an attribute ``failure.label.<key>``.
        trace_limit: maximum length of a stack trace, in characters.

    Attributes:
        code: recognises the user's code in a stack trace; set when the application starts.
        settings: Spark's settings; set when the application starts.
        peaks: memory that Spark has measured; set when a job or stage fails.
    """

    def __init__(self, enrichers: Sequence[FailureEnricher] = (), trace_limit: int = 16_384) -> None:
        self._enrichers = tuple(enrichers)
        self._trace_limit = trace_limit
        self.code = UserCode()
        self.settings: Mapping[str, str] = {}
        self.peaks = MemoryPeaks()

    def of(self, failure: Failure) -> Diagnosis:
        """Analyse a failure from the chain of exceptions that the shim has read."""
        classes = [(link.error_class, link.sql_state) for link in failure.chain if link.error_class]
        deciding = [link for link in classes if not _WRAPPERS.fullmatch(link[0])]
        error_class, sql_state = next(iter(deciding or classes), (None, None))
        text = failure.trace
        if not text and failure.chain:
            text = f"{failure.chain[0].type}: {failure.chain[0].message or ''}"
        # A trace that begins with a Python traceback lacks Java's header line, and a Python message may contain lines
        # that look like Java frames; the chain contains the exception's type and message.
        head = failure.chain[0] if failure.chain else None
        python = head if head and (text.startswith(_PYTHON) or head.type.endswith(_PYTHON_EXCEPTION)) else None
        first = None if python is None else Cause(python.type, python.message or "")
        return self.of_text(text, error_class, sql_state, first)

    def of_text(
        self,
        text: str,
        error_class: str | None = None,
        sql_state: str | None = None,
        first: Cause | None = None,
    ) -> Diagnosis:
        """Analyse a failure known only as Java's printed stack trace.

        Args:
            text: type, message, frames and causes, as ``printStackTrace`` writes them.
            error_class: Spark's error class, if Spark reports it separately from the trace.
            sql_state: the SQLSTATE, if Spark reports it separately from the trace.
            first: the outermost exception, if the caller knows it; otherwise it is parsed from the trace.
        """
        first = first or outermost(text)
        root = root_cause(text, self.code)
        error_class = error_class or _error_class(text)
        # Search for the SQLSTATE after its error class, because the SQLSTATE of a wrapping error may come earlier in
        # the trace.
        start = max(text.find(f"[{error_class}] "), 0)
        if sql_state is None and (state := _SQL_STATE.search(text, start)):
            sql_state = state[1]
        is_fetch_failure = root.type.endswith("FetchFailedException")
        # The causes of a fetch failure have error classes that describe only the connection.
        error_type = (None if is_fetch_failure else error_class) or root.type or _NAMELESS
        # A message may look like a very long type, and the fingerprint's time is quadratic in the length of the type.
        kind = (root.type or error_type)[:SUMMARY_LIMIT]
        cancelled = _is_cancelled(text, error_class)
        in_user_code = root.location is not None and root.is_own
        context = FailureContext(
            text, root.type, root.message, error_class, in_user_code, sql_state, cancelled, root.is_raised
        )
        conditions = [(error_class, sql_state)] if error_class else []
        conditions += [(name, None) for name in _error_classes(text)]
        decision = decide(context, conditions, causes(text, root), other_members(text))
        context = dataclasses.replace(context, failure_class=decision.failure_class, evidence=decision.evidence)
        attributes = present(
            {
                "error.type": error_type,
                "exception.type": first.type or root.type or _NAMELESS,
                "exception.message": _cut(first.message, MESSAGE_LIMIT),
                "exception.stacktrace": _cut(text, self._trace_limit),
                "failure.root_cause": _cut(str(root), MESSAGE_LIMIT),
                "failure.fingerprint": fingerprint(kind, root.message, root.location),
                "failure.stacktrace_cut": True if len(text) > self._trace_limit else None,
                "failure.location": root.location,
                "failure.source_line": _one_line(root.source_line, _SOURCE_LIMIT) or None,
                "failure.sql_state": sql_state,
                "failure.class": decision.failure_class,
                "failure.evidence": decision.evidence,
                "failure.retry_useful": decision.retry_useful,
            }
        )
        attributes.update(place_of_data(decision.failure_class, text))
        if advice := recommended(decision.failure_class, text, self.settings, self.peaks):
            attributes.update(advice.attributes)
        self._label(context, attributes)
        # Use only the file and line in the summary; the attribute failure.location also contains the folder and the
        # function.
        location = f" ({short_location(root.location).partition(' in ')[0]})" if root.location else ""
        harm = "" if decision.rerun else f"; {_HARM}"
        return Diagnosis(_one_line(str(root)) + location + harm, cancelled, is_fetch_failure, attributes)

    def _label(self, context: FailureContext, attributes: dict[str, AttributeValue]) -> None:
        for enricher in self._enrichers:
            try:
                labels = enricher.enrich(context)
                attributes.update({f"failure.label.{key}": str(value) for key, value in labels.items()})
            except (Exception, SystemExit) as error:
                # A failure enricher may call sys.exit(), which must not end the translation for the whole application.
                _LOG.warning(
                    "failure enricher %s failed, so the event lacks its labels; correct its code: %r",
                    type(enricher).__name__,
                    error,
                )


def _error_class(text: str) -> str | None:
    """Return the first ``[ERROR_CLASS]``, skipping classes that only wrap another error."""
    found = _error_classes(text)
    return next((name for name in found if not _WRAPPERS.fullmatch(name)), found[0] if found else None)


def _error_classes(text: str) -> list[str]:
    return [match[1] for match in _ERROR_CLASS.finditer(text)]


def _is_cancelled(text: str, error_class: str | None) -> bool:
    return error_class == "SPARK_JOB_CANCELLED" or is_cancellation(text)


def _cut(text: str, limit: int) -> str:
    """Shorten a long string by removing its middle.

    A quarter of the limit is used for the last characters, which contain the causes.
    """
    if len(text) <= limit:
        return text
    tail = limit // 4
    head = limit - tail
    return f"{text[:head]}\n... [{len(text) - limit} characters cut] ...\n{text[-tail:]}"


def _one_line(text: str, limit: int = SUMMARY_LIMIT) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
