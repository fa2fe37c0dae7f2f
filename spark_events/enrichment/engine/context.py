"""What a function is told besides its row."""

from __future__ import annotations

from typing import Any

from spark_events.enrichment.engine.calls import Call, GroupCall
from spark_events.errors import InvalidPlanError

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

        Raises:
            InvalidPlanError: the call is for several rows. Which ones are together depends on what comes when, so they
                have no key that would be the same again.
        """
        if isinstance(self._call, GroupCall):
            raise InvalidPlanError(
                "ctx.idempotency_key is the key of one row: with batch_size, use ctx.idempotency_keys, one for each row"
            )
        return self._call.batch.chunk.idempotency_key(self._call.index)

    @property
    def idempotency_keys(self) -> tuple[str, ...]:
        """The key of each row of this call, in their order."""
        return tuple(batch.chunk.idempotency_key(index) for batch, index in self._call.places())
