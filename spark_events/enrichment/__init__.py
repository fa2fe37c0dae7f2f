"""Ordered, stateless, asynchronous calls to external services for every row of a DataFrame.

``api`` checks a request on the driver. ``driver`` prepares and supervises a batch on the driver. ``worker`` runs in
Spark's Python workers. ``engine`` makes the calls and depends on neither Spark nor Arrow. Each package imports only
packages that come later in this list.
"""

from spark_events.enrichment.api.enrich import enrich, enrich_batch
from spark_events.enrichment.engine.context import Context
from spark_events.enrichment.settings import (
    Auto,
    Budget,
    Buffer,
    Cache,
    CircuitBreaker,
    Key,
    Limits,
    OnFailure,
    Rate,
    Replay,
    Retry,
)  # fmt: skip

__all__ = [
    "Auto", "Budget", "Buffer", "Cache", "CircuitBreaker", "Context", "Key", "Limits", "OnFailure",
    "Rate", "Replay", "Retry", "enrich", "enrich_batch",
]  # fmt: skip
