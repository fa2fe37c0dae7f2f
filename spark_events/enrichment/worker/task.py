"""What an enrichment's tasks are told; it travels to the executors pickled.

Only the standard library, pyarrow and what travels with this package may be imported here.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from spark_events.enrichment.worker.driver_channel import ChannelAddress
    from spark_events.enrichment.worker.replay import ReplayStore

__all__ = ["Task"]


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One enrichment, the same for all its partitions.

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
        channel: where it hears that its calls are no longer wanted.
        names: of the columns, where Spark was given others; empty: the batches have their own.
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
    channel: ChannelAddress | None = None
    names: tuple[str, ...] = ()

    def output_schema(self) -> pa.Schema:
        """Of the answers."""
        return pa.ipc.read_schema(pa.py_buffer(self.output))
