"""Delivery settings that are common to all reporter types."""

from __future__ import annotations

import dataclasses
import sys

from spark_events.config import Kind, choice, duration, integer, option, positive_duration
from spark_events.config.value_kinds import WORDS


def _isolation(value: str) -> str:
    if value not in ("thread", "process"):
        raise ValueError
    if value == "process" and sys.platform != "linux":
        raise ValueError("a separate process needs Linux")
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class DeliveryConfig:
    """Delivery settings under ``events.reporter.<name>.``."""

    guarantee: str = option(
        "delivery.guarantee",
        choice("best-effort", "guaranteed", "at-least-once"),
        "best-effort",
        doc="best-effort: buffer events in memory. guaranteed: Spark waits for the answer. at-least-once: spool to "
        "disk.",
    )
    timeout: float = option(
        "timeout", positive_duration, 10.0, doc="Timeout of one attempt to open the reporter or to report events."
    )
    batch_size: int = option(
        "batch.size",
        integer(1, 100_000),
        512,
        doc="Maximum number of events per batch; never more than half of the mailbox.",
    )
    batch_linger: float | None = option(
        "batch.linger",
        duration,
        None,
        doc="How long to wait for further events before a batch is sent; default: set by the reporter's type.",
    )
    retry_initial: float = option(
        "retry.initial",
        positive_duration,
        0.1,
        doc="Pause after the first failed attempt; doubles with each further failure, plus jitter.",
    )
    retry_max: float = option(
        "retry.max",
        positive_duration,
        5.0,
        doc="Longest pause between two attempts; jitter adds at most retry.initial.",
    )
    isolation: str = option(
        "isolation",
        Kind("one of thread, process", _isolation, harmless=WORDS),
        "thread",
        doc="process: run the reporter in its own process, for code that may crash, exit or hold the interpreter's "
        "lock.",
    )
