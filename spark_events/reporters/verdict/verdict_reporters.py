"""Reporters ``verdict`` and ``termination-message``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from spark_events.config import option, path
from spark_events.event import Event
from spark_events.reporters.reporter import Reporter
from spark_events.reporters.verdict.document import NEEDED, VerdictDraft, card_text, write

__all__ = ["TERMINATION_LOG", "TerminationMessageReporter", "VerdictReporter"]

#: File whose content Kubernetes shows as the message of a container that has ended.
TERMINATION_LOG = "/dev/termination-log"
#: Limit of Kubernetes, in bytes.
_MOST_BYTES = 4_096


@dataclasses.dataclass(frozen=True, slots=True)
class VerdictConfig:
    """Settings below ``events.reporter.<name>.`` for type ``verdict``."""

    path: str = option("path", path("the path of a file"), doc="File for the verdict, a JSON document.")


class VerdictReporter(Reporter):
    """Write one JSON document when the application ends, and again if its failure is reported after its end."""

    Config: ClassVar[type[VerdictConfig]] = VerdictConfig
    default_includes: ClassVar[str] = NEEDED

    def __init__(self, config: VerdictConfig) -> None:
        self._path = Path(config.path)
        self._verdict = VerdictDraft()

    def report(self, events: Sequence[Event]) -> None:
        # Apply every event first: `any` would stop at the first change.
        changes = [self._verdict.apply(event) for event in events]
        document = self._verdict.document()
        if any(changes) and document is not None:
            write(document, self._path)


@dataclasses.dataclass(frozen=True, slots=True)
class TerminationMessageConfig:
    """Settings below ``events.reporter.<name>.`` for type ``termination-message``."""

    path: str = option("path", path("the path of a file"), TERMINATION_LOG, doc="File that Kubernetes reads.")


class TerminationMessageReporter(Reporter):
    """Write the last failure to the file that Kubernetes reads when the container ends; at most 4,096 bytes.

    The file is a mount, so it is written in place. It is empty after a success.
    """

    Config: ClassVar[type[TerminationMessageConfig]] = TerminationMessageConfig
    default_includes: ClassVar[str] = NEEDED

    def __init__(self, config: TerminationMessageConfig | None = None) -> None:
        self._path = Path((config or TerminationMessageConfig()).path)
        self._verdict = VerdictDraft()
        self._written = ""

    def report(self, events: Sequence[Event]) -> None:
        changes = [self._verdict.apply(event) for event in events]
        if any(changes):
            document = self._verdict.document()
            is_success = document is not None and document["outcome"] == "FINISHED"
            failed = self._verdict.failure
            text = (
                "" if is_success else card_text(failed) if failed is not None else str((document or {}).get("body", ""))
            )
            if text != self._written:
                self._path.write_bytes(_cut(text))
                self._written = text


def _cut(text: str) -> bytes:
    whole = text.encode("utf-8", "replace")
    return whole if len(whole) <= _MOST_BYTES else whole[:_MOST_BYTES].decode("utf-8", "ignore").encode()
