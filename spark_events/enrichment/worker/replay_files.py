"""The files of the replay store. It saves calls and nothing more: a task does without what it cannot write or read.

What the task had to do without it says, so that the driver can tell.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
from pyarrow import fs

__all__ = ["AnswerFiles", "Open", "open_store", "stored_answers"]

#: What makes the file system and the path in it.
Open: TypeAlias = Callable[[], tuple[fs.FileSystem, str]]
#: In a row; then it is not tried any more, for each time may take as long as a network lets one wait.
_MOST_FAILURES = 3
_ROWS = re.compile(r"-(\d+)\.arrow$")


def open_store(root: str) -> tuple[fs.FileSystem, str]:
    """The file system of an address, and the path in it.

    Raises:
        ValueError: it is no address of a folder; that of pyarrow's is one, too.
        OSError: the file system cannot be reached.
    """
    system, path = fs.FileSystem.from_uri(root)
    if not path and not isinstance(system, fs.LocalFileSystem):
        raise ValueError("it names no folder")
    return system, path.rstrip("/")


def stored_answers(system: fs.FileSystem, folder: str) -> int:
    """Count the answers in a folder by its files' names, which end with the number of rows."""
    files = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    found = (_ROWS.search(file.base_name) for file in files)
    return sum(int(rows[1]) for rows in found if rows is not None)


class AnswerFiles:
    """One task's files.

    Args:
        root: the store's address, to be told.
        opened: where its files are.
        partition: the task's.
        schema: of all files.
    """

    def __init__(self, root: str, opened: Open, partition: int, schema: pa.Schema) -> None:
        self._root = root
        self._partition = partition
        self._schema = schema
        self._failures = 0
        self._unwritten = ""
        self._troubles: list[str] = []
        self._place: tuple[fs.FileSystem, str] | None = None
        try:
            self._place = opened()
        except Exception as error:
            self._say(f"the replay store {root} cannot be reached, so nothing is kept in it", error)

    def read(self) -> pa.Table:
        """What is there and can be read."""
        tables = [self._schema.empty_table()]
        if self._place is None:
            return tables[0]
        system, folder = self._place
        try:
            infos = system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        except Exception as error:
            self._say(f"the replay store {self._root} cannot be read, so all rows are called", error)
            return tables[0]
        for info in sorted(infos, key=lambda info: info.path):
            if info.path.endswith(".arrow"):
                try:
                    tables.append(self._read(system, info.path))
                except FileNotFoundError:
                    continue  # cleared meanwhile
                except Exception as error:
                    self._say(f"a file of the replay store is ignored, and its rows are called: {info.path}", error)
        return pa.concat_tables(tables)

    def _read(self, system: fs.FileSystem, path: str) -> pa.Table:
        with system.open_input_file(path) as file, pa.ipc.open_stream(file) as reader:
            table = reader.read_all()
        # A file whose bytes are not those that were written may look like one all the same.
        table.validate(full=True)
        if not table.schema.equals(self._schema):
            raise ValueError("it has other columns")
        return table

    def write(self, batches: Sequence[pa.RecordBatch]) -> bool:
        """As one file, which gets its name when it is complete.

        Returns:
            Whether they need not be given again: they are there, or nothing will be written any more.
        """
        if self._place is None or self._failures >= _MOST_FAILURES:
            return True
        system, folder = self._place
        rows = sum(batch.num_rows for batch in batches)
        path = f"{folder}/{self._partition}-{uuid.uuid4().hex}-{rows}.arrow"
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
            # Where the file was to be says nothing, and would make each task's sentence another one.
            why = f"{type(error).__name__}: {error}".replace(path, folder)
            self._unwritten = f"the replay store {self._root} cannot be written, so answers are not kept: {why}"
            with contextlib.suppress(Exception):
                system.delete_file(f"{path}.part")
            return self._failures >= _MOST_FAILURES
        self._failures, self._unwritten = 0, ""
        return True

    @property
    def troubles(self) -> tuple[str, ...]:
        """What could not be done, a sentence each; what could in the end is none."""
        return (*self._troubles, self._unwritten) if self._unwritten else tuple(self._troubles)

    def _say(self, what: str, why: Exception) -> None:
        self._troubles.append(f"{what}: {type(why).__name__}: {why}")


def _to_disk(path: str) -> None:
    """A machine that goes down keeps the name of a file, but not always what is in it."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
