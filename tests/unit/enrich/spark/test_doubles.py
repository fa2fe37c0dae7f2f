"""Whether there may be two results of a partition, as Spark and the tasks tell it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_events.enrich.spark.doubles import may_be_double
from spark_events.enrich.spark.report import Report


class Session:
    """A driver that knows of stages how often they were attempted, and of partitions where they are."""

    def __init__(self, attempts: dict[int, int], places: list[int], speculates: str | None) -> None:
        self.attempts, self.places, self.asked = attempts, places, 0
        self.conf = {} if speculates is None else {"spark.speculation": speculates}
        self.sparkContext = self
        self._jsc: Any = SimpleNamespace(sc=lambda: SimpleNamespace(getPreferredLocs=self._locations))

    def statusTracker(self) -> Any:
        def info(stage: int) -> Any:
            count = self.attempts.get(stage)
            return None if count is None else SimpleNamespace(currentAttemptId=count - 1)

        return SimpleNamespace(getStageInfo=info)

    def _locations(self, rdd: Any, part: int) -> Any:
        self.asked += 1
        return SimpleNamespace(size=lambda: self.places[part])


def judged(
    attempts: dict[int, int],
    places: list[int],
    speculates: str | None = None,
    repeated: bool | None = False,
    copies: int = 1,
) -> tuple[bool, int]:
    """What it says, and how many blocks it has asked for."""
    session: Any = Session(attempts, places, speculates)
    rdd = SimpleNamespace(getNumPartitions=lambda: len(places))
    reports = [Report(part, 1, 0, (), {}, {}, stage=5) for part in range(len(places))]
    desk: Any = None if repeated is None else SimpleNamespace(repeated=repeated)
    return may_be_double(session, rdd, copies, reports, desk), session.asked


def test_what_was_attempted_once_is_single() -> None:
    """And nothing is asked for each partition."""
    assert judged({5: 1, 6: 9}, [1] * 200) == (False, 0)
    assert judged({5: 1}, [1] * 200, "false", None) == (False, 0)


@pytest.mark.parametrize("repeated", [None, False])
def test_a_stage_that_was_attempted_anew_is_enough(repeated: bool | None) -> None:
    """The older attempt may store what it has made later than this is asked."""
    assert judged({5: 2}, [1, 1], None, repeated) == (True, 0)


def test_two_tasks_of_a_partition_are_enough() -> None:
    """Of whatever stage."""
    assert judged({5: 1}, [1, 1], None, True) == (True, 0)


@pytest.mark.parametrize(
    ("places", "copies", "double"),
    [([1, 1, 1], 1, False), ([1, 2, 1], 1, True), ([2, 1], 2, False), ([2, 3], 2, True), ([], 1, False)],
)
def test_with_speculation_blocks_are_counted(places: list[int], copies: int, double: bool) -> None:
    """For tasks that have not reached the driver."""
    assert judged({5: 1}, places, "TRUE", None, copies) == (double, len(places))


def test_where_blocks_cannot_be_counted_there_may_be_two() -> None:
    """A Spark to come may not say it in this way."""
    session: Any = Session({5: 1}, [], "true")
    assert may_be_double(session, None, 1, [Report(0, 1, 0, (), {}, {}, stage=5)], None)


def test_where_spark_has_forgotten_the_stage_blocks_are_counted() -> None:
    """``spark.ui.retainedStages`` may be few."""
    assert judged({}, [1, 2]) == (True, 2)
    assert judged({}, [1, 1]) == (False, 2)
