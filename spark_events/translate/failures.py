"""What went wrong, read out of Spark's exception texts.

A Python error reaches Spark as a traceback inside the message of a ``PythonException`` inside the
message of a ``SparkException``; what a person wants to read is its last line. The idea of a root cause
with a place is Flink's exception history; the texts are Spark's.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Sequence

from spark_events.bridge.records import Failure
from spark_events.event import AttributeValue
from spark_events.translate.enrichers import FailureContext, FailureEnricher

__all__ = ["Diagnosis", "Diagnostics"]

_LOG = logging.getLogger(__name__)

MESSAGE_LIMIT = 4_096
SUMMARY_LIMIT = 300
#: OpenTelemetry's word for an error that has no type.
_NAMELESS = "_OTHER"

# All of Spark's own have an underscore; [ERROR] or [ORDERS] in a message is somebody else's.
_ERROR_CLASS = re.compile(r"\[(?=[A-Z0-9]*_)([A-Z_][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ")
# These only say that something else, which stands behind them, went wrong.
_WRAPPERS = re.compile(r"TASK_WRITE_FAILED|STREAM_FAILED|_LEGACY_ERROR_TEMP_\d+")
_SQL_STATE = re.compile(r"SQLSTATE: ([0-9A-Z]{5})")
_JAVA_HEADER = re.compile(r"((?:[A-Za-z_$][\w$]*\.)+[A-Z][\w$]*)(?:: (.*))?", re.DOTALL)
_JAVA_FRAME = re.compile(r"^\s+(?:at \S+\(|\.\.\. \d+ more)", re.MULTILINE)
_CAUSED_BY = "\nCaused by: "
_ABORTED = "Job aborted due to stage failure: "
_TASK_FAILURE = re.compile(
    r"most recent failure: .*?\(TID \d+[^)]*\)(?: \([^)]*\))?: (.*)|Most recent failure reason:\s+(.*)", re.DOTALL
)
_LOST_EXECUTOR = re.compile(r"(ExecutorLostFailure) (\(executor .*)", re.DOTALL)
_JAVA_CALL = re.compile(r"^\s+at (?:\S+/)?([\w$.]+)\((.*?)\)$", re.MULTILINE)
_PLATFORM = re.compile(
    r"(?:java|javax|jdk|sun|com\.sun|scala|py4j|org\.apache|org\.sparkproject|io\.netty|com\.fasterxml|io\.sparkevents)\."
)

_TRACEBACK = "Traceback (most recent call last):"
_GROUP = f"Exception Group {_TRACEBACK}"
_MARGIN = re.compile(r"^ *[|+](?:-\+)?-* ?", re.MULTILINE)
_PYTHON_FRAME = re.compile(r'^\s*File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
_PYTHON_ERROR = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (.*))?$", re.MULTILINE)
_DIRECT_CAUSE = "The above exception was the direct cause of the following exception:"
# Frames between Spark and the user's function: of PySpark, of what is installed, and of this package, as it is shipped
# to executors, and elsewhere by its folders: the user may have a folder of its name.
_MACHINERY = re.compile(
    r"[/\\](?:pyspark|py4j|pyspark\.zip|py4j-[\d.]+-src\.zip|spark_events-\d[^/\\]*\.zip)[/\\]|/lib/python\d"
    r"|[/\\]spark_events[/\\](?:"
    r"(?:bridge|cli|config|dispatch|enrich|event|jars|reporters|session|translate)[/\\]"
    r"|(?:__init__|_version|conversation|errors|loading|loops|pipeline|sidecar)\.py$)"
)


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known of a failure.

    Attributes:
        error_type: Spark's error class, else the type of the root cause.
        summary: the root cause and its place, in one line.
        cancelled: nothing is broken: somebody has cancelled it.
        attributes: all of it, as event attributes.
    """

    error_type: str
    summary: str
    cancelled: bool
    attributes: dict[str, AttributeValue]


@dataclasses.dataclass(frozen=True, slots=True)
class _Cause:
    type: str
    message: str
    place: str | None = None
    #: What was raised at that place, and not in what was called from there.
    is_own: bool = True

    def __str__(self) -> str:
        return ": ".join(part for part in (self.type, self.message) if part)


class Diagnostics:
    """Reads failures, and labels them.

    Args:
        enrichers: each may add labels to a failure, which become ``failure.label.<key>`` attributes.
        trace_limit: stack traces are cut to so many characters.
    """

    def __init__(self, enrichers: Sequence[FailureEnricher] = (), trace_limit: int = 16_384) -> None:
        self._enrichers = tuple(enrichers)
        self._trace_limit = trace_limit

    def of(self, failure: Failure) -> Diagnosis:
        """A failure whose exceptions the shim has seen themselves."""
        told = [(link.error_class, link.sql_state) for link in failure.chain if link.error_class]
        deciding = [link for link in told if not _WRAPPERS.fullmatch(link[0])]
        error_class, sql_state = next(iter(deciding or told), (None, None))
        text = failure.trace
        if not text and failure.chain:
            text = f"{failure.chain[0].type}: {failure.chain[0].message or ''}"
        return self.of_text(text, error_class, sql_state)

    def of_text(self, text: str, error_class: str | None = None, sql_state: str | None = None) -> Diagnosis:
        """A failure of which there is only what Java prints of it.

        Args:
            text: type, message, frames and causes, as ``printStackTrace`` writes them.
            error_class: Spark's error class, where Spark tells it beside the text.
            sql_state: the SQLSTATE, likewise.
        """
        outermost = _cause(text)
        root = _python_root(text) or _java_root(text)
        error_class = error_class or _error_class(text)
        if sql_state is None and (state := _SQL_STATE.search(text)):
            sql_state = state[1]
        trace, trace_cut = _cut(text, self._trace_limit)
        message, _ = _cut(outermost.message, MESSAGE_LIMIT)
        root_text, _ = _cut(str(root), MESSAGE_LIMIT)
        error_type = error_class or root.type or _NAMELESS
        attributes: dict[str, AttributeValue] = {
            "error.type": error_type,
            "exception.type": outermost.type or root.type or _NAMELESS,
            "exception.message": message,
            "exception.stacktrace": trace,
            "failure.root_cause": root_text,
        }
        if trace_cut:
            attributes["exception.stacktrace.cut"] = True
        if root.place is not None:
            attributes["failure.location"] = root.place
        if sql_state is not None:
            attributes["error.sql_state"] = sql_state
        context = FailureContext(
            text, root.type, root.message, error_class, root.place is not None and root.is_own, sql_state
        )
        self._label(context, attributes)
        place = f" ({root.place})" if root.place else ""
        cancelled = _is_cancelled(text, error_class)
        return Diagnosis(error_type, _one_line(str(root)) + place, cancelled, attributes)

    def _label(self, context: FailureContext, attributes: dict[str, AttributeValue]) -> None:
        for enricher in self._enrichers:
            try:
                labels = enricher.enrich(context)
                attributes.update({f"failure.label.{key}": str(value) for key, value in labels.items()})
            except (Exception, SystemExit) as error:
                # One that wants to end the process must not end the events of the whole application.
                _LOG.warning("failure enricher %s failed: %r", type(enricher).__name__, error)


def _error_class(text: str) -> str | None:
    """The first ``[ERROR_CLASS]`` that does not only wrap what is behind it."""
    found = [match[1] for match in _ERROR_CLASS.finditer(text)]
    return next((name for name in found if not _WRAPPERS.fullmatch(name)), found[0] if found else None)


def _is_cancelled(text: str, error_class: str | None) -> bool:
    first_line = text.partition("\n")[0]
    return error_class == "SPARK_JOB_CANCELLED" or bool(
        re.search(r"Job \d+ cancelled|cancelled part of cancelled job group", first_line)
    )


def _cause(text: str) -> _Cause:
    """The exception that a trace begins with: everything up to its first frame."""
    frame = _JAVA_FRAME.search(text)
    header = text[: frame.start()] if frame else text.partition(_CAUSED_BY)[0]
    match = _JAVA_HEADER.match(header.strip())
    if match is None:
        # Some reasons are told without the exception's type; this one has only one.
        return _Cause("org.apache.spark.SparkException" if header.startswith(_ABORTED) else "", header.strip())
    return _Cause(match[1], (match[2] or "").strip())


def _java_root(text: str) -> _Cause:
    if _CAUSED_BY in text:
        section = text.rpartition(_CAUSED_BY)[2]
        root = _cause(section)
    else:
        section = text
        root = _cause(text)
        in_task = _TASK_FAILURE.search(root.message)
        if in_task is not None:
            inner = (in_task[1] or in_task[2]).partition("\nDriver stacktrace:")[0]
            lost = _LOST_EXECUTOR.match(inner)
            innermost = _Cause(lost[1], lost[2].strip()) if lost else _cause(inner)
            root = innermost if innermost.type else root
    return _Cause(root.type, root.message, _java_place(section))


def _java_place(section: str) -> str | None:
    """The innermost call of the user's own code, if Spark had called it."""
    for call in _JAVA_CALL.finditer(section):
        if call[1].startswith("org.apache.spark."):
            return None
        if not _PLATFORM.match(call[1]):
            return f"{call[2]} in {call[1]}"
    return None


def _python_root(text: str) -> _Cause | None:
    """The error that a Python traceback ends with; of a chain, the one that caused the others."""
    if _GROUP in text:
        # Each exception of a group stands in a margin of its own.
        text = _MARGIN.sub("", text)
    # Python tells the cause first; a worker's traceback stands inside the driver's, so the last is the inner one.
    _, found, traceback = text.partition(_DIRECT_CAUSE)[0].rpartition(_TRACEBACK)
    if not found:
        return None
    frames = list(_PYTHON_FRAME.finditer(traceback))
    error = _PYTHON_ERROR.search(traceback, frames[-1].end() if frames else 0)
    if error is None:
        return None
    own = [frame for frame in frames if frame.start() < error.start() and not _MACHINERY.search(frame[1])]
    place = f"{own[-1][1]}:{own[-1][2]} in {own[-1][3]}" if own else None
    if error[1].endswith("Py4JJavaError"):
        # Python has called the JVM: what went wrong there stands behind the sentence that something did.
        _, found, java = traceback[error.end() :].partition("\n: ")
        if found and (inner := _java_root(java)).type:
            return _Cause(inner.type, inner.message, place, is_own=False)
    return _Cause(error[1], error[2] or "", place)


def _cut(text: str, limit: int) -> tuple[str, bool]:
    """Keeps the beginning and a quarter of the limit for the end, where causes stand."""
    if len(text) <= limit:
        return text, False
    tail = limit // 4
    head = limit - tail
    return f"{text[:head]}\n... [{len(text) - limit} characters cut] ...\n{text[-tail:]}", True


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SUMMARY_LIMIT else line[: SUMMARY_LIMIT - 1] + "…"
