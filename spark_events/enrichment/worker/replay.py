"""Stored answers of an uncommitted batch, so that the replay of the batch makes only the missing calls.

The answers are files in a file system that pyarrow supports and that the executors share:
``<root>/<query>/<batch>/<output>/*.arrow``. A file appears only when it is complete. If the store cannot be written or
read, no task fails, but calls are repeated. Each definition (function, version, output and columns) has its own folder,
so answers of different definitions never mix. Within the folder, the key of an answer contains all values on which the
answer depends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from spark_events.enrichment.engine.calls import PENDING, Chunk
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.worker.replay_files import AnswerFiles
from spark_events.enrichment.worker.rows import BatchSlice
from spark_events.enrichment.worker.values import named, or_each

_KEY = "__key"
#: Maximum time until an answer is stored, in seconds.
_FLUSH_SECONDS = 1.0
_FLUSH_ROWS = 10_000
#: Function that converts the engine's answers to columns, and returns the failed rows.
Write: TypeAlias = Callable[[Sequence[Any]], tuple[list[pa.Array], Mapping[int, object]]]
#: Function that returns the chunks that are not yet returned to Spark, with their answers; `PENDING` marks missing
#: answers.
Unfinished: TypeAlias = Callable[[], Iterable[tuple[Chunk, Sequence[Any]]]]


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayStore:
    """Location of the stored answers of one enrichment of one batch.

    Args:
        root: the URI of a folder, ``file:///…``, ``hdfs://…``, ``s3://…``, or a path.
        query: the id or name of the query.
        batch: the number of the batch.
        function: the name of the enrichment, by default that of its function.
        version: ``Replay.version``.
        output: the schema of the answers, serialised.
        columns: names and types of the columns on which an answer depends, as a string.
    """

    root: str
    query: str
    batch: int
    function: str
    version: str
    output: bytes
    columns: str

    @property
    def folder(self) -> str:
        """Name of the folder with the answers of this definition."""
        parts = (self.function.encode(), self.version.encode(), self.output, self.columns.encode())
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()[:16]

    @property
    def query_folder(self) -> str:
        """The query's name, as a valid name for a folder.

        Dots are escaped, because "." and ".." would lead out of the store.
        """
        return urllib.parse.quote(self.query, safe="").replace(".", "%2E")

    @contextlib.contextmanager
    def recording(self, partition: int) -> Iterator[Recording]:
        """Yield a recording with the stored answers; the recording stores new answers even if the task fails."""
        folder = f"{self.query_folder}/{self.batch}/{self.folder}"
        recording = Recording(self.root, folder, partition, pa.ipc.read_schema(pa.py_buffer(self.output)))
        try:
            yield recording
        finally:
            recording.flush()


class Recording:
    """One task's access to the store.

    The task adds the answers of returned rows. A thread adds the answers of chunks that are not returned yet.
    """

    def __init__(self, root: str, folder: str, partition: int, schema: pa.Schema) -> None:
        # Every field allows nulls, because NOT NULL columns of the output have already been checked.
        fields = [pa.field(_KEY, pa.string()), *(field.with_nullable(True) for field in schema)]
        self._schema = pa.schema(fields)
        self._files = AnswerFiles(root, folder, partition, self._schema)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._lock = threading.Lock()
        # Read one batch per file, because all answers together may exceed the capacity of one array.
        self._stored = self._files.read().to_batches()
        self._positions = {
            key: (number, row)
            for number, batch in enumerate(self._stored)
            for row, key in enumerate(batch.column(_KEY).to_pylist())
        }

    @property
    def warnings(self) -> Sequence[str]:
        """Messages about errors while reading or writing the store, one sentence each."""
        return self._files.warnings

    def known(self, keys: Sequence[str]) -> Mapping[int, Any]:
        """Return the stored answers by index into ``keys``, which :func:`.rows.answer_keys` computes."""
        found: dict[int, list[tuple[int, int]]] = {}
        for index, key in enumerate(keys):
            if key in self._positions:
                number, row = self._positions[key]
                found.setdefault(number, []).append((index, row))
        names = self._schema.names[1:]
        answers: dict[int, Any] = {}
        for number, matches in found.items():
            taken = self._stored[number].take(pa.array([row for _, row in matches]))
            columns, unreadable = _values(taken, names)
            for position, ((index, _), answer) in enumerate(zip(matches, zip(*columns, strict=True), strict=True)):
                if position not in unreadable:
                    answers[index] = dict(zip(names, answer, strict=True))
        return answers

    def add(
        self, chunk: Chunk, arrays: Sequence[pa.Array], failures: Mapping[int, object], indices: Sequence[int]
    ) -> None:
        """Add the answers of a chunk's rows that are returned to Spark, except answers that are already stored.

        Args:
            chunk: the chunk of the rows.
            arrays: the columns of their answers.
            failures: the failed rows, by index into ``arrays``.
            indices: the indices of these rows in the chunk.
        """
        with self._lock:
            done = {*(chunk.known or ()), *chunk.tag.stored}
            rows = [row for row, index in enumerate(indices) if index not in done and row not in failures]
            taken = [array.take(pa.array(rows, pa.int64())) for array in arrays]
            self._add(chunk, [indices[row] for row in rows], taken)
            if self._pending_rows >= _FLUSH_ROWS:
                self._write_pending()

    @contextlib.contextmanager
    def looking_at(self, unfinished: Unfinished, write: Write) -> Iterator[None]:
        """Store the answers of unfinished chunks, periodically while the context is open, and when it ends.

        An unfinished chunk waits for its slowest call.

        Args:
            unfinished: returns these chunks; may be called from any thread.
            write: converts answers to columns.
        """
        over = threading.Event()

        def look() -> None:
            while not over.wait(_FLUSH_SECONDS):
                self._keep(unfinished, write)

        thread = threading.Thread(target=look, name="spark-events-replay", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._keep(unfinished, write)

    def _keep(self, unfinished: Unfinished, write: Write) -> None:
        # Hold the lock for the whole pass, so that a chunk found here is returned to Spark only after the pass.
        with self._lock:
            for chunk, answers in unfinished():
                done = {*(chunk.known or ()), *chunk.tag.stored}
                there = [
                    row
                    for row, answer in enumerate(answers)
                    if answer is not PENDING and not isinstance(answer, RowFailure) and row not in done
                ]
                arrays, failures = write([answers[row] for row in there])
                fit = [index for index in range(len(there)) if index not in failures]
                columns = [array.take(pa.array(fit, pa.int64())) for array in arrays]
                self._add(chunk, [there[index] for index in fit], columns)
                # Rows that do not fit count too, so that they are not converted again.
                chunk.tag.stored.update(there)
            self._write_pending()

    def _add(self, chunk: Chunk, rows: Sequence[int], arrays: Sequence[pa.Array]) -> None:
        if rows:
            tag: BatchSlice = chunk.tag
            keys = pa.array([tag.answer_keys[row] for row in rows], pa.string())
            self._pending.append(pa.RecordBatch.from_arrays([keys, *arrays], schema=self._schema))
            self._pending_rows += len(rows)

    def flush(self) -> None:
        """Write the pending answers as one file."""
        with self._lock:
            self._write_pending()

    def _write_pending(self) -> None:
        if not self._pending:
            return
        if self._files.write(self._pending):
            self._pending = []
            self._pending_rows = 0


def _values(taken: pa.RecordBatch, names: Sequence[str]) -> tuple[list[list[Any]], set[int]]:
    """Return columns, and the rows that Python cannot represent, such as UTC timestamps in the year 10000."""
    unreadable: set[int] = set()
    columns = [or_each(array, lambda _one, row, _error: unreadable.add(row)) for array, _ in named(taken, names)]
    return columns, unreadable
