"""Answers of a batch that is not committed yet, kept so that its replay makes only the calls that are missing.

Files in any file system that pyarrow knows and that the executors share: ``<root>/<query>/<batch>/<output>/*.arrow``.
Every file is complete or not there. A store that cannot be written or read fails no task: its answers are called
again. A changed output, or function, has a folder of its own, so the answers of one are not mistaken for
those of another; in it, an answer is found by all values that it depends on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import threading
import urllib.parse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import fs

from spark_events.enrichment.engine.calls import PENDING
from spark_events.enrichment.engine.chunk import Chunk
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.worker.replay_files import AnswerFiles, Open, open_store, stored_answers
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
    """The answers of one batch of one query.

    Args:
        root: the address of a folder, ``file:///…``, ``hdfs://…``, ``s3://…``, or a path.
        query: whose.
        batch: which.
        output: the schema of the answers, serialised.
        definition: what else they depend on: the same after a restart of the driver.
    """

    root: str
    query: str
    batch: int
    output: bytes
    definition: str

    @property
    def folder(self) -> str:
        """The name of the folder with the answers of this definition."""
        return hashlib.sha256(self.output + self.definition.encode()).hexdigest()[:16]

    def answers_of_others(self, known: Collection[str]) -> dict[str, int]:
        """Count the batch's answers under other definitions, by folder; none where there are own ones.

        Args:
            known: folders of the batch's other enrichments.

        Raises:
            OSError: the store cannot be read.
        """
        system, root = open_store(self.root)
        folders = _folders(system, f"{root}/{_name(self.query)}/{self.batch}")
        if any(one.base_name == self.folder for one in folders):
            return {}
        return {one.base_name: stored_answers(system, one.path) for one in folders if one.base_name not in known}

    @contextlib.contextmanager
    def recording(self, partition: int) -> Iterator[Recording]:
        """What is known, and a place for what becomes known; what is recorded is kept whatever ends the task."""

        def opened() -> tuple[fs.FileSystem, str]:
            system, root = open_store(self.root)
            return system, f"{root}/{_name(self.query)}/{self.batch}/{self.folder}"

        recording = Recording(self.root, opened, partition, pa.ipc.read_schema(pa.py_buffer(self.output)))
        try:
            yield recording
        finally:
            recording.flush()

    def clear_older(self) -> None:
        """Batches before this one are committed: a query does not go on before they are."""
        system, root = open_store(self.root)
        for folder in _folders(system, f"{root}/{_name(self.query)}"):
            if folder.base_name.isdigit() and int(folder.base_name) < self.batch:
                system.delete_dir(folder.path)

    def clear(self) -> None:
        """This batch is committed."""
        system, root = open_store(self.root)
        with contextlib.suppress(FileNotFoundError):
            system.delete_dir(f"{root}/{_name(self.query)}/{self.batch}")


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


def _name(query: str) -> str:
    # A dot alone, or two, would lead out of the store.
    return urllib.parse.quote(query, safe="").replace(".", "%2E")


def _folders(system: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return [info for info in found if info.type is fs.FileType.Directory]
