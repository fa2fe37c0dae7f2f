"""Cache of answers in Redis, shared by the executors."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from spark_events.config import text
from spark_events.enrichment.checks import check
from spark_events.errors import MissingExtraError

__all__ = ["RedisCache"]

_MISSING = "RedisCache needs redis: pip install 'spark-events[redis]'"


@dataclasses.dataclass(frozen=True, slots=True)
class RedisCache:
    """Store of a :class:`Cache` in one Redis server.

    Example: ``cache=RedisCache("redis://cache.internal")``.

    Args:
        url: URL as in redis-py: ``redis://``, ``rediss://`` or ``unix://``. Redis Cluster is not supported, because one
            read contains keys of several hash slots.
        prefix: string at the beginning of every key.

    Raises:
        InvalidPlanError: when a value is invalid.
        MissingExtraError: when redis is not installed on the driver.
    """

    url: str = dataclasses.field(repr=False)  # may contain a password
    prefix: str = "spark-events:"

    def __post_init__(self) -> None:
        check("RedisCache.url", self.url, text("an address such as 'redis://cache.internal:6379/0'"))
        if importlib.util.find_spec("redis") is None:
            raise MissingExtraError(_MISSING)

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[_Open]:
        """Open a client, which opens connections on demand."""
        try:
            from redis import asyncio as redis
        except ImportError as error:
            raise ImportError(_MISSING) from error
        client: Any = redis.Redis.from_url(self.url)
        try:
            yield _Open(client, self.prefix)
        finally:
            await client.aclose()


class _Open:
    def __init__(self, client: Any, prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    async def get_many(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        found: list[bytes | None] = await self._client.mget([self._prefix + key for key in keys])
        return found

    async def set_many(self, answers: Mapping[str, bytes], ttl: float) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for key, data in answers.items():
                pipeline.set(self._prefix + key, data, px=max(1, round(1000 * ttl)))
            await pipeline.execute()
