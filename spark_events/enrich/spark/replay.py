"""Answers of a batch that is not committed yet, kept so that its replay makes only the calls that are missing.

Files in any file system that pyarrow knows and that the executors share: ``<root>/<query>/<batch>/<output>/*.arrow``.
Every file is complete or not there. A changed output has a folder of its own, so old answers are not mistaken for new.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import fs

from spark_events.enrich.engine.chunk import Chunk
from spark_events.enrich.spark.rows import columns_of

__all__ = ["Recording", "ReplayStore"]

_KEY = "__key"
#: An answer is in the store this soon after its chunk has gone out.
_FLUSH_SECONDS = 1.0
_FLUSH_ROWS = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayStore:
    """The answers of one batch of one query.

    Args:
        root: the address of a folder, ``file:///…``, ``hdfs://…``, ``s3://…``, or a path.
        query: whose.
        batch: which.
        output: the schema of the answers, serialised, and the function's name.
    """

    root: str
    query: str
    batch: int
    output: bytes
    name: str

    @contextlib.contextmanager
    def recording(self, partition: int) -> Iterator[Recording]:
        """What is known, and a place for what becomes known; what is recorded is kept whatever ends the task."""
        system, root = _open(self.root)
        digest = hashlib.sha256(self.output + self.name.encode()).hexdigest()[:16]
        folder = f"{root}/{_name(self.query)}/{self.batch}/{digest}"
        recording = Recording(system, folder, partition, pa.ipc.read_schema(pa.py_buffer(self.output)))
        try:
            yield recording
        finally:
            recording.flush()

    def clear_older(self) -> None:
        """Batches before this one are committed: a query does not go on before they are."""
        system, root = _open(self.root)
        for folder in _folders(system, f"{root}/{_name(self.query)}"):
            if folder.base_name.isdigit() and int(folder.base_name) < self.batch:
                system.delete_dir(folder.path)

    def clear(self) -> None:
        """This batch is committed."""
        system, root = _open(self.root)
        with contextlib.suppress(FileNotFoundError):
            system.delete_dir(f"{root}/{_name(self.query)}/{self.batch}")


class Recording:
    """One task's view of the store."""

    def __init__(self, system: fs.FileSystem, folder: str, partition: int, schema: pa.Schema) -> None:
        self._system = system
        self._folder = folder
        self._partition = partition
        # Every field nullable: a NOT NULL of the output has been checked before.
        fields = [pa.field(_KEY, pa.string()), *(field.with_nullable(True) for field in schema)]
        self._schema = pa.schema(fields)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._flushed_at = time.monotonic()
        self._stored = self._read()
        self._place = {key: row for row, key in enumerate(self._stored.column(_KEY).to_pylist())}

    def known(self, keys: Sequence[str]) -> Mapping[int, Any]:
        """The answers that are there, by the place of their key."""
        found = [(index, self._place[key]) for index, key in enumerate(keys) if key in self._place]
        if not found:
            return {}
        answers = self._stored.take(pa.array([row for _, row in found])).combine_chunks()
        (batch,) = answers.to_batches() or [None]
        names = self._schema.names[1:]
        values = zip(*columns_of(batch, names), strict=True)
        return {index: dict(zip(names, answer, strict=True)) for (index, _), answer in zip(found, values, strict=True)}

    def add(self, chunk: Chunk, arrays: Sequence[pa.Array], failures: Mapping[int, object]) -> None:
        """What has been answered, except what was known before."""
        known = chunk.known or {}
        rows = [row for row in range(len(chunk.rows)) if row not in failures and row not in known]
        if rows:
            places = pa.array(rows)
            keys = pa.array([chunk.idempotency_key(row) for row in rows], pa.string())
            columns = [keys, *(array.take(places) for array in arrays)]
            self._pending.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            self._pending_rows += len(rows)
        if self._pending_rows >= _FLUSH_ROWS or time.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Writes what is pending as one file."""
        self._flushed_at = time.monotonic()
        if not self._pending:
            return
        path = f"{self._folder}/{self._partition}-{uuid.uuid4().hex}.arrow"
        self._system.create_dir(self._folder, recursive=True)
        with self._system.open_output_stream(f"{path}.part") as file, pa.ipc.new_stream(file, self._schema) as writer:
            for batch in self._pending:
                writer.write_batch(batch)
        self._system.move(f"{path}.part", path)
        self._pending = []
        self._pending_rows = 0

    def _read(self) -> pa.Table:
        tables = [self._schema.empty_table()]
        for info in self._system.get_file_info(fs.FileSelector(self._folder, allow_not_found=True)):
            if info.path.endswith(".arrow"):
                with self._system.open_input_file(info.path) as file, pa.ipc.open_stream(file) as reader:
                    tables.append(reader.read_all())
        return pa.concat_tables(tables)


def _open(root: str) -> tuple[fs.FileSystem, str]:
    system, path = fs.FileSystem.from_uri(root)
    return system, path.rstrip("/")


def _name(query: str) -> str:
    return urllib.parse.quote(query, safe="")


def _folders(system: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return [info for info in found if info.type is fs.FileType.Directory]
