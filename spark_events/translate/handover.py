"""What the next sidecar must know besides the records that the driver repeats."""

from __future__ import annotations

import contextlib

import msgspec

from spark_events.translate.pipelines import Pipelines
from spark_events.translate.standing_failures import StandingFailures

__all__ = ["Handover"]


class _Content(msgspec.Struct):
    failures: str = ""
    pipelines: str = ""


class Handover:
    """The failures that stand, and the pipelines.

    Args:
        standing: the failures that stand.
        pipelines: the pipelines of the application.
    """

    def __init__(self, standing: StandingFailures, pipelines: Pipelines) -> None:
        self._standing = standing
        self._pipelines = pipelines

    def take(self) -> str | None:
        """Return the memory as a string; None if it has not changed."""
        if not self._standing.is_new and not self._pipelines.is_new:
            return None
        content = _Content(self._standing.take_memory(), self._pipelines.take_memory())
        return msgspec.json.encode(content).decode()

    def load(self, memory: str) -> None:
        """Load the memory of the preceding sidecar; "" if it had none."""
        known = msgspec.json.decode(memory, type=_Content) if memory else _Content()
        self._standing.load_memory(known.failures)
        self._pipelines.load_memory(known.pipelines)

    def unchanged(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which repeated records do not change a memory, which is newer."""
        return self._standing.unchanged()
