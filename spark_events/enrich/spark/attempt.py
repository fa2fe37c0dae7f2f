"""Which of a partition's attempts a task is; Spark may have several at the same time."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Attempt"]


class Attempt(NamedTuple):
    """As Spark tells it to a Python worker, which does not learn the number of its stage's attempt.

    Attributes:
        partition: its number.
        stage: the id of the stage, the same in all attempts of the stage.
        number: of the attempts of this task, from 0; a new attempt of the stage begins anew.
        task: Spark's id of this attempt: what is started later has a greater one.
    """

    partition: int = 0
    stage: int = 0
    number: int = 0
    task: int = 0

    def replaces(self, other: Attempt) -> bool:
        """Whether nobody waits for the other one any more, for Spark has given up the attempt of the stage it is of.

        Certain where it is true. In one attempt of a stage numbers grow with the ids; there, two attempts of a task run
        at the same time by speculation, and Spark takes the one that is there first.
        """
        if self.partition != other.partition or self.task <= other.task:
            return False
        return self.stage != other.stage or self.number <= other.number
