"""Answers of a batch that is not committed yet, kept so that its replay makes only the calls that are missing.

Files in any file system that pyarrow knows and that the executors share: ``<root>/<query>/<batch>/<output>/*.arrow``.
Every file is complete or not there. A store that cannot be written or read fails no task: its answers are called
again. Another function, version, output or other columns have a folder of their own, so the answers of one are not
mistaken for those of another; in it, an answer is found by all values that it depends on.
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
from pyarrow import fs

from spark_events.enrichment.engine.calls import PENDING, Chunk
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.worker.replay_files import AnswerFiles, Open, open_store
from spark_events.enrichment.worker.rows import BatchSlice
from spark_events.enrichment.worker.values import named, or_each

__all__ = ["Recording", "ReplayStore"]

_KEY = "__key"
#: An answer is in the store this soon.
_FLUSH_SECONDS = 1.0
_FLUSH_ROWS = 10_000
#: Answers as the engine has them, to columns and the rows that have failed.
Write: TypeAlias = Callable[[Sequence[Any]], tuple[list[pa.Array], Mapping[int, object]]]
#: Chunks that have not gone out, with the answers that are there, and ``PENDING`` for the others.
Unfinished: TypeAlias = Callable[[], Iterable[tuple[Chunk, Sequence[Any]]]]


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayStore:
    """Where one enrichment of one batch keeps its answers.

    Args:
        root: the address of a folder, ``file:///…``, ``hdfs://…``, ``s3://…``, or a path.
        query: whose.
        batch: which.
        function: the name of the function.
        version: ``replay_version``.
        output: the schema of the answers, serialised.
        columns: names and types of the columns on which an answer depends, as text.
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
        """The name of the folder with the answers of this definition."""
        parts = (self.function.encode(), self.version.encode(), self.output, self.columns.encode())
        return hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()[:16]

    @property
    def query_folder(self) -> str:
        """The query's name as the name of a folder; a dot alone, or two, would lead out of the store."""
        return urllib.parse.quote(self.query, safe="").replace(".", "%2E")

    @contextlib.contextmanager
    def recording(self, partition: int) -> Iterator[Recording]:
        """What is known, and a place for what becomes known; what is recorded is kept whatever ends the task."""

        def opened() -> tuple[fs.FileSystem, str]:
            system, root = open_store(self.root)
            return system, f"{root}/{self.query_folder}/{self.batch}/{self.folder}"

        recording = Recording(self.root, opened, partition, pa.ipc.read_schema(pa.py_buffer(self.output)))
        try:
            yield recording
        finally:
            recording.flush()


class Recording:
    """One task's view of the store. The task adds what goes out; a thread looks at what does not yet."""

    def __init__(self, root: str, opened: Open, partition: int, schema: pa.Schema) -> None:
        # Every field nullable: a NOT NULL of the output has been checked before.
        fields = [pa.field(_KEY, pa.string()), *(field.with_nullable(True) for field in schema)]
        self._schema = pa.schema(fields)
        self._files = AnswerFiles(root, opened, partition, self._schema)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._early: dict[Chunk, set[int]] = {}
        self._lock = threading.Lock()
        # By batch: together they may be more than one array can hold.
        self._stored = self._files.read().to_batches()
        self._place = {
            key: (number, row)
            for number, batch in enumerate(self._stored)
            for row, key in enumerate(batch.column(_KEY).to_pylist())
        }

    @property
    def troubles(self) -> Sequence[str]:
        """What of the store could not be read or written, a sentence each."""
        return self._files.troubles

    def known(self, keys: Sequence[str]) -> Mapping[int, Any]:
        """The answers that are there, by the place of their key; :func:`.identity.answer_keys` makes these."""
        found: dict[int, list[tuple[int, int]]] = {}
        for index, key in enumerate(keys):
            if key in self._place:
                number, row = self._place[key]
                found.setdefault(number, []).append((index, row))
        names = self._schema.names[1:]
        answers: dict[int, Any] = {}
        for number, places in found.items():
            taken = self._stored[number].take(pa.array([row for _, row in places]))
            columns, unreadable = _values(taken, names)
            for place, ((index, _), answer) in enumerate(zip(places, zip(*columns, strict=True), strict=True)):
                if place not in unreadable:
                    answers[index] = dict(zip(names, answer, strict=True))
        return answers

    def add(self, chunk: Chunk, arrays: Sequence[pa.Array], failures: Mapping[int, object], start: int = 0) -> None:
        """Rows of a chunk go out, its last ones at last: what has been answered, except what was known before.

        Args:
            chunk: which.
            arrays: the columns of their answers.
            failures: those of them that have none, from ``start`` on.
            start: the first of these rows.
        """
        count = len(arrays[0])
        with self._lock:
            done = {*(chunk.known or ()), *self._early.get(chunk, ())}
            rows = [row for row in range(count) if start + row not in done and row not in failures]
            taken = [array.take(pa.array(rows, pa.int64())) for array in arrays]
            self._add(chunk, [start + row for row in rows], taken)
            if start + count == len(chunk.rows):
                self._early.pop(chunk, None)
            if self._pending_rows >= _FLUSH_ROWS:
                self._write_pending()

    @contextlib.contextmanager
    def looking_at(self, unfinished: Unfinished, write: Write) -> Iterator[None]:
        """Inside, and at the end, what has been answered of chunks that wait for their slowest call is kept as well.

        Args:
            unfinished: tells these chunks, from any thread.
            write: makes columns of answers.
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
        # All of it under the lock: a chunk that is seen here goes out after that.
        with self._lock:
            for chunk, answers in unfinished():
                early = self._early.setdefault(chunk, set())
                done = {*(chunk.known or ()), *early}
                there = [
                    row
                    for row, answer in enumerate(answers)
                    if answer is not PENDING and not isinstance(answer, RowFailure) and row not in done
                ]
                arrays, failures = write([answers[row] for row in there])
                fit = [place for place in range(len(there)) if place not in failures]
                columns = [array.take(pa.array(fit, pa.int64())) for array in arrays]
                self._add(chunk, [there[place] for place in fit], columns)
                early.update(there)
            self._write_pending()

    def _add(self, chunk: Chunk, rows: Sequence[int], arrays: Sequence[pa.Array]) -> None:
        if rows:
            told: BatchSlice = chunk.tag
            keys = pa.array([told.answer_keys[row] for row in rows], pa.string())
            self._pending.append(pa.RecordBatch.from_arrays([keys, *arrays], schema=self._schema))
            self._pending_rows += len(rows)

    def flush(self) -> None:
        """Writes what is pending as one file."""
        with self._lock:
            self._write_pending()

    def _write_pending(self) -> None:
        if not self._pending:
            return
        if self._files.write(self._pending):
            self._pending = []
            self._pending_rows = 0


def _values(taken: pa.RecordBatch, names: Sequence[str]) -> tuple[list[list[Any]], set[int]]:
    """Columns, and the rows of them that Python can give but not hold: moments that in UTC are of the year 10000."""
    unreadable: set[int] = set()

    def note(_one: pa.Array, row: int, _error: Exception) -> None:
        unreadable.add(row)

    return [or_each(array, note) for array, _ in named(taken, names)], unreadable
