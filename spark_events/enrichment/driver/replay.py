"""The driver's side of the replay store: checks before a batch, warnings, and clearing after it.

Answers are stored by the function's name, ``replay_version``, the output and the columns that make a request. The code
of the function is not looked into: a changed function with the same version gets the stored answers.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections import OrderedDict

from pyarrow import fs

from spark_events.enrichment.driver.micro_batch import MicroBatch
from spark_events.enrichment.worker.replay import ReplayStore
from spark_events.enrichment.worker.replay_files import open_store, stored_answers
from spark_events.errors import InvalidPlanError

__all__ = ["answers_of_others", "check_definition", "check_store", "clear", "clear_older", "warn_of_other_definitions"]

_LOG = logging.getLogger(__name__)
_PROBE = b"spark-events"

#: What this process stored answers for: store, query, run, batch and folder, and the digest of the definition; empty
#: for a folder of an earlier process.
_definitions: OrderedDict[tuple[str, str, str, int, str], str] = OrderedDict()
_MOST_DEFINITIONS = 1_000


def check_store(root: str, *, shared: bool) -> None:
    """Check the address on the driver, before anything is called.

    Args:
        root: the address.
        shared: whether executors see the same local folders as the driver.

    Raises:
        InvalidPlanError: it is no address, or the folder cannot be used.
    """
    try:
        system, path = open_store(root)
        if shared or not isinstance(system, fs.LocalFileSystem):
            _try(system, path)
    except Exception as error:
        raise InvalidPlanError(
            f"replay_store is {root!r}, which cannot be used ({type(error).__name__}: {error}); allowed: a folder that "
            "the driver and all executors can write to, as an absolute path or as an address that pyarrow knows: "
            "file:///folder, hdfs://host/folder, s3://bucket/folder, gs://bucket/folder"
        ) from None


def _try(system: fs.FileSystem, folder: str) -> None:
    """Write a file, read it and delete it."""
    path = f"{folder}/probe-{uuid.uuid4().hex}"
    system.create_dir(folder, recursive=True)
    with system.open_output_stream(path) as file:
        file.write(_PROBE)
    try:
        with system.open_input_stream(path) as file:
            if file.read() != _PROBE:
                raise OSError("what was written to it is not what is read")
    finally:
        system.delete_file(path)


def check_definition(store: ReplayStore, batch: MicroBatch, digest: str) -> None:
    """Refuse two different functions that would share their answers in one run of a batch.

    Outside of streaming, a run that was started anew looks the same, so there it is a warning.

    Args:
        store: of one of them.
        batch: of both.
        digest: of the function, the resource and what they hold, valid in this process alone.

    Raises:
        InvalidPlanError: another function of the same name stored answers for this batch of a stream.
    """
    place = (store.root, batch.query, batch.run, store.batch, store.folder)
    known = _definitions.get(place) or digest
    _definitions[place] = known
    if len(_definitions) > _MOST_DEFINITIONS:
        _definitions.popitem(last=False)
    if known == digest:
        return
    said = f"replay_store: {store.function}, or what it holds, is not what stored answers for {batch} in this process"
    if batch.streams:
        raise InvalidPlanError(f"{said}; give each enrichment of a batch a replay_version of its own")
    _LOG.warning("%s; its stored answers are used all the same: give another replay_version to call again", said)


def warn_of_other_definitions(store: ReplayStore, batch: MicroBatch) -> None:
    """Warn, once for a batch, where there are stored answers but none of this definition."""
    run = (store.root, batch.query, batch.run, store.batch)
    try:
        found = answers_of_others(store, {folder for *place, folder in list(_definitions) if tuple(place) == run})
    except Exception as error:
        # The tasks read it, too, and say so.
        _LOG.debug("the folders of the replay store %s cannot be listed: %s", store.root, error)
        return
    if answers := sum(found.values()):
        # Another enrichment of this batch would find the same folders.
        _definitions.update({(*run, folder): "" for folder in found})
        _LOG.warning(
            "replay store %s holds %s answers of %s, all of another definition (another function, output, "
            "replay_version or other columns); all its rows are called again",
            store.root, f"{answers:,}", batch,
        )  # fmt: skip


def answers_of_others(store: ReplayStore, known: set[str]) -> dict[str, int]:
    """Count the batch's answers under other definitions, by folder; none where there are own ones.

    Args:
        store: of this definition.
        known: folders of the batch's other enrichments.

    Raises:
        OSError: the store cannot be read.
    """
    system, root = open_store(store.root)
    folders = _folders(system, f"{root}/{store.query_folder}/{store.batch}")
    if any(one.base_name == store.folder for one in folders):
        return {}
    return {one.base_name: stored_answers(system, one.path) for one in folders if one.base_name not in known}


def clear_older(store: ReplayStore) -> None:
    """Delete answers of earlier batches: a query goes on only when they are committed."""
    system, root = open_store(store.root)
    for folder in _folders(system, f"{root}/{store.query_folder}"):
        if folder.base_name.isdigit() and int(folder.base_name) < store.batch:
            system.delete_dir(folder.path)


def clear(store: ReplayStore) -> None:
    """Delete the answers of this batch, which is committed."""
    system, root = open_store(store.root)
    with contextlib.suppress(FileNotFoundError):
        system.delete_dir(f"{root}/{store.query_folder}/{store.batch}")


def _folders(system: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return [info for info in found if info.type is fs.FileType.Directory]
