"""The root cause of a failure, parsed from Java's and Python's stack traces.

A Python error reaches Spark as a traceback in the message of a ``PythonException``. That message is part of the message
of a ``SparkException``. Like Flink's exception history, this module finds a root cause with a location.
"""

from __future__ import annotations

import dataclasses
import re

from spark_events.translate.python_errors import Frame, PythonError, python_errors
from spark_events.translate.user_code import UserCode

__all__ = ["ABORTED", "Cause", "causes", "outermost", "root_cause"]

#: Beginning of the failure message of a job whose stage failed.
ABORTED = "Job aborted due to stage failure: "

# An exception's message may be long and contain anything, so each pattern must take linear time. For example,
# use `[ \t]` at the beginning of a line, because `\s` also matches all following empty lines.
# Hadoop prints the exception of a server as ``RemoteException(type): message``.
_JAVA_HEADER = re.compile(
    r"(?:[\w.]+\.RemoteException\((?=[\w.$]+\): ))?((?:[A-Za-z_$][\w$]*\.)+[A-Z][\w$]*)\)?(?:: (.*))?", re.DOTALL
)
_JAVA_FRAME = re.compile(r"^[ \t]+(?:at \S+\(|\.\.\. \d+ more)", re.MULTILINE)
_SPARK_FRAME = re.compile(r"^[ \t]+at org\.apache\.spark\.", re.MULTILINE)
_PYTHON_EXCEPTION = re.compile(r"(?:\w+\.)+PythonException: ")
# Require a frame, or the marker of a truncated trace, before ``Caused by:``, because a message may contain a line that
# begins with these words.
_CAUSED_BY = re.compile(
    r"^(?:[ \t]+(?:at \S.*|\.\.\. \d+ .*)|\.\.\. \[\d+ characters cut\] \.\.\.[ \t]*)\n(?:\s*\n)?Caused by: ",
    re.MULTILINE,
)
_FRAMELESS_CAUSE = "\nCaused by: "
_SPARK_EXCEPTION = "org.apache.spark.SparkException"
_TASK_FAILURE = re.compile(
    r"most recent failure: .{0,99}?\(TID \d[^)]{0,99}\)(?: \([^)]{0,300}\))?: (.*)|Most recent failure reason:\s+(.*)",
    re.DOTALL,
)
_DRIVER_STACK = "\nDriver stacktrace:"
_LOST_EXECUTOR = re.compile(r"(ExecutorLostFailure) (\(executor .*)", re.DOTALL)
_JAVA_CALL = re.compile(r"^[ \t]+at (?:\S+/)?([\w$.]+)\(([^()\n]*)\)$", re.MULTILINE)
# For a fetch failure, use the exception that caused it, because the message of the fetch failure itself is less
# informative.
_FETCH_FAILED = re.compile(r"^(?:Caused by: )?((?:\w+\.)+\w*FetchFailedException)(?:: (.*))?$", re.MULTILINE)

# A crashed worker closes its socket, and Java reports the end of the socket's stream as the cause.
_WORKER_CRASHED = re.compile(r"(?:\A|^(?:.*?: )?((?:\w+\.)+\w+): )(Python worker exited unexpectedly.*)$", re.MULTILINE)
_HINT = re.compile(r"\. Consider setting .*")
# Format of a frame that faulthandler prints.
_CRASH_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Cause:
    """One exception of a chain.

    Attributes:
        location: the last line of the user's own code.
        is_own: whether this line, or a call from this line, raised the exception.
        is_raised: whether the user's own code raised the exception with its own ``raise``.
        source_line: the text of that line, if Python printed it; otherwise "".
    """

    type: str
    message: str
    location: str | None = None
    is_own: bool = True
    is_raised: bool = False
    source_line: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.type, self.message) if part)


def root_cause(text: str, code: UserCode) -> Cause:
    """Return the exception that was raised first, with its location in the user's own code."""
    return _worker_crash(text, code) or _python_root(python_errors(text), code) or _java_root(text, code)


def causes(text: str, root: Cause) -> list[Cause]:
    """Return the chain of causes, the root cause first, for the decision about the class.

    An exception that was only being handled when another one was raised comes last.
    """
    errors = python_errors(text)
    chain = [Cause(one.type, one.whole_message) for one in reversed(errors)]
    # The root cause decides first. Its whole message may contain a code in a further line.
    chain.sort(key=lambda one: one.type != root.type)
    if not errors or root.type != chain[0].type:
        chain.insert(0, root)
    # A Python message may quote a Java trace. Java's own causes follow only the error of a call into the JVM.
    java = text if not errors else next((one.rest for one in errors if one.type.endswith("Py4JJavaError")), "")
    sections = [java, *(java[found.end() :] for found in _CAUSED_BY.finditer(java))]
    chain += [outermost(section) for section in reversed(sections) if section]
    # Only the exception's type and text matter; the same exception must not be listed twice.
    return list(dict.fromkeys(Cause(one.type, one.message) for one in chain))


def other_members(text: str) -> list[Cause]:
    """Return the root causes of the exceptions of a group, except of the last one, which is the root cause."""
    errors = python_errors(text)
    firsts = [index for index, error in enumerate(errors) if error.link == "member"]
    found = [errors[_root_index(errors[:first])] for first in firsts]
    return [Cause(one.type, one.whole_message) for one in found]


def outermost(text: str) -> Cause:
    """Return the outermost exception of a trace: the text before the first frame."""
    # The message of a Python error may quote frames of another program.
    frame = (_SPARK_FRAME if _PYTHON_EXCEPTION.match(text) else _JAVA_FRAME).search(text)
    header = text[: frame.start()] if frame else text.partition(_FRAMELESS_CAUSE)[0]
    match = _JAVA_HEADER.match(header.strip())
    if match is None:
        # Some texts lack the exception's type, but Spark always raises this message as a SparkException.
        return Cause(_SPARK_EXCEPTION if header.startswith(ABORTED) else "", header.strip())
    return Cause(match[1], (match[2] or "").strip())


def _java_root(text: str, code: UserCode) -> Cause:
    fetch = _FETCH_FAILED.search(text)
    section = _last_cause(text)
    if section is not None:
        root = outermost(section)
    else:
        section = text
        root = outermost(text)
        in_task = _TASK_FAILURE.search(root.message)
        if in_task is not None:
            inner = (in_task[1] or in_task[2]).partition(_DRIVER_STACK)[0]
            lost = _LOST_EXECUTOR.match(inner)
            innermost = Cause(lost[1], lost[2].strip()) if lost else outermost(inner)
            root = innermost if innermost.type else root
    if fetch is not None:
        return Cause(fetch[1], fetch[2] or ("" if root.type == fetch[1] else str(root)))
    location, is_raised = _java_location(section.partition(_DRIVER_STACK)[0], code)
    return Cause(root.type, root.message, location, is_raised=is_raised)


def _last_cause(text: str) -> str | None:
    found = list(_CAUSED_BY.finditer(text))
    if found:
        return text[found[-1].end() :]
    if _FRAMELESS_CAUSE in text and not _JAVA_FRAME.search(text):
        return text.rpartition(_FRAMELESS_CAUSE)[2]
    return None


def _java_location(section: str, code: UserCode) -> tuple[str | None, bool]:
    """Return the innermost call in the user's own code, and whether it raised the exception itself.

    The location is None if Spark did not call that code.
    """
    for number, call in enumerate(_JAVA_CALL.finditer(section)):
        if code.is_own_class(call[1]):
            return f"{call[2]} in {call[1]}", number == 0
        if call[1].startswith("org.apache.spark."):
            break
    return None, False


def _worker_crash(text: str, code: UserCode) -> Cause | None:
    """Describe a crashed Python worker, with the location if faulthandler printed a stack."""
    crashed = _WORKER_CRASHED.search(text)
    if crashed is None:
        return None
    end = _JAVA_FRAME.search(text, crashed.end())
    frames = list(_CRASH_FRAME.finditer(text, crashed.end(), end.start() if end else len(text)))
    # faulthandler prints the innermost frame first.
    frames.reverse()
    index = code.innermost([frame[1] for frame in frames])
    location = None if index is None else "{}:{} in {}".format(*frames[index].groups())
    message = _HINT.sub("", crashed[2]).strip().removesuffix(":")
    return Cause(crashed[1] or _SPARK_EXCEPTION, message, location, is_own=False)


def _python_root(errors: list[PythonError], code: UserCode) -> Cause | None:
    """Return the first cause of the errors of a traceback; the location is the last own line of the whole text."""
    if not errors:
        return None
    root = errors[_root_index(errors)]
    frames = [frame for error in errors for frame in error.frames]
    own = code.innermost([frame.file for frame in frames])
    location, source = None, ""
    if own is not None:
        location, source = f"{frames[own].file}:{frames[own].line} in {frames[own].function}", frames[own].source
    if root.type.endswith("Py4JJavaError"):
        # For an error from a call into the JVM, the Java trace follows Python's error line.
        _, found, java = root.rest.partition("\n: ")
        if found and (inner := _java_root(java, code)).type:
            return Cause(inner.type, inner.message, location, is_own=False, source_line=source)
    return Cause(root.type, root.message, location, is_raised=_is_raised(root, code), source_line=source)


def _root_index(errors: list[PythonError]) -> int:
    index = len(errors) - 1
    # A cause without a traceback only summarises the exception that follows, such as an EnrichmentError.
    while errors[index].link == "cause" and errors[index - 1].frames:
        index -= 1
    return index


def _is_raised(error: PythonError, code: UserCode) -> bool:
    """Return whether the last frame is the user's own, and raised the error with its own ``raise``.

    Without a source line (a notebook, a zip), this is assumed for the program's own exception types: the standard
    library does not raise those.
    """
    last: Frame | None = error.frames[-1] if error.frames else None
    if last is None or code.innermost([last.file]) is None:
        return False
    return last.raises or (not last.source and "." in error.type)
