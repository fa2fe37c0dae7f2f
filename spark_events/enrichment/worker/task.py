"""Task of an enrichment, pickled and sent to the executors.

This module may import only the standard library, pyarrow and modules that are shipped with this package.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from spark_events.enrichment.engine.ledger import JobLimits
    from spark_events.enrichment.worker.channel_client import ChannelAddress
    from spark_events.enrichment.worker.replay import ReplayStore


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """Settings of one enrichment, the same for all its partitions.

    Attributes:
        pickled: the pickled plan.
        definition: pickled digests that identify reusable state of a worker process.
        output: the serialised schema of the answers.
        input_cols: the columns that the function receives.
        identity: the columns that identify a row, for its idempotency key.
        name: the enrichment's own name, for the idempotency keys.
        scope: query and batch, for the idempotency key; None: read them from the task's local properties.
        settles: whether failures and the report are returned in a hidden column. If False, and ``on_failure`` is
            ``fail``, the first failure fails the task.
        failure_column: the column for failures of a lazy enrichment with ``on_failure="column"``; "" if there is none.
        job: limits of the job, leased by the driver, or divided by ``Plan.tasks`` if there is no channel; None: no
            limits.
        replay: the store of the answers until the batch is committed.
        channel: the address of the driver channel.
        names: the original column names if the batches have substitute names; otherwise empty.
    """

    pickled: bytes
    definition: bytes
    output: bytes
    input_cols: tuple[str, ...]
    identity: tuple[str, ...]
    scope: str | None
    settles: bool
    failure_column: str = ""
    job: JobLimits | None = None
    replay: ReplayStore | None = None
    channel: ChannelAddress | None = None
    names: tuple[str, ...] = ()
    name: str = ""

    def output_schema(self) -> pa.Schema:
        """Return the schema of the answers."""
        return pa.ipc.read_schema(pa.py_buffer(self.output))
