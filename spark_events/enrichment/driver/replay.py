"""Driver side of the replay store: checks before a batch, warnings, and deletion after the batch.

The key of a stored answer consists of the name of the enrichment, ``Replay.version``, the output, and the columns of a
request. The code is not part of the key: a changed function with the same version reuses the stored answers.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections import OrderedDict
from collections.abc import Iterator

from pyarrow import fs

from spark_events.enrichment.driver.micro_batch import MicroBatch
from spark_events.enrichment.worker.replay import ReplayStore
from spark_events.enrichment.worker.replay_files import open_store
from spark_events.errors import InvalidPlanError

_LOG = logging.getLogger(__name__)
_PROBE = b"spark-events"

#: Maps (store, query, run, batch, folder) to the digest of the definition whose answers this process has stored there.
#: The digest of a folder from an earlier process is "".
_definitions: OrderedDict[tuple[str, str, str, int, str], str] = OrderedDict()
_MOST_DEFINITIONS = 1_000


def check_store(root: str, *, shared: bool) -> None:
    """Check on the driver, before any call, that the replay store is usable.

    Args:
        root: the path or URI of the store.
        shared: whether executors and the driver have the same local folders.

    Raises:
        InvalidPlanError: when the address is invalid or the folder cannot be used.
    """
    try:
        system, path = open_store(root)
        if shared or not isinstance(system, fs.LocalFileSystem):
            _try(system, path)
    except Exception as error:
        raise InvalidPlanError(
            f"Replay.store is {root!r}, which cannot be used ({type(error).__name__}: {error}); allowed: a folder that "
            "the driver and all executors can write to, as an absolute path or as an address that pyarrow supports: "
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
                raise OSError("a test file does not contain the written data")
    finally:
        system.delete_file(path)


def check_definition(store: ReplayStore, batch: MicroBatch, digest: str) -> None:
    """Reject two different functions that would share their answers in one run of a batch.

    Outside of streaming, this check cannot tell such functions from a second run of the batch in the same process, so
    it only logs a warning.

    Args:
        store: the replay store of one enrichment of the batch.
        batch: the batch.
        digest: digest of the function, the resource and the objects that they reference; comparable within this process
            only.

    Raises:
        InvalidPlanError: when another function with the same name has stored answers for this batch of a stream.
    """
    owner = (store.root, batch.query, batch.run, store.batch, store.folder)
    known = _definitions.get(owner) or digest
    _definitions[owner] = known
    if len(_definitions) > _MOST_DEFINITIONS:
        _definitions.popitem(last=False)
    if known == digest:
        return
    problem = (
        f"Replay.store: {store.function}, or an object that it uses, differs from the function that stored answers for "
        f"{batch} in this process"
    )
    if batch.streams:
        raise InvalidPlanError(f"{problem}; give each enrichment of a batch its own Replay.name")
    _LOG.warning("%s; the stored answers are used nevertheless: give another Replay.version to call again", problem)


def warn_of_other_definitions(store: ReplayStore, batch: MicroBatch) -> None:
    """Warn once per batch if the store contains answers for other definitions, but no answer for this definition."""
    try:
        system, root = open_store(store.root)
        folders = {one.base_name for one in _folders(system, f"{root}/{store.query_folder}/{store.batch}")}
    except Exception as error:
        # The tasks read these folders too, and will report the error.
        _LOG.debug("the folders of the replay store %s cannot be listed: %s", store.root, error)
        return
    run = (store.root, batch.query, batch.run, store.batch)
    others = folders - {folder for *owner, folder in list(_definitions) if tuple(owner) == run}
    if others and store.folder not in folders:
        # Remember the folders; otherwise the other enrichments of the batch would warn about them again.
        _definitions.update({(*run, folder): "" for folder in others})
        _LOG.warning(
            "replay store %s contains answers for %s, all of another definition (another function, output, "
            "Replay.version or other columns); all rows are called again",
            store.root, batch,
        )  # fmt: skip


def clear_older(store: ReplayStore) -> None:
    """Delete the answers of earlier batches, which are committed: a query starts a batch only after committing them."""
    with _failure_logged(store, "earlier batches"):
        system, root = open_store(store.root)
        for folder in _folders(system, f"{root}/{store.query_folder}"):
            if folder.base_name.isdigit() and int(folder.base_name) < store.batch:
                system.delete_dir(folder.path)


def clear(store: ReplayStore) -> None:
    """Delete the answers of this batch after the batch is committed."""
    with _failure_logged(store, f"batch {store.batch}"), contextlib.suppress(FileNotFoundError):
        system, root = open_store(store.root)
        system.delete_dir(f"{root}/{store.query_folder}/{store.batch}")


@contextlib.contextmanager
def _failure_logged(store: ReplayStore, batches: str) -> Iterator[None]:
    """Log an error: old answers are harmless, because the next batch tries again to delete them."""
    try:
        yield
    except Exception as error:
        _LOG.warning(
            "replay store %s: deleting the answers of %s failed (%s); the query's next batch retries",
            store.root, batches, error,
        )  # fmt: skip


def _folders(system: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return [info for info in found if info.type is fs.FileType.Directory]
