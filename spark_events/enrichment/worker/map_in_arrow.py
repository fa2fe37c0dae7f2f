"""Entry point of Spark's workers: receives a task and Arrow batches, and returns the batches with answers."""

from __future__ import annotations

import dataclasses
import os
import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_events.enrichment.worker.channel_client import TaskAttempt

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_events.enrichment.engine.engine import Definition
    from spark_events.enrichment.plan import Plan
    from spark_events.enrichment.worker.task import Task

#: Local properties of Spark's tasks and of the threads of foreachBatch.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
#: Environment variable of pyspark.daemon. It shows whether this process will run further tasks; after a failed task, it
#: runs none.
_REUSED = "SPARK_REUSE_WORKER"

#: Unpickled plans of this process, by their pickled bytes. Unpickling a plan for every task would create a new
#: function, with new module state, for each task.
_plans: dict[bytes, Plan] = {}
_MOST_PLANS = 16
#: Limit for the total size of the pickled plans. If a function references a table, every change of the table adds a
#: plan, and each plan is in memory twice. The latest plan is kept even if it exceeds the limit.
_MOST_BYTES = 64 << 20
#: Bytes that occur in the pickle of every function that references a Spark accumulator.
ACCUMULATOR = b"_deserialize_accumulator"


@dataclasses.dataclass(frozen=True, slots=True)
class Mapper:
    """Callable that ``mapInArrow`` applies to each partition."""

    task: Task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Enrich the batches of one partition; runs in Spark's task thread."""
        from spark_events.enrichment.engine.process import close_unused, current_process
        from spark_events.enrichment.worker.partition import Partition

        # Call this function after the imports and before this task creates objects, because it excludes all existing
        # objects from garbage collection.
        current_process()
        plan = _plan(self.task.pickled)
        definition: Definition = pickle.loads(self.task.definition)
        attempt, scope = _attempt_and_scope()
        if not self.task.settles:
            # A lazy enrichment is defined once, but computed in every micro-batch or action. A destination that was
            # down may be up again, so each stage counts as a new batch.
            definition = dataclasses.replace(definition, batch=f"{definition.batch}/{attempt.stage}")
        again = False
        try:
            yield from Partition(self.task, plan, definition, attempt, scope).run(batches)
            again = bool(os.environ.get(_REUSED))
        finally:
            if not again:
                close_unused()


def _plan(pickled: bytes) -> Plan:
    if ACCUMULATOR in pickled:
        # Spark registers an accumulator with the task that unpickles it, and reads the accumulator when that task ends.
        return pickle.loads(pickled)  # type: ignore[no-any-return]
    found = _plans.pop(pickled, None)
    if found is None:
        found = pickle.loads(pickled)
    _plans[pickled] = found
    while len(_plans) > _MOST_PLANS or (len(_plans) > 1 and sum(map(len, _plans)) > _MOST_BYTES):
        del _plans[next(iter(_plans))]
    return found


def _attempt_and_scope() -> tuple[TaskAttempt, str]:
    """Return this task attempt and the scope (query and batch) from Spark's task context.

    Each computation of a DataFrame has its own stage.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskAttempt(), ""
    query = context.getLocalProperty(QUERY_ID) or ""
    batch = context.getLocalProperty(BATCH_ID) or ""
    attempt = TaskAttempt(context.partitionId(), context.stageId(), context.attemptNumber(), context.taskAttemptId())
    return attempt, f"{query}/{batch}" if query else ""
