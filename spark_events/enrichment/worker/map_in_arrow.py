"""What Spark's workers call: a task and Arrow batches in, the same batches with answers out."""

from __future__ import annotations

import dataclasses
import os
import pickle
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_events.enrichment.worker.driver_channel import TaskAttempt

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_events.enrichment.engine.engine import Definition
    from spark_events.enrichment.plan import Plan
    from spark_events.enrichment.worker.task import Task

__all__ = ["ACCUMULATOR", "Mapper"]

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
#: As pyspark.daemon asks it: whether this process gets another task. After one that did not end well it gets none.
_REUSED = "SPARK_REUSE_WORKER"

#: Plans of this process by what they were pickled to. A plan that is unpickled for every task would bring a new
#: function each time, with module state of its own.
_plans: dict[bytes, Plan] = {}
_MOST_PLANS = 16
#: Bytes that these were pickled to, in all: a function that holds a table is another one whenever that has changed, and
#: each is here twice. The latest stays, however large it is.
_MOST_BYTES = 64 << 20
#: In the pickle of a function that holds an accumulator of Spark's.
ACCUMULATOR = b"_deserialize_accumulator"


@dataclasses.dataclass(frozen=True, slots=True)
class Mapper:
    """A task, as ``mapInArrow`` calls it."""

    task: Task

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In Spark's task thread."""
        # Before the imports, which take a second in a new process: what a rate limit waits for goes on meanwhile.
        began = time.monotonic()
        from spark_events.enrichment.engine.process import close_unused, current_process
        from spark_events.enrichment.worker.partition import Partition

        # Behind the imports and before all that is of this task: what is there then stays for ever.
        current_process()
        plan = _plan(self.task.pickled)
        definition: Definition = pickle.loads(self.task.definition)
        attempt, scope = _place()
        if not self.task.settles:
            # Made once, but computed in every micro-batch anew, or whenever somebody looks: a destination that was down
            # then may be back.
            definition = dataclasses.replace(definition, batch=f"{definition.batch}/{attempt.stage}")
        again = False
        try:
            yield from Partition(self.task, plan, definition, attempt, scope, began).run(batches)
            again = bool(os.environ.get(_REUSED))
        finally:
            if not again:
                close_unused()


def _plan(pickled: bytes) -> Plan:
    if ACCUMULATOR in pickled:
        # Spark registers an accumulator with the task that unpickles it, and reads it when that task ends.
        return pickle.loads(pickled)  # type: ignore[no-any-return]
    found = _plans.pop(pickled, None)
    if found is None:
        found = pickle.loads(pickled)
    _plans[pickled] = found
    while len(_plans) > _MOST_PLANS or (len(_plans) > 1 and sum(map(len, _plans)) > _MOST_BYTES):
        del _plans[next(iter(_plans))]
    return found


def _place() -> tuple[TaskAttempt, str]:
    """Which task this is, whose stage each computation has its own of; and the scope as Spark tells it to the task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return TaskAttempt(), ""
    query = context.getLocalProperty(_QUERY_ID) or ""
    batch = context.getLocalProperty(_BATCH_ID) or ""
    attempt = TaskAttempt(context.partitionId(), context.stageId(), context.attemptNumber(), context.taskAttemptId())
    return attempt, f"{query}/{batch}" if query else ""
