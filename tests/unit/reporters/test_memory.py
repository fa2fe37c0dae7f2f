"""Tests of the ``memory`` reporter."""

from __future__ import annotations

from fakes import event, numbers

from spark_events.reporters.memory_reporter import MemoryConfig, MemoryReporter


def test_events_are_kept_in_order() -> None:
    reporter = MemoryReporter()
    reporter.report([event(1), event(2)])
    reporter.report([event(3)])
    assert numbers(reporter.events) == [1, 2, 3]


def test_only_the_newest_events_are_kept() -> None:
    """The memory reporter keeps only the newest events, so memory stays bounded in a notebook that runs for weeks."""
    reporter = MemoryReporter(MemoryConfig(size=2))
    reporter.report([event(n) for n in range(5)])
    assert numbers(reporter.events) == [3, 4]


def test_events_returns_a_copy() -> None:
    """Changes to the list that `events` returns do not affect the reporter."""
    reporter = MemoryReporter()
    reporter.report([event(1)])
    reporter.events.clear()
    assert numbers(reporter.events) == [1]


def test_the_memory_reporter_is_public() -> None:
    import spark_events

    assert spark_events.MemoryReporter is MemoryReporter
