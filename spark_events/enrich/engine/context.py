"""What a function is told besides its row."""

from __future__ import annotations

import hashlib
from typing import Any

from spark_events.enrich.engine.calls import Call

__all__ = ["Context"]


class Context:
    """``ctx``: one for each call, the same for all its attempts.

    Attributes:
        resource: what the plan's resource opened; None without one.
    """

    __slots__ = ("_call", "resource")

    def __init__(self, call: Call, resource: Any) -> None:
        self._call = call
        self.resource = resource

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._call.attempt

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt, in every attempt of the task, and when the batch is run again.

        Of a call for several rows: a digest of their keys, in their order.
        """
        keys = self.idempotency_keys
        return keys[0] if len(keys) == 1 else hashlib.sha256("\n".join(keys).encode()).hexdigest()

    @property
    def idempotency_keys(self) -> tuple[str, ...]:
        """The key of each row of this call."""
        return tuple(batch.chunk.idempotency_key(index) for batch, index in self._call.places())
