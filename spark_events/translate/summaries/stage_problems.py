"""Reasons why a stage was slow, found in the totals of its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from spark_events.event.text import lasting
from spark_events.records.types import StageTotals
from spark_events.translate.draft import counted
from spark_events.translate.summaries.summary_config import SummaryConfig

__all__ = ["KINDS", "Problem", "problems", "took"]

#: All kinds of problems; the attribute of a kind is ``problem.<kind>``.
KINDS = (
    *("skew", "spill", "gc", "tiny-tasks", "one-big-partition", "memory-tight", "shuffle-fetch-wait", "idle-cores"),
    "waiting-for-executors",
)
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


class Problem(NamedTuple):
    """One problem of a stage.

    Attributes:
        text: a clause for the event's body.
        lost_ms: estimated time that the stage lost; 0 if the totals allow no estimate.
    """

    kind: str
    text: str
    lost_ms: int


def problems(
    tasks: int, totals: StageTotals, core_ms: int | None, config: SummaryConfig, waited_ms: int = 0
) -> list[Problem]:
    """Return the problems of a stage attempt, sorted by the time lost, largest first.

    Args:
        tasks: number of the stage's tasks.
        totals: sums over the attempt's tasks.
        core_ms: cores of all executors multiplied by time; None if unknown, or if other stages used the cores too.
        config: the thresholds.
        waited_ms: time during which no executor existed.
    """
    duration = totals.ended - totals.started
    if not totals.started or duration < config.min_duration * 1000:
        return []
    # Tasks can lose time only while executors exist.
    present = duration - waited_ms
    found = [
        *_of_tasks(tasks, totals, present, config),
        *_of_fractions(totals, present, config),
        *_of_cores(totals, core_ms, present, config),
    ]
    if waited_ms >= config.min_duration * 1000:
        found.append(Problem("waiting-for-executors", f"waited {took(waited_ms)} for executors", waited_ms))
    return sorted(found, key=lambda problem: -problem.lost_ms)


def _of_tasks(number: int, totals: StageTotals, duration: int, config: SummaryConfig) -> Iterator[Problem]:
    slowest, median = totals.duration_max_ms, totals.duration_p50_ms
    tasks = counted(number, "task")
    # Compare only numbers that differ as printed.
    is_slow = slowest >= config.skew_min_duration * 1000 and took(slowest) != took(median)
    if is_slow and slowest >= config.skew_ratio * median:
        times = f"{slowest / median:.0f} times the median of {took(median)}" if median else "the median took no time"
        where = f" on executor {totals.slowest_executor}" if totals.slowest_executor else ""
        yield Problem("skew", f"one of {tasks} took {took(slowest)}{where}, {times}", min(slowest - median, duration))
    if totals.spill_disk_bytes >= config.spill_min_size:
        yield Problem("spill", f"its tasks spilled {_sized(totals.spill_disk_bytes)} to disk", 0)
    has_succeeded = totals.slowest_task >= 0
    if has_succeeded and number > config.tiny_tasks_number and median < config.tiny_tasks_duration * 1000:
        fraction = _fraction(totals.scheduler_delay_ms + totals.deserialize_ms, totals.task_ms)
        yield Problem("tiny-tasks", f"half of its {tasks} took at most {took(median)}", round(fraction * duration))
    largest, usual = _sized(totals.largest_input_bytes), _sized(totals.median_input_bytes)
    if totals.largest_input_bytes > config.one_big_partition_size and largest != usual:
        yield Problem("one-big-partition", f"one of {tasks} read {largest}, the median is {usual}", 0)


def _of_fractions(totals: StageTotals, duration: int, config: SummaryConfig) -> Iterator[Problem]:
    collected = _fraction(totals.gc_ms, totals.run_ms)
    if collected * 100 >= config.gc_percent:
        text = f"garbage collection took {collected:.0%} of the run time of its tasks"
        yield Problem("gc", text, round(collected * duration))
    if totals.spill_disk_bytes and collected * 100 >= config.memory_tight_gc_percent:
        yield Problem("memory-tight", f"its tasks spilled to disk and spent {collected:.0%} in garbage collection", 0)
    waited = _fraction(totals.fetch_wait_ms, totals.run_ms)
    if waited * 100 >= config.shuffle_fetch_wait_percent:
        text = f"its tasks waited for shuffle data for {waited:.0%} of their run time"
        yield Problem("shuffle-fetch-wait", text, round(waited * duration))


def _of_cores(totals: StageTotals, core_ms: int | None, present: int, config: SummaryConfig) -> Iterator[Problem]:
    """Yield whether cores were idle; ``present`` is the time during which executors existed, in milliseconds."""
    if core_ms and present >= config.min_duration * 1000:
        idle = 1 - _fraction(totals.task_ms * totals.cpus, core_ms)
        if idle * 100 > config.idle_cores_percent:
            text = f"the cores of the executors were idle for {idle:.0%} of their time"
            yield Problem("idle-cores", text, round(idle * present))


def _fraction(part: int, whole: int) -> float:
    return min(1.0, part / whole) if whole else 0.0


def took(millis: int) -> str:
    """Format a duration with its two largest units.

    >>> took(450), took(12_345), took(250_000), took(4_200_000)
    ('450 ms', '12 s', '4 min 10 s', '1 h 10 min')
    """
    if millis < 1_000:
        return f"{millis} ms"
    minutes, seconds = divmod(millis // 1000, 60)
    if not minutes or minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min" if minutes else lasting(millis)
    return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"


def _sized(number: int) -> str:
    if number < 1024:
        return counted(number, "byte")
    size, unit = number / 1024, 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {_UNITS[unit]}"
