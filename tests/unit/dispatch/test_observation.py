"""What the dispatch tells of itself while it runs."""

from __future__ import annotations

import threading
from typing import Any

from spark_events.dispatch.books import Books
from spark_events.dispatch.observation import Observation


def books(delivered: int) -> dict[str, Books]:
    return {
        "r": Books(9, delivered, {}, 9 - delivered, failures=0, hung=0, latency=0.0, oldest_age=0.0, breaker="closed")
    }


def test_the_last_numbers_are_told_last() -> None:
    """Those of the end come from another thread than those before, which may be at it in that moment."""
    told: list[Any] = []
    observation = Observation(lambda: None, told.append)
    end = threading.Thread(target=lambda: observation.numbers(lambda: books(9), at_once=True))

    def earlier() -> dict[str, Books]:
        end.start()
        # It must wait: it has all the time to come first.
        end.join(0.2)
        return books(5)

    observation.numbers(earlier)
    end.join(20)
    assert [numbers["r"]["delivered"] for numbers in told] == [5, 9]
