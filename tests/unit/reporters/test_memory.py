"""The ``memory`` reporter: the newest events, oldest first."""

from __future__ import annotations

from fakes import event, numbers

from spark_events.reporters.memory import MemoryConfig, MemoryReporter


def test_events_are_kept_in_order() -> None:
    """What was reported can be seen, oldest first."""
    reporter = MemoryReporter()
    reporter.report([event(1), event(2)])
    reporter.report([event(3)])
    assert numbers(reporter.events) == [1, 2, 3]


def test_only_the_newest_are_kept() -> None:
    """A notebook that runs for weeks does not fill its memory."""
    reporter = MemoryReporter(MemoryConfig(size=2))
    reporter.report([event(n) for n in range(5)])
    assert numbers(reporter.events) == [3, 4]


def test_what_is_seen_is_a_copy() -> None:
    """Changing the list changes nothing."""
    reporter = MemoryReporter()
    reporter.report([event(1)])
    reporter.events.clear()
    assert numbers(reporter.events) == [1]


def test_it_is_public() -> None:
    """By the package's own name, which is what tests and notebooks import."""
    import spark_events

    assert spark_events.MemoryReporter is MemoryReporter
