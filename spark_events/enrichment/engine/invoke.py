"""One attempt: the call of the user's function."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from spark_events.enrichment.engine.calls import Call
from spark_events.enrichment.engine.context import Context
from spark_events.enrichment.engine.quota import ReportedQuota
from spark_events.enrichment.plan import Plan

__all__ = ["Invoke"]


class Invoke:
    """Calls the user's function.

    Args:
        plan: the function, and whether it accepts ``ctx``.
        resource: the open resource, or None.
        quota: receives the limits that the function reads from its answers.
    """

    def __init__(self, plan: Plan, resource: Any, quota: ReportedQuota) -> None:
        self._fn = plan.fn
        self._wants_context = plan.wants_context
        self._resource = resource
        self._quota = quota

    def __call__(self, call: Call) -> Awaitable[Any]:
        """Make one attempt."""
        return self._in_context(call) if self._wants_context else self._fn(call.argument())

    async def _in_context(self, call: Call) -> Any:
        context = Context(call, self._resource, self._quota)
        try:
            return await self._fn(call.argument(), context)
        finally:
            self.abandon(call)

    def abandon(self, call: Call) -> None:
        """Stop counting an attempt as in flight; an abandoned attempt may run for as long as the process."""
        self._quota.end(call.number)
