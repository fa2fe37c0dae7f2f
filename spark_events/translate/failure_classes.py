"""The class of a failure, decided by evidence: condition and exit code, then types, then texts, then the place."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from spark_events.failures.classes import CLASSES, FIRM, UNKNOWN, Evidence
from spark_events.failures.conditions import SILENT_CONDITION, class_of_condition
from spark_events.failures.exit_codes import class_of_exit
from spark_events.failures.kinds import MISTAKE, OUT_OF_MEMORY, ErrorKind
from spark_events.failures.libraries.platform import ANALYSIS_ERRORS, JVM_MISTAKES
from spark_events.failures.registry import of_exception_text
from spark_events.failures.texts import class_of_text
from spark_events.translate.enrichers import FailureContext
from spark_events.translate.python_errors import TRACEBACK
from spark_events.translate.root_causes import Cause

__all__ = ["Decision", "decide"]

_BROADCAST = re.compile(r"Could not execute broadcast|Futures timed out.{0,300}\n(?:.*\n){0,9}.*BroadcastExchange")
_IN_TASK = re.compile(r"Lost task|TaskRunner\.run|Executor|executor \d")
_LOCAL = re.compile(r"executor driver")
_JVM_TYPE = re.compile(r"(?:java|javax|scala|org|com|io|net)\.|ExecutorLostFailure|$")
_FRAME = re.compile(r"^[ \t]+(?:at \S+\(.*|\.\.\. \d+ more)$\n?", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Class of a failure.

    Attributes:
        evidence: what decided; None if nothing did.
        rerun: whether the class may advise for or against a rerun; False if a rerun may do harm.
    """

    failure_class: str = UNKNOWN
    evidence: Evidence | None = None
    rerun: bool = True

    @property
    def retry_useful(self) -> bool | None:
        """Whether a rerun may succeed without a change; None without firm evidence."""
        facts = CLASSES.get(self.failure_class)
        return facts.retry if facts and self.rerun and self.evidence in FIRM else None

    @property
    def label(self) -> str | None:
        """Who has to act: USER or SYSTEM; None if nobody has to, or if it is unknown."""
        facts = CLASSES.get(self.failure_class)
        return facts.label if facts else None


def decide(
    failure: FailureContext,
    conditions: Sequence[tuple[str, str | None]],
    chain: Sequence[Cause],
    members: Sequence[Cause] = (),
) -> Decision:
    """Return the class of a failure, and the evidence for it.

    Args:
        failure: the whole text and the root cause.
        conditions: Spark's error conditions with their SQLSTATEs, the outermost first.
        chain: the causes, the root cause first.
        members: the other exceptions of a group. If one is of another kind, the class is unknown: a rerun that helps
            against one of them may not help against the other.
    """
    if failure.cancelled:
        return Decision("CANCELLED", "condition" if failure.error_class else "text")
    if len({_class_of_type(cause) for cause in (*chain[:1], *members)}) > 1:
        return Decision()
    decision = _by_condition(failure, conditions) or _by_type(failure, chain) or _by_text(failure)
    if decision is None:
        return Decision("USER_CODE", "place") if failure.raised_by_user else Decision()
    name = decision.failure_class
    if name == "EXTERNAL_SYSTEM" and _BROADCAST.search(failure.text):
        name = "BROADCAST_TIMEOUT"
    if name == OUT_OF_MEMORY and TRACEBACK in failure.text and not _JVM_TYPE.match(failure.root_type):
        name = "PYTHON_OUT_OF_MEMORY"
    elif name == OUT_OF_MEMORY:
        in_executor = _IN_TASK.search(failure.text) and not _LOCAL.search(failure.text)
        is_of_driver = not in_executor or "maxResultSize" in failure.root_message
        name = "DRIVER_OUT_OF_MEMORY" if is_of_driver else "EXECUTOR_OUT_OF_MEMORY"
    return dataclasses.replace(decision, failure_class=name)


def _class_of_type(cause: Cause) -> str | None:
    kind = of_exception_text(cause.type, cause.message)
    return None if kind is None else kind.failure_class


def _by_condition(failure: FailureContext, conditions: Sequence[tuple[str, str | None]]) -> Decision | None:
    root = f"{failure.root_type}: {failure.root_message}"
    name = class_of_exit(root) or class_of_exit(failure.root_message)
    if name is not None:
        return Decision(name, "exit-code")
    if failure.root_type.endswith("FetchFailedException"):
        # The conditions of its causes describe only the connection.
        return None
    found = (class_of_condition(condition, state) for condition, state in conditions)
    name = next((name for name in found if name not in (None, SILENT_CONDITION)), None)
    return None if name is None else Decision(name, "condition")


def _by_type(failure: FailureContext, chain: Sequence[Cause]) -> Decision | None:
    kinds = [of_exception_text(cause.type, cause.message) for cause in chain]
    if kinds and kinds[0] is None and failure.root_type in JVM_MISTAKES and failure.in_user_code:
        kinds[0] = MISTAKE
    telling = [
        kind
        for position, kind in enumerate(kinds)
        # A programming error that was only being handled, or that wraps the root cause, is not the cause.
        if kind is not None and kind.failure_class is not None and (position == 0 or not _is_mistake(kind))
    ]
    if not telling:
        return None
    return Decision(telling[0].failure_class or UNKNOWN, "type", all(kind.rerun for kind in telling))


def _is_mistake(kind: ErrorKind) -> bool:
    return kind.failure_class == MISTAKE.failure_class


def _by_text(failure: FailureContext) -> Decision | None:
    root = f"{failure.error_class or ''} {failure.root_type}: {failure.root_message}"
    name = class_of_text(root)
    if name is None and not failure.in_user_code:
        name = class_of_text(_FRAME.sub("", failure.text))
    if name is not None:
        return Decision(name, "text")
    is_analysis = ANALYSIS_ERRORS.fullmatch(failure.root_type) is not None
    return Decision(MISTAKE.failure_class or UNKNOWN, "type") if is_analysis else None
