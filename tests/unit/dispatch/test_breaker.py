"""Tests of the circuit breaker: when it opens, probes and closes."""

from __future__ import annotations

from spark_events.dispatch.breaker import Breaker, BreakerConfig, BreakerState

CONFIG = BreakerConfig(failures=3, open_initial=30.0, open_max=100.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def breaker(clock: Clock) -> tuple[Breaker, list[BreakerState]]:
    changes: list[BreakerState] = []
    return Breaker(CONFIG, clock, lambda old, state, why: changes.append(state)), changes


def opened(clock: Clock) -> tuple[Breaker, list[BreakerState]]:
    """Return a breaker that has just opened for the first time."""
    box, changes = breaker(clock)
    for _ in range(CONFIG.failures):
        box.failed("no")
    assert box.state is BreakerState.OPEN
    return box, changes


def test_consecutive_failures_open_the_breaker() -> None:
    """After the configured number of consecutive failures, the breaker opens for the initial open time."""
    box, changes = breaker(Clock())
    box.failed("no")
    box.failed("no")
    assert (box.state, box.pause()) == (BreakerState.CLOSED, 0.0)
    box.failed("no")
    assert (box.state, box.pause(), changes) == (BreakerState.OPEN, 30.0, [BreakerState.OPEN])


def test_a_success_resets_the_count() -> None:
    """A success resets the count of failures, because isolated failures do not mean that the destination is down."""
    box, changes = breaker(Clock())
    for _ in range(5):
        box.failed("no")
        box.failed("no")
        box.succeeded()
    assert (box.state, changes) == (BreakerState.CLOSED, [])


def test_half_open_lets_one_batch_through_and_a_success_closes_it() -> None:
    """When the open time has elapsed, the breaker admits one batch. If this batch succeeds, the breaker closes."""
    clock = Clock()
    box, changes = opened(clock)
    clock.now += 29.9
    assert box.pause() > 0
    clock.now += 0.2
    assert (box.pause(), box.state) == (0.0, BreakerState.OPEN)
    box.attempt()
    assert (box.pause(), box.state) == (0.0, BreakerState.HALF_OPEN)
    box.succeeded()
    assert changes == [BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED]


def test_open_times_double_up_to_the_limit() -> None:
    """Each failed probe doubles the open time up to the limit. A success resets the open time."""
    clock = Clock()
    box, _ = opened(clock)
    times = []
    for _ in range(4):
        times.append(box.pause())
        clock.now += times[-1]
        assert box.pause() == 0.0
        box.attempt()
        box.failed("still no")
    assert times == [30.0, 60.0, 100.0, 100.0]
    clock.now += box.pause()
    box.attempt()
    box.succeeded()
    for _ in range(3):
        box.failed("no")
    assert box.pause() == 30.0


def test_the_limit_applies_to_the_initial_time() -> None:
    """If the maximum is shorter than the initial open time, the maximum applies from the first opening."""
    clock = Clock()
    box = Breaker(BreakerConfig(failures=1, open_initial=30.0, open_max=10.0), clock, lambda old, state, why: None)
    for _ in range(2):
        box.failed("no")
        assert box.pause() == 10.0
        clock.now += 10.0
        box.attempt()
    box.succeeded()
    box.failed("no")
    assert box.pause() == 10.0


def test_a_failed_early_attempt_does_not_change_the_state() -> None:
    """A failed early attempt, as at shutdown, does not extend the open time and does not count as a probe."""
    clock = Clock()
    box, changes = opened(clock)
    clock.now += 10.0
    box.attempt()
    box.failed("still no")
    assert (box.pause(), changes) == (20.0, [BreakerState.OPEN])
