"""What runs on the executors: Arrow batches in, the same with answers out.

Only the standard library, pyarrow and what travels with this package may be imported here.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_events.enrich.spark.shipped import find_tenacity

if TYPE_CHECKING:
    from spark_events.enrich.engine.engine import Definition
    from spark_events.enrich.plan import Plan
    from spark_events.enrich.spark.halting import Halt
    from spark_events.enrich.spark.replay import ReplayStore

__all__ = ["Task"]

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"

#: Plans of this process by what they were pickled to. A plan that is unpickled for every task would bring a new
#: function each time, with module state of its own.
_plans: dict[bytes, Plan] = {}
_MOST_PLANS = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One enrichment, as ``mapInArrow`` calls it.

    Attributes:
        pickled: the plan.
        definition: pickled: what of the process may be used again.
        output: the schema of the answers, serialised.
        input_cols: what the function gets.
        identity: the columns that make a row, for its idempotency key.
        scope: query and batch, for the same; None: what the task's own properties say.
        settles: whether failures and the report go into a hidden column; otherwise the first failure ends the task,
            unless ``on_failure`` says what becomes of it.
        failure_column: where ``on_failure="column"`` puts failures when nothing settles.
        rate: attempts a second that one task may make.
        replay: where answers are kept until the batch is committed.
        halt: where it hears that the batch is given up.
    """

    pickled: bytes
    definition: bytes
    output: bytes
    input_cols: tuple[str, ...]
    identity: tuple[str, ...]
    scope: str | None
    settles: bool
    failure_column: str = ""
    rate: float | None = None
    replay: ReplayStore | None = None
    halt: Halt | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """In Spark's task thread."""
        find_tenacity()
        from spark_events.enrich.spark.partition import Partition

        plan = _plan(self.pickled)
        definition: Definition = pickle.loads(self.definition)
        yield from Partition(self, plan, definition, *_place()).run(batches)

    def output_schema(self) -> pa.Schema:
        """Of the answers."""
        return pa.ipc.read_schema(pa.py_buffer(self.output))


def _plan(pickled: bytes) -> Plan:
    found = _plans.pop(pickled, None)
    if found is None:
        found = pickle.loads(pickled)
    _plans[pickled] = found
    while len(_plans) > _MOST_PLANS:
        del _plans[next(iter(_plans))]
    return found


def _place() -> Sequence[Any]:
    """The partition's number, and the scope as Spark tells it to the task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0, ""
    query = context.getLocalProperty(_QUERY_ID) or ""
    batch = context.getLocalProperty(_BATCH_ID) or ""
    return context.partitionId(), f"{query}/{batch}" if query else ""
