"""Exclusions of executors and nodes in the event log, which Jackson writes with the names of Scala's fields."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from spark_events.records.types import Exclusion

__all__ = ["exclusion_handlers"]

_PREFIX = b"org.apache.spark.scheduler.SparkListener"
_NAMES = (b"Executor", b"Node")


class _ExclusionLine(msgspec.Struct, gc=False, rename="camel"):
    time: int
    executor_id: str | None = None
    host_id: str | None = None
    task_failures: int = 0
    executor_failures: int = 0
    stage_id: int | None = None
    stage_attempt_id: int = 0


_line = msgspec.json.Decoder(_ExclusionLine).decode


def exclusion_handlers(arrival: Callable[[int], int]) -> dict[bytes, Callable[[bytes], tuple[Exclusion, ...]]]:
    """Return the handlers of these lines, by the name of the event.

    Spark logs exclusions for one stage too, but no stages that cannot be scheduled.

    Args:
        arrival: returns when the shim would have received an event of this time.
    """

    def excluded(line: bytes) -> tuple[Exclusion, ...]:
        return (_record(_line(line), True, arrival),)

    def included(line: bytes) -> tuple[Exclusion, ...]:
        return (_record(_line(line), False, arrival),)

    handlers: dict[bytes, Callable[[bytes], tuple[Exclusion, ...]]] = {}
    for name in _NAMES:
        handlers[_PREFIX + name + b"Excluded"] = excluded
        handlers[_PREFIX + name + b"ExcludedForStage"] = excluded
        handlers[_PREFIX + name + b"Unexcluded"] = included
    return handlers


def _record(line: _ExclusionLine, excluded: bool, arrival: Callable[[int], int]) -> Exclusion:
    return Exclusion(
        at=arrival(line.time),
        time=line.time,
        excluded=excluded,
        executor_id=line.executor_id,
        host=line.host_id,
        failures=line.task_failures or line.executor_failures,
        stage_id=line.stage_id,
        attempt=line.stage_attempt_id,
    )
