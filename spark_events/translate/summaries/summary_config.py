"""Settings of summaries, ``events.summary.…``."""

from __future__ import annotations

import dataclasses
import re

from spark_events.config import Kind, duration, integer, option, positive_duration, size
from spark_events.config.value_kinds import WORDS

__all__ = ["SummaryConfig"]


def _price(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise ValueError
    return float(text)


#: Word for the usual settings.
_STANDARD = "standard"


def _keys(text: str) -> tuple[str, ...]:
    found = tuple(key.strip() for key in text.split(",") if key.strip())
    if not all(key == _STANDARD or re.fullmatch(r"spark\.[A-Za-z0-9_.-]+", key) for key in found):
        raise ValueError
    return found


_KEYS: Kind[tuple[str, ...]] = Kind(
    f"'{_STANDARD}' and keys of Spark's settings, separated by commas, or an empty value", _keys, ",".join
)
_PRICE: Kind[float] = Kind("a decimal number without a currency, say 0.05", _price, harmless=WORDS)
_PERCENT = integer(1, 100)


#: Settings of Spark that explain a different run of the same program.
_SETTINGS = (
    "spark.master",
    "spark.default.parallelism",
    "spark.driver.memory",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.minExecutors",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.jars.packages",
    "spark.memory.fraction",
    "spark.sql.adaptive.enabled",
    "spark.sql.ansi.enabled",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
)


@dataclasses.dataclass(frozen=True, slots=True)
class SummaryConfig:
    """Interval and price of the application's summary, and thresholds of a stage's problems."""

    # The shim reads this setting too (``Settings.java``).
    interval: float = option(
        "interval",
        duration,
        0.0,
        doc="Minimum time between two summaries of a running application. 0s: only at its end.",
    )
    settings: tuple[str, ...] = option(
        "settings",
        _KEYS,
        (_STANDARD,),
        doc="Spark's settings that an application's start reports, redacted, to compare two runs. standard: the usual "
        "ones; empty: none.",
    )
    core_hour_price: float | None = option("core-hour-price", _PRICE, None, doc="Price of one allocated core-hour.")
    min_duration: float = option(
        "min-duration", duration, 10.0, doc="Minimum duration of a stage whose problems are reported."
    )
    skew_ratio: int = option(
        "skew.ratio", integer(2, 10_000), 5, doc="skew: minimum ratio of the slowest task's duration to the median."
    )
    skew_min_duration: float = option(
        "skew.min-duration", duration, 30.0, doc="skew: minimum duration of the slowest task."
    )
    spill_min_size: int = option(
        "spill.min-size", size, 128 << 20, doc="spill: minimum bytes that tasks wrote to disk."
    )
    gc_percent: int = option("gc.percent", _PERCENT, 20, doc="gc: minimum part of the tasks' run time.")
    tiny_tasks_number: int = option("tiny-tasks.number", integer(1), 5_000, doc="tiny-tasks: more tasks than this.")
    tiny_tasks_duration: float = option(
        "tiny-tasks.duration", positive_duration, 0.5, doc="tiny-tasks: the median task is shorter than this."
    )
    one_big_partition_size: int = option(
        "one-big-partition.size", size, 5 << 30, doc="one-big-partition: a task read more than this."
    )
    memory_tight_gc_percent: int = option(
        "memory-tight.gc-percent",
        _PERCENT,
        10,
        doc="memory-tight: minimum part of garbage collection in a stage that also spills to disk.",
    )
    shuffle_fetch_wait_percent: int = option(
        "shuffle-fetch-wait.percent", _PERCENT, 20, doc="shuffle-fetch-wait: minimum part of the tasks' run time."
    )
    idle_cores_percent: int = option(
        "idle-cores.percent", _PERCENT, 50, doc="idle-cores: more than this part of the time of all cores was idle."
    )

    @property
    def compared(self) -> tuple[str, ...]:
        """Keys of the settings that an application's start reports."""
        return tuple(key for given in self.settings for key in (_SETTINGS if given == _STANDARD else (given,)))
