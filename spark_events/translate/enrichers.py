"""Labels of failures, for example whether the author or the operator has to act.

The interface follows Flink's FailureEnricher.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Protocol

__all__ = ["FailureContext", "FailureEnricher", "TypeEnricher"]


@dataclasses.dataclass(frozen=True, slots=True)
class FailureContext:
    """Failure, as passed to enrichers.

    Attributes:
        text: the whole exception, as Java prints it.
        root_type: the type of the root cause, a Python or Java exception.
        root_message: the message of the root cause.
        error_class: Spark's error class, or None.
        in_user_code: whether the user's code, in Python or in the JVM, raised the root cause.
        sql_state: the SQLSTATE, or None.
        cancelled: whether the job was cancelled; a cancellation needs no action.
    """

    text: str
    root_type: str
    root_message: str
    error_class: str | None
    in_user_code: bool
    sql_state: str | None = None
    cancelled: bool = False


class FailureEnricher(Protocol):
    """Interface of failure enrichers."""

    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        """Return labels by key; each becomes an attribute ``failure.label.<key>``."""


# Errors about memory, disk space, open files and lost executors, from Spark, the JVM, Python and plugins such as RAPIDS
# and PyTorch.
_MEMORY_TYPE = re.compile(r"OutOfMemory|MemoryError|(?<![A-Z])OOM(?![a-z])|bad_alloc")
_RESOURCE = re.compile(
    r"OutOfMemory|MemoryError|\bbad_alloc\b|No space left on device|Too many open files|ExecutorLostFailure|FetchFailed"
    r"|Container killed by YARN|exceeding memory limits|OOMKilled|exit(?:ed with)? code:? (?:137|-9)\b"
    r"|CANNOT_ACQUIRE_MEMORY|Unable to acquire \d+ bytes of memory|UNABLE_TO_ACQUIRE_MEMORY"
)
_SYSTEM = re.compile(r"INTERNAL_ERROR|java\.lang\.(?:NoSuchMethod|NoClassDefFound|Linkage|StackOverflow)Error")
# SQLSTATE classes for causes outside the query: connection, resources, operator intervention, I/O, internal error.
_RESOURCE_STATES = ("53", "54")
_SYSTEM_STATES = ("08", "57", "58", "XX", "KD")
# The file's format or schema differs from what the query expects. Spark reports this failure as FAILED_READ_FILE, with
# the SQLSTATE of an I/O error.
_WRONG_FILE = re.compile(
    r"PARQUET_COLUMN_DATA_TYPE_MISMATCH|SchemaColumnConvertNotSupportedException|is not a Parquet file"
    r"|ParquetDecodingException|orc\.FileFormatException|SchemaEvolution\$IllegalEvolutionException"
    r"|InvalidAvroMagicException|Not an Avro data file|not in GZIP format|not a gzip file",
    re.IGNORECASE,
)
# Spark's error classes. An error class that no earlier rule covers is an error in the query or its data.
_USER_CLASS = re.compile(r"[A-Z0-9_.]+")


class TypeEnricher:
    """Enricher for ``failure.label.type``: whether the program's author or the operator has to act.

    ``USER`` (code, query or data), ``RESOURCE`` (memory, disk, executors) and ``SYSTEM`` are the labels of Flink's type
    enricher; ``CANCELLED`` needs no action.
    """

    def enrich(self, failure: FailureContext) -> Mapping[str, str]:
        """Return one label, ``type``."""
        return {"type": _type(failure)}


def _type(failure: FailureContext) -> str:
    if failure.cancelled:
        return "CANCELLED"
    if _MEMORY_TYPE.search(failure.root_type) or _RESOURCE.search(failure.text):
        return "RESOURCE"
    root = f"{failure.error_class} {failure.root_type}: {failure.root_message}"
    if failure.in_user_code or _WRONG_FILE.search(root):
        return "USER"
    state = (failure.sql_state or "")[:2]
    if state in _RESOURCE_STATES:
        return "RESOURCE"
    if state in _SYSTEM_STATES:
        return "SYSTEM"
    if _SYSTEM.search(failure.error_class or "") or _SYSTEM.search(failure.root_type):
        return "SYSTEM"
    if failure.error_class is not None and _USER_CLASS.fullmatch(failure.error_class):
        return "USER"
    return "SYSTEM"
