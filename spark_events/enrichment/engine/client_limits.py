"""Detection of client limits that are lower than the plan's limits.

Without a warning, such a limit would slow down or fail a batch for no visible reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from spark_events.enrichment.plan import Plan
from spark_events.failures.registry import families

__all__ = ["ClientLimitTuning", "shortcomings", "used_up"]


@dataclasses.dataclass(frozen=True, slots=True)
class ClientLimitTuning:
    """Constants of :func:`used_up`.

    Attributes:
        min_used_ratio: if at least this fraction of a client's connections is in use, the client counts as the factor
            that limits the calls in flight.
    """

    min_used_ratio: float = 0.9


def shortcomings(resource: Any, plan: Plan) -> list[str]:
    """Return warnings about the clients in a resource: the resource itself, or one of its attributes."""
    return [text for client in (resource, *_parts(resource)) for text in _of_client(client, plan)]


def _parts(resource: Any) -> list[Any]:
    if isinstance(resource, (tuple, list)):
        return list(resource)
    return list((resource if isinstance(resource, dict) else getattr(resource, "__dict__", {})).values())


def used_up(resource: Any, plan: Plan, used: int, tuning: ClientLimitTuning) -> list[str]:
    """Return warnings about clients whose number of connections limited the calls in flight.

    Args:
        resource: the open resource.
        plan: the plan; if the user has bounded the calls in flight, there is no warning.
        used: the maximum number of calls in flight.
        tuning: constants.
    """
    texts, window, near = [], plan.window, tuning.min_used_ratio
    for client in (resource, *_parts(resource)):
        name, allowed, option = _pool_of(client)
        # If the connections do not even suffice for the initial window, `shortcomings` has already warned.
        if isinstance(allowed, int) and window.initial <= allowed < window.max and used >= near * allowed:
            texts.append(
                f"the {name} client of each task allows {allowed:,} connections, which limits calls in flight: raise "
                f"{option}, or lower Auto.max, which counts for all tasks, to the connections that the server allows"
            )
    return texts


def _pool_of(client: Any) -> tuple[str, Any, str]:
    """Return a client's library, its number of connections, and the option that sets this number.

    The number is None if the client has no limit, or if the limit is unknown.
    """
    kinds = families(client)
    if ("httpx", "AsyncClient") in kinds or ("httpx2", "AsyncClient") in kinds:
        # httpx stores its limits only in this private attribute, which may be missing in another version.
        pool = getattr(getattr(getattr(client, "_transport", None), "_pool", None), "_max_connections", None)
        return "httpx", pool, "httpx.Limits(max_connections=…)"
    if ("aiohttp", "ClientSession") in kinds:
        # 0 means no limit.
        return "aiohttp", getattr(client.connector, "limit", None) or None, "aiohttp.TCPConnector(limit=…)"
    if ("asyncpg", "Pool") in kinds:
        size = getattr(client, "get_max_size", None)
        return "asyncpg", None if size is None else size(), "asyncpg.create_pool(max_size=…)"
    if ("psycopg_pool", "AsyncConnectionPool") in kinds:
        return "psycopg_pool", getattr(client, "max_size", None), "AsyncConnectionPool(max_size=…)"
    return "", None, ""


def _of_client(client: Any, plan: Plan) -> Iterator[str]:
    name, allowed, option = _pool_of(client)
    window = plan.window
    # Without a limit, httpx stores a very large number.
    if isinstance(allowed, int) and allowed < window.initial:
        calls = f"up to {window.initial:,} calls of a task are in flight"
        fewer = f"lower Limits.max_in_flight to {allowed:,}"
        if window.min < window.max:
            calls = f"the job starts with {window.initial:,} calls in flight"
            fewer = f"lower Auto.max to {allowed:,}"
        yield (
            f"the {name} client allows {allowed:,} connections, but {calls}, so calls may wait for a connection: give "
            f"at least {option.replace('…', str(window.initial))}, or {fewer}, because each concurrent task opens its "
            "own client"
        )
    if name == "httpx":
        seconds = getattr(client.timeout, "read", None)
        yield from _of_time("httpx", seconds, plan, f"give httpx.AsyncClient(timeout={plan.timeout})")
    elif name == "aiohttp":
        seconds = getattr(client.timeout, "total", None)
        advice = f"give aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total={plan.timeout}))"
        yield from _of_time("aiohttp", seconds, plan, advice)


def _of_time(name: str, seconds: Any, plan: Plan, advice: str) -> Iterator[str]:
    if isinstance(seconds, (int, float)) and plan.timeout is not None and 0 < seconds < plan.timeout:
        yield f"the {name} client gives up after {seconds:g} s, but Limits.timeout is {plan.timeout:g} s: {advice}"
