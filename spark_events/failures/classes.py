"""The classes of failures: whether a rerun of the same work may succeed, and who has to act."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["CLASSES", "FIRM", "UNKNOWN", "Evidence", "FailureClass", "Label"]

Label = Literal["USER", "SYSTEM"]
#: What decided the class: Spark's error condition, a type in the chain of causes, an exit code or a reason of a cluster
#: manager, a message, or the place (the user's own code raised the error with its own ``raise``).
Evidence = Literal["condition", "type", "exit-code", "text", "place"]
#: Kinds of evidence that are firm enough to advise for or against a rerun.
FIRM: Final[frozenset[str]] = frozenset({"condition", "type", "exit-code"})
UNKNOWN: Final = "UNKNOWN"


class FailureClass(NamedTuple):
    """Facts about a class.

    Attributes:
        retry: whether the same work may succeed without a change.
        label: who has to act: the author of the program (code, query, data) or the operator; None if nobody has to.
    """

    retry: bool
    label: Label | None


CLASSES: Final = {
    "DRIVER_OUT_OF_MEMORY": FailureClass(False, "SYSTEM"),
    "EXECUTOR_OUT_OF_MEMORY": FailureClass(False, "SYSTEM"),
    "PYTHON_OUT_OF_MEMORY": FailureClass(False, "SYSTEM"),
    "DISK_FULL": FailureClass(False, "SYSTEM"),
    "EXECUTOR_LOST": FailureClass(True, "SYSTEM"),
    "FETCH_FAILURE": FailureClass(True, "SYSTEM"),
    "BROADCAST_TIMEOUT": FailureClass(True, "SYSTEM"),
    "PYTHON_WORKER_CRASHED": FailureClass(True, "SYSTEM"),
    "EXTERNAL_SYSTEM": FailureClass(True, "SYSTEM"),
    "PERMISSION": FailureClass(False, "SYSTEM"),
    "MISSING_FILE_OR_TABLE": FailureClass(False, "USER"),
    "SCHEMA_MISMATCH": FailureClass(False, "USER"),
    "DATA_ERROR": FailureClass(False, "USER"),
    "MISSING_DEPENDENCY": FailureClass(False, "SYSTEM"),
    "CONFIGURATION": FailureClass(False, "USER"),
    "USER_CODE": FailureClass(False, "USER"),
    "CANCELLED": FailureClass(False, None),
}
