"""Ordered, stateless, asynchronous calls to the outside world for every row of a DataFrame.

``api`` checks a request on the driver, ``driver`` accompanies a batch there, ``worker`` runs in Spark's Python workers,
and ``engine`` makes the calls; it knows neither Spark nor Arrow. Each imports only those that are named after it.
"""

from spark_events.enrichment.api.enrich import enrich, enrich_batch
from spark_events.enrichment.engine.calls import Context
from spark_events.enrichment.redis_cache import RedisCache
from spark_events.enrichment.settings import (
    Auto,
    Budget,
    Buffer,
    Cache,
    CacheStore,
    CircuitBreaker,
    Key,
    Limits,
    OnFailure,
    Rate,
    Replay,
    Retry,
)  # fmt: skip

__all__ = [
    "Auto", "Budget", "Buffer", "Cache", "CacheStore", "CircuitBreaker", "Context", "Key", "Limits", "OnFailure",
    "Rate", "RedisCache", "Replay", "Retry", "enrich", "enrich_batch",
]  # fmt: skip
