"""Context of a call: what the user's function receives besides its row."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from spark_events.enrichment.engine.calls import Call, GroupCall
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.engine.rate_headers import lower_case
from spark_events.errors import InvalidPlanError

__all__ = ["Context"]


class Context:
    """Argument ``ctx`` of the user's function: one object per attempt.

    Attributes:
        resource: the open resource of the plan; None if the plan has no resource.
    """

    __slots__ = ("_call", "_quota", "resource")

    def __init__(self, call: Call, resource: Any, quota: ReportedQuota) -> None:
        self._call = call
        self._quota = quota
        call.number = quota.begin()
        self.resource = resource

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self._call.attempt

    @property
    def idempotency_key(self) -> str:
        """The row's key, equal in all attempts of the call, in all attempts of the task, and in a replay of the batch.

        Raises:
            InvalidPlanError: when the call is for several rows. Their grouping depends on timing, so a key of the whole
                call would not be stable.
        """
        if isinstance(self._call, GroupCall):
            raise InvalidPlanError(
                "ctx.idempotency_key is the key of one row: with batch_size, use ctx.idempotency_keys, one for each row"
            )
        return self._call.batch.chunk.idempotency_key(self._call.index)

    @property
    def idempotency_keys(self) -> tuple[str, ...]:
        """The keys of this call's rows, in order."""
        return tuple(batch.chunk.idempotency_key(index) for batch, index in self._call.positions())

    def read_limits(self, headers: Any) -> None:
        """Read the rate limit headers of an answer; the engine then delays calls that would exceed the limits.

        Call this method as soon as the headers have arrived, from any thread, because they contain the seconds until a
        reset.

        Args:
            headers: the headers of the service's response, a mapping of names to values.

        Raises:
            TypeError: when ``headers`` is not a mapping.
        """
        if not hasattr(headers, "items"):
            raise TypeError(f"ctx.read_limits got {type(headers).__name__}; expected the response's headers, a mapping")
        quota, found = self._quota, lower_case(headers)
        try:
            is_on_loop = asyncio.get_running_loop() is quota.loop
        except RuntimeError:
            is_on_loop = False
        if is_on_loop:
            quota.report(self._call.number, found)
            return
        # A RuntimeError means that the loop has ended together with its process.
        with contextlib.suppress(RuntimeError):
            assert quota.loop is not None
            quota.loop.call_soon_threadsafe(quota.report, self._call.number, found)
