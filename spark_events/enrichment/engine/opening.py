"""Opening the plan's resource, with the attempts and times that its calls have."""

from __future__ import annotations

import asyncio
from typing import Any

import tenacity

from spark_events.enrichment.engine.failure import RowFailure, message_of, type_of
from spark_events.enrichment.engine.frames import where_raised
from spark_events.enrichment.engine.pauses import pauses
from spark_events.enrichment.engine.resources import Resources
from spark_events.enrichment.engine.verdicts import judge
from spark_events.enrichment.plan import Plan, Retry
from spark_events.enrichment.signature import name_of

__all__ = ["open_resource"]

_ONCE = Retry(attempts=1)


async def open_resource(plan: Plan, key: str, resources: Resources) -> Any:
    """The plan's resource; None when it has none; a :class:`RowFailure` when it cannot be opened."""
    opener = plan.resource
    if opener is None:
        return None
    retry = plan.retry or _ONCE
    stop: Any = tenacity.stop_after_attempt(retry.attempts)
    if plan.total_timeout is not None:
        stop |= tenacity.stop_after_delay(plan.total_timeout)
    made = 0

    async def attempt() -> Any:
        nonlocal made
        made += 1
        try:
            return await resources.acquire(key, opener, plan.timeout)
        except (TimeoutError, asyncio.TimeoutError) as error:
            raise error if str(error) else TimeoutError(f"not open within {plan.timeout} s (timeout)") from None

    try:
        return await tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(lambda error: judge(error, plan.retry).retryable),
            stop=stop,
            wait=pauses(retry),
            reraise=True,
        )(attempt)
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        # SystemExit of the user's `on`, which would end the loop.
        message = f"resource {name_of(opener)} cannot be opened: {message_of(error)}"
        return RowFailure("resource", type_of(error), message, attempts=made, where=where_raised(error.__traceback__))
