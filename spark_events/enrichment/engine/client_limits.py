"""Limits of HTTP clients that are lower than the plan's, which would be a slow or failing batch without a reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_events.enrichment.engine.client_errors import families
from spark_events.enrichment.plan import Plan

__all__ = ["shortcomings"]


def shortcomings(resource: Any, plan: Plan) -> list[str]:
    """Return warnings about the clients in a resource: the resource itself, or one of its attributes."""
    return [text for client in (resource, *_parts(resource)) for text in _of_client(client, plan)]


def _parts(resource: Any) -> list[Any]:
    if isinstance(resource, (tuple, list)):
        return list(resource)
    return list((resource if isinstance(resource, dict) else getattr(resource, "__dict__", {})).values())


def _of_client(client: Any, plan: Plan) -> Iterator[str]:
    kinds = families(client)
    if ("httpx", "AsyncClient") in kinds or ("httpx2", "AsyncClient") in kinds:
        # httpx shows its limits nowhere else; with another version the attribute may be missing.
        pool = getattr(getattr(getattr(client, "_transport", None), "_pool", None), "_max_connections", None)
        advice = f"give httpx.AsyncClient(limits=httpx.Limits(max_connections={plan.window.initial}))"
        yield from _of_pool("httpx", pool, plan, advice)
        seconds = getattr(client.timeout, "read", None)
        yield from _of_time("httpx", seconds, plan, f"give httpx.AsyncClient(timeout={plan.timeout})")
    elif ("aiohttp", "ClientSession") in kinds:
        advice = f"give aiohttp.TCPConnector(limit={plan.window.initial})"
        yield from _of_pool("aiohttp", getattr(client.connector, "limit", None), plan, advice)
        seconds = getattr(client.timeout, "total", None)
        advice = f"give aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total={plan.timeout}))"
        yield from _of_time("aiohttp", seconds, plan, advice)


def _of_pool(name: str, allowed: Any, plan: Plan, advice: str) -> Iterator[str]:
    # aiohttp's 0 and httpx's None mean no limit; without a limit httpx stores a very large number.
    if isinstance(allowed, int) and 0 < allowed < plan.window.initial:
        yield (
            f"the {name} client allows {allowed:,} connections, but {plan.window.initial:,} calls are in flight, "
            f"so calls wait for a connection: {advice}"
        )


def _of_time(name: str, seconds: Any, plan: Plan, advice: str) -> Iterator[str]:
    if isinstance(seconds, (int, float)) and plan.timeout is not None and 0 < seconds < plan.timeout:
        yield f"the {name} client gives up after {seconds:g} s, but Limits.timeout is {plan.timeout:g} s: {advice}"
