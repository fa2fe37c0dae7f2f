"""Files of the replay store.

The store only avoids repeated calls, so a task continues without the files that it cannot write or read. The task
records a message for each error, and the driver logs the messages.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import fs

#: Number of consecutive failed writes after which a task stops writing, because each write may last as long as a
#: network timeout.
_MOST_FAILURES = 3


def open_store(root: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI or path, and the path within the file system.

    Raises:
        ValueError: when the URI is invalid or names no folder (pyarrow's own error is also a ValueError).
        OSError: when the file system cannot be reached.
    """
    system, path = fs.FileSystem.from_uri(root)
    if not path and not isinstance(system, fs.LocalFileSystem):
        raise ValueError("the address contains no folder")
    return system, path.rstrip("/")


class AnswerFiles:
    """The answer files of one task.

    Args:
        root: the store's URI, for messages.
        folder: the folder of the files, within the store.
        partition: the number of the task's partition.
        schema: the schema of all files.
    """

    def __init__(self, root: str, folder: str, partition: int, schema: pa.Schema) -> None:
        self._root = root
        self._partition = partition
        self._schema = schema
        self._failures = 0
        self._unwritten = ""
        self._warnings: list[str] = []
        self._location: tuple[fs.FileSystem, str] | None = None
        try:
            system, path = open_store(root)
            self._location = system, f"{path}/{folder}"
        except Exception as error:
            self._warn(f"replay store {root} cannot be reached, so a replay of this batch calls again", error)

    def read(self) -> pa.Table:
        """Return all answers that can be read."""
        tables = [self._schema.empty_table()]
        if self._location is None:
            return tables[0]
        system, folder = self._location
        try:
            infos = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        except Exception as error:
            self._warn(f"replay store {self._root} cannot be read; calling the function for all rows", error)
            return tables[0]
        for info in sorted(infos, key=lambda info: info.path):
            if info.path.endswith(".arrow"):
                try:
                    tables.append(self._read(system, info.path))
                except FileNotFoundError:
                    continue  # deleted meanwhile
                except Exception as error:
                    self._warn(f"replay store: unreadable file {info.path} is ignored, and its rows are called", error)
        return pa.concat_tables(tables)

    def _read(self, system: fs.FileSystem, path: str) -> pa.Table:
        with system.open_input_file(path) as file, pa.ipc.open_stream(file) as reader:
            table = reader.read_all()
        # A damaged file may still be valid Arrow data.
        table.validate(full=True)
        if not table.schema.equals(self._schema):
            raise ValueError("the columns of the file differ from those of the answers")
        return table

    def write(self, batches: Sequence[pa.RecordBatch]) -> bool:
        """Write batches as one file; the file receives its final name when it is complete.

        Returns:
            Whether the caller can drop the batches: they are stored, or the task has stopped writing.
        """
        if self._location is None or self._failures >= _MOST_FAILURES:
            return True
        system, folder = self._location
        path = f"{folder}/{self._partition}-{uuid.uuid4().hex}.arrow"
        try:
            system.create_dir(folder, recursive=True)
            with system.open_output_stream(f"{path}.part") as file, pa.ipc.new_stream(file, self._schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            if isinstance(system, fs.LocalFileSystem):
                _to_disk(f"{path}.part")
            system.move(f"{path}.part", path)
        except Exception as error:
            self._failures += 1
            # Use the folder's path instead of the file's, so that the messages of all tasks are equal and are logged
            # once.
            why = f"{type(error).__name__}: {error}".replace(path, folder)
            self._unwritten = f"replay store {self._root} cannot be written, so answers are not stored: {why}"
            with contextlib.suppress(Exception):
                system.delete_file(f"{path}.part")
            return self._failures >= _MOST_FAILURES
        self._failures, self._unwritten = 0, ""
        return True

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages about errors, one sentence each; a successful write clears an earlier write error."""
        return (*self._warnings, self._unwritten) if self._unwritten else tuple(self._warnings)

    def _warn(self, what: str, why: Exception) -> None:
        self._warnings.append(f"{what}: {type(why).__name__}: {why}")


def _to_disk(path: str) -> None:
    """Force the content to disk. After a power failure, a file system may have kept the name but not the content."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
