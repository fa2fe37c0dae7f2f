"""Constants of the algorithms of a run, so that a benchmark can vary them.

The classes here belong to modules that import this one. A process, a ledger and a job's share, which outlive a run or
have another caller, take their own: :class:`.ProcessTuning`, :class:`.LedgerTuning`, :class:`.JobShareTuning`.
"""

from __future__ import annotations

import dataclasses

from spark_events.enrichment.engine.back_off import BackOffTuning
from spark_events.enrichment.engine.breaker import BreakerTuning
from spark_events.enrichment.engine.buffer import BufferTuning
from spark_events.enrichment.engine.client_limits import ClientLimitTuning
from spark_events.enrichment.engine.durations import DurationTuning
from spark_events.enrichment.engine.keys import HotKeyTuning
from spark_events.enrichment.engine.order import OrderTuning
from spark_events.enrichment.engine.rate_search import AllowedRateTuning
from spark_events.enrichment.engine.remaining_calls import QuotaTuning
from spark_events.enrichment.engine.timeouts import TimeoutTuning
from spark_events.enrichment.engine.window_search import WindowTuning

__all__ = ["AdmissionTuning", "EngineTuning", "FeedbackTuning", "PoolTuning"]


@dataclasses.dataclass(frozen=True, slots=True)
class PoolTuning:
    """Constants of :class:`.Pool`.

    Attributes:
        turn_rows: number of rows after which a runner yields to the loop. Calls that return immediately would never
            yield.
        block_rows: number of rows that are counted, and of runners that start, together.
        low_ratio: with fewer waiting calls than this fraction of the buffer's rows, the pool asks for more.
        linger_seconds: time that a partial group waits for more rows if no other call is running.
    """

    turn_rows: int = 64
    block_rows: int = 32
    low_ratio: float = 0.25
    linger_seconds: float = 0.05


@dataclasses.dataclass(frozen=True, slots=True)
class AdmissionTuning:
    """Constants of :class:`.Admission`.

    Attributes:
        min_wait_ratio: a wait of at least this fraction of the latency shows that the window does not limit the calls
            in flight.
    """

    min_wait_ratio: float = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class FeedbackTuning:
    """Constants of :class:`.Feedback`.

    Attributes:
        answer_seconds: if the destination has answered no call for this time, a rejection because of an overload
            applies to all calls.
    """

    answer_seconds: float = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class EngineTuning:
    """Constants of the algorithms, by algorithm; each class describes its fields."""

    window: WindowTuning = dataclasses.field(default_factory=WindowTuning)
    allowed_rate: AllowedRateTuning = dataclasses.field(default_factory=AllowedRateTuning)
    back_off: BackOffTuning = dataclasses.field(default_factory=BackOffTuning)
    circuit_breaker: BreakerTuning = dataclasses.field(default_factory=BreakerTuning)
    quota: QuotaTuning = dataclasses.field(default_factory=QuotaTuning)
    admission: AdmissionTuning = dataclasses.field(default_factory=AdmissionTuning)
    feedback: FeedbackTuning = dataclasses.field(default_factory=FeedbackTuning)
    timeouts: TimeoutTuning = dataclasses.field(default_factory=TimeoutTuning)
    buffer: BufferTuning = dataclasses.field(default_factory=BufferTuning)
    order: OrderTuning = dataclasses.field(default_factory=OrderTuning)
    hot_keys: HotKeyTuning = dataclasses.field(default_factory=HotKeyTuning)
    durations: DurationTuning = dataclasses.field(default_factory=DurationTuning)
    client_limits: ClientLimitTuning = dataclasses.field(default_factory=ClientLimitTuning)
    pool: PoolTuning = dataclasses.field(default_factory=PoolTuning)
