"""Processing of one partition by the engine, in the worker."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_events.enrichment.engine.calls import Chunk, Part
from spark_events.enrichment.engine.engine import Definition, Engine
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.engine.job_share import JobShare
from spark_events.enrichment.engine.job_state import TaskState
from spark_events.enrichment.engine.ledger import Ask, JobLimits, Lease, Ledger, leased
from spark_events.enrichment.engine.process import current_process
from spark_events.enrichment.hints import hints
from spark_events.enrichment.plan import Plan
from spark_events.enrichment.worker.answers import MOST_BYTES, AnswerWriter
from spark_events.enrichment.worker.report import (
    COLUMN,
    FAILURE_TYPE,
    HIDDEN_TYPE,
    PartitionReport,
    described,
    failure_values,
    position_of,
)
from spark_events.enrichment.worker.rows import BatchSlice, RowReader, answer_keys, idempotency_keys
from spark_events.enrichment.worker.values import hashable, identities_of
from spark_events.errors import EnrichmentError

if TYPE_CHECKING:
    from spark_events.enrichment.worker.channel_client import TaskAttempt
    from spark_events.enrichment.worker.replay import Recording
    from spark_events.enrichment.worker.task import Task

#: Maximum number of rows in a chunk. For each chunk, two threads must wake each other, which costs as much as a few
#: hundred calls.
_MOST_ROWS = 4_000
#: The buffer counts whole chunks, so chunks must be small enough for the buffer to hold `_CHUNKS` of them. A limit in
#: rows does not make chunks smaller than `_LEAST_ROWS`.
_CHUNKS, _LEAST_ROWS = 8, 1_000


class Partition:
    """The rows of one partition, from Spark to the engine and back.

    Args:
        task: the pickled task.
        plan: the unpickled plan of the task.
        definition: digests that identify reusable state of the process.
        attempt: the identity of this task attempt.
        scope: query and batch from the task's local properties.
        most_bytes: maximum size of the answers in one batch, see :class:`AnswerWriter`.
    """

    def __init__(
        self,
        task: Task,
        plan: Plan,
        definition: Definition,
        attempt: TaskAttempt,
        scope: str,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._task = task
        self._plan = plan
        self._attempt = attempt
        self._number = attempt.partition
        self._scope = f"{scope if task.scope is None else task.scope}\x1e{task.name}"
        self._rows = RowReader(task.input_cols)
        self._writer = AnswerWriter(task.output_schema(), most_bytes)
        self._share = None if task.job is None else JobShare(task.job, plan.budget)
        is_fixed = plan.window.min == plan.window.max
        self._shared = None if task.channel is None else TaskState(None if is_fixed else plan.task_window)
        self._calls = definition.calls
        self._engine = Engine(
            plan,
            definition,
            self._writer.misfit,
            share=self._share,
            shared=self._shared,
        )
        self._report = PartitionReport(attempt.partition, stage=attempt.stage)
        self._recording: Recording | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches with their answers; hold back the last batch until it can contain the report."""
        held: pa.RecordBatch | None = None
        with contextlib.ExitStack() as stack:
            if self._task.replay is not None:
                self._recording = stack.enter_context(self._task.replay.recording(self._number))
            process, share = current_process(), self._share
            if self._task.channel is not None:
                listening = self._task.channel.listening(
                    process.background,
                    self._attempt,
                    self._engine.cancel,
                    share,
                    self._share_evenly,
                    self._progress if self._task.settles else None,
                    self._shared,
                )
                stack.enter_context(listening)
            elif share is not None:
                stack.enter_context(process.background.running(functools.partial(self._share_evenly, "")))
            answered = self._engine.run(self._chunks(batches))
            if self._recording is not None:
                stack.enter_context(self._recording.looking_at(self._engine.unfinished, self._write_early))
            stack.callback(answered.close)  # type: ignore[attr-defined]  # it is a generator
            for chunk, answers in answered:
                for batch in self._enriched(chunk, answers):
                    if held is not None:
                        yield held
                    held = batch
        if held is not None:
            yield self._with_report(held) if self._task.settles else held

    def _progress(self) -> dict[str, Any]:
        """Return what the driver adds up while the task runs."""
        return {"rows": self._report.rows + self._engine.unreturned, **self._engine.progress()}

    async def _share_evenly(self, why: str) -> None:
        """Use an even share of the job's limits, because the driver leases none."""
        job, tasks = self._task.job, self._plan.tasks
        if why:
            text = (
                f"a task {why}; such tasks share the job's limits evenly, as if one ran in every task slot of the "
                "cluster: let executors connect to the driver, or give Limits.concurrent_tasks"
            )
            self._engine.hint(text)
            # The task of a lazy enrichment sends no report to the driver.
            current_process().warn_once(text)
        if self._shared is not None:
            self._shared.go_alone()
        if job is None or self._share is None:
            return
        limits = job.share(tasks)
        ledger = current_process().ledgers.get((self._calls, limits), lambda: Ledger(limits))
        try:
            await self._share.run(functools.partial(self._leased, ledger, limits))
        finally:
            ledger.leave(self._attempt)

    async def _leased(self, ledger: Ledger, limits: JobLimits, ask: Ask) -> Lease:
        share, budget = limits.amount_per_minute, self._plan.budget
        if share is not None and budget is not None and ask.first > share:
            self._engine.hint(
                f"the estimate of a call exceeds the share of its task ({share:,g} of "
                f"Budget.per_minute={budget.per_minute:,g}), so concurrent tasks may exceed the budget in a single "
                "minute: use a smaller batch_size, or run fewer tasks and set Limits.concurrent_tasks"
            )
        return await leased(ledger, self._attempt, ask)

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
        first = 0
        for given in batches:
            batch = self._with_names(given)
            start = 0
            while start < batch.num_rows:
                # Each chunk improves the estimate of an answer's size.
                rows = _together(self._plan, batch, self._engine.answer_size)
                chunk = batch.slice(start, max(1, min(rows, self._engine.room)))
                start += chunk.num_rows
                yield self._chunk(chunk, first)
                first += chunk.num_rows

    def _with_names(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = self._task.names
        if not names:
            return batch
        fields = [field.with_name(name) for field, name in zip(batch.schema, names, strict=True)]
        return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))

    def _chunk(self, batch: pa.RecordBatch, first: int) -> Chunk:
        rows, failed = self._rows.read(batch)
        plan = self._plan
        keys = None if plan.key is None else _tuples(batch, plan.key)
        requests = None
        if plan.coalesce_by is not None:
            requests = _tuples(batch, plan.coalesce_by)
        elif plan.cache is not None:
            requests = [hashable(tuple(row)) for row in rows]
        key_of = idempotency_keys(self._scope, self._task.identity, batch)
        if self._recording is None:
            return Chunk(rows, key_of, batch.nbytes, keys, requests, None, failed, BatchSlice(batch, first))
        # The answer depends on the function's input, which may differ even for rows with the same identity.
        asked = dict.fromkeys([*self._task.identity, *self._task.input_cols, *(plan.coalesce_by or ())])
        tag = BatchSlice(batch, first, answer_keys(list(asked), batch))
        known = self._recording.known(tag.answer_keys)
        return Chunk(rows, key_of, batch.nbytes, keys, requests, known, failed, tag)

    def _enriched(self, answered: Chunk | Part, answers: list[Any]) -> Iterator[pa.RecordBatch]:
        """Yield answered rows with their answers, in several batches if the answers are large."""
        chunk, rows = (answered.chunk, answered.rows) if isinstance(answered, Part) else (answered, None)
        tag: BatchSlice = chunk.tag
        batch = tag.batch if rows is None else tag.batch.take(pa.array(rows, pa.int64()))
        indices = range(batch.num_rows) if rows is None else rows
        parts, recording = self._writer.parts(answers, self._engine.answer_size), self._recording
        try:
            for start, arrays, failures in parts:
                if recording is not None:
                    recording.add(chunk, arrays, failures, indices[start : start + len(arrays[0])])
                failed = {tag.start + indices[start + row]: failure for row, failure in failures.items()}
                yield self._joined(batch.slice(start, len(arrays[0])), arrays, failures, failed)
        finally:
            # If the task ends between two batches, record the answers of the batches that were not returned.
            if recording is not None:
                for start, arrays, failures in parts:
                    recording.add(chunk, arrays, failures, indices[start : start + len(arrays[0])])

    def _write_early(self, answers: Sequence[Any]) -> tuple[list[pa.Array], Mapping[int, object]]:
        """Convert the answers of incomplete chunks, so that the recording can store them."""
        try:
            return self._writer.write(answers)
        except pa.ArrowCapacityError:
            # One array cannot hold these answers; the recording stores them in parts when the chunk is returned.
            nothing = [pa.nulls(len(answers), field.type) for field in self._task.output_schema()]
            return nothing, dict.fromkeys(range(len(answers)))

    def _joined(
        self,
        batch: pa.RecordBatch,
        arrays: Sequence[pa.Array],
        failures: Mapping[int, RowFailure],
        failed: Mapping[int, RowFailure],
    ) -> pa.RecordBatch:
        """Return rows with their answers.

        ``failures`` are by index in the batch, ``failed`` by index in the partition.
        """
        if failed and not self._task.settles and self._plan.on_failure == "fail":
            row, failure = min(failed.items())
            position = position_of(self._number, row)
            raise EnrichmentError(f"no answer for {position}: {described(failure)}{hints(self._plan, [failure])}")
        self._report.add(batch.num_rows, failed)
        # Keep the nullability of the batch's own columns: since Spark 4.1, Spark may check it (validateSchema).
        fields = [*batch.schema, *(field.with_nullable(True) for field in self._task.output_schema())]
        columns = [*batch.columns, *arrays]
        if self._task.settles:
            fields.append(pa.field(COLUMN, HIDDEN_TYPE))
            reports = pa.nulls(batch.num_rows, pa.binary())
            columns.append(_hidden(_failure_array(batch.num_rows, failures), reports))
        elif self._task.failure_column:
            fields.append(pa.field(self._task.failure_column, FAILURE_TYPE))
            columns.append(_failure_array(batch.num_rows, failures))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _with_report(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the report in the hidden column of its last row."""
        report = self._report
        report.statistics = self._engine.statistics()
        report.warnings = () if self._recording is None else self._recording.warnings
        column = batch.schema.names.index(COLUMN)
        reports = pa.array([None] * (batch.num_rows - 1) + [report.to_bytes()], pa.binary())
        columns = list(batch.columns)
        columns[column] = _hidden(columns[column].field("failure"), reports)
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _together(plan: Plan, batch: pa.RecordBatch, answer: float | None) -> int:
    """Return the number of rows of the next chunk, from the estimated size of an answer in bytes.

    While this size is unknown (``answer`` is None), a chunk has as many rows as there are calls in flight, because the
    buffer must hold their answers anyway.
    """
    least = min(_LEAST_ROWS, plan.buffer_rows)
    by_rows = min(_MOST_ROWS, max(least, plan.buffer_rows // _CHUNKS))
    if answer is None:
        by_rows = min(by_rows, plan.window.initial * (plan.batch_size or 1))
    by_size = plan.buffer_bytes / _CHUNKS / max(1, batch.nbytes / len(batch) + (answer or 0))
    return max(1, min(by_rows, int(by_size)))


def _tuples(batch: pa.RecordBatch, names: Sequence[str]) -> list[Any]:
    columns = identities_of(batch, names)
    if len(columns) == 1:
        return [hashable(value) for value in columns[0]]
    return [hashable(values) for values in zip(*columns, strict=True)]


def _failure_array(rows: int, failures: Mapping[int, RowFailure]) -> pa.Array:
    if not failures:
        return pa.nulls(rows, FAILURE_TYPE)
    return pa.array([failure_values(failures[row]) if row in failures else None for row in range(rows)], FAILURE_TYPE)


def _hidden(failures: pa.Array, reports: pa.Array) -> pa.Array:
    fields = [HIDDEN_TYPE.field(0), HIDDEN_TYPE.field(1)]
    # Rows without a failure or report have a null struct, so a filter on the struct finds the other rows.
    nothing = pc.and_(failures.is_null(), reports.is_null())
    return pa.StructArray.from_arrays([failures, reports], fields=fields, mask=nothing)
