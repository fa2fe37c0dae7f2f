"""Delivery settings that every reporter type has."""

from __future__ import annotations

import dataclasses

from spark_events.config import choice, duration, integer, option, positive_duration

__all__ = ["DeliveryConfig"]


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """Delivery settings under ``events.reporter.<name>.``."""

    guarantee: str = option(
        "delivery.guarantee",
        choice("best-effort", "guaranteed", "at-least-once"),
        "best-effort",
        doc="best-effort: held in memory. guaranteed: Spark waits for its answer. at-least-once: kept on disk first.",
    )
    timeout: float = option(
        "timeout",
        positive_duration,
        10.0,
        doc="How long one attempt to open the reporter or to hand it events may take.",
    )
    batch_size: int = option(
        "batch.size",
        integer(1, 100_000),
        512,
        doc="How many events the reporter is handed at once, at most; never more than half of its mailbox.",
    )
    batch_linger: float | None = option(
        "batch.linger",
        duration,
        None,
        doc="How long an event waits for others, so that one call hands over several; not set: what the type says.",
    )
    retry_initial: float = option(
        "retry.initial",
        positive_duration,
        0.1,
        doc="The pause after a first failed attempt; it doubles with each further one, with jitter.",
    )
    retry_max: float = option(
        "retry.max",
        positive_duration,
        5.0,
        doc="The longest pause between two attempts; on top of it comes jitter, retry.initial at most.",
    )
