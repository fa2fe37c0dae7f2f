"""All constants of the engine's algorithms, so that a benchmark can vary them."""

from __future__ import annotations

import dataclasses

from spark_events.enrichment.engine.back_off import BackOffTuning
from spark_events.enrichment.engine.breaker import BreakerTuning
from spark_events.enrichment.engine.rate_search import AllowedRateTuning
from spark_events.enrichment.engine.window_search import WindowTuning

__all__ = ["EngineTuning", "PoolTuning"]


@dataclasses.dataclass(frozen=True, slots=True)
class PoolTuning:
    """Constants of :class:`.Pool`.

    Attributes:
        turn_rows: number of rows after which a worker yields to the loop. Calls that return immediately would never
            yield.
        linger_seconds: time that a partial group waits for more rows if no other call is running.
    """

    turn_rows: int = 64
    linger_seconds: float = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class EngineTuning:
    """Constants of the algorithms, by algorithm; each class describes its fields."""

    window: WindowTuning = dataclasses.field(default_factory=WindowTuning)
    allowed_rate: AllowedRateTuning = dataclasses.field(default_factory=AllowedRateTuning)
    back_off: BackOffTuning = dataclasses.field(default_factory=BackOffTuning)
    circuit_breaker: BreakerTuning = dataclasses.field(default_factory=BreakerTuning)
    pool: PoolTuning = dataclasses.field(default_factory=PoolTuning)
