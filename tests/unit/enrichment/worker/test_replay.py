"""Tests of the replay store on a local file system."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fakes import eventually

from spark_events.enrichment.driver.micro_batch import MicroBatch
from spark_events.enrichment.driver.replay import (
    check_definition,
    check_store,
    clear,
    clear_older,
    warn_of_other_definitions,
)
from spark_events.enrichment.engine.calls import PENDING, Chunk
from spark_events.enrichment.engine.failure import RowFailure
from spark_events.enrichment.worker.answers import AnswerWriter
from spark_events.enrichment.worker.replay import ReplayStore
from spark_events.enrichment.worker.rows import BatchSlice
from spark_events.errors import InvalidPlanError

SCHEMA = pa.schema([("name", pa.string()), ("tags", pa.map_(pa.string(), pa.int64()))])


def store(
    folder: Path, batch: int = 1, schema: pa.Schema = SCHEMA, function: str = "lookup", version: str = "1"
) -> ReplayStore:
    output = schema.serialize().to_pybytes()
    return ReplayStore(folder.as_uri(), "a query/with a slash", batch, function, version, output, "[]")


def chunk_of(keys: Sequence[str], known: Mapping[int, Any] | None = None) -> Chunk:
    """Return a chunk of rows with these keys."""
    tag = BatchSlice(pa.RecordBatch.from_pydict({"key": list(keys)}), 0, keys)
    return Chunk(list(keys), keys.__getitem__, 0, known=known, tag=tag)


def keep(kept: ReplayStore, keys: Sequence[str], failed: Sequence[int] = ()) -> None:
    chunk = chunk_of(keys)
    arrays = [pa.array([f"n{key}" for key in keys]), pa.array([{key: 1} for key in keys], SCHEMA.field(1).type)]
    with kept.recording(0) as recording:
        recording.add(chunk, arrays, dict.fromkeys(failed, None), range(len(keys)))


def test_a_replay_knows_the_answers(tmp_path: Path) -> None:
    """A replay uses the stored answers in any partition. Failures are not stored."""
    keep(store(tmp_path), ["a", "b", "c"], failed=[1])
    keep(store(tmp_path), ["d"])
    with store(tmp_path).recording(7) as recording:
        assert recording.known(["d", "x", "c", "b"]) == {
            0: {"name": "nd", "tags": {"d": 1}},
            2: {"name": "nc", "tags": {"c": 1}},
        }
        assert recording.known(["x"]) == {}


def test_a_stored_answer_that_python_cannot_represent_is_called_again(tmp_path: Path) -> None:
    """If Python cannot represent a stored answer, such as the year 10000, the call for its row is repeated.

    All other stored answers are used.
    """
    schema = pa.schema([("until", pa.timestamp("us", "UTC")), ("name", pa.string())])
    last = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.timezone(datetime.timedelta(hours=-5)))
    arrays, failures = AnswerWriter(schema).write([{"until": last, "name": "a"}, {"until": None, "name": "b"}])
    with store(tmp_path, schema=schema).recording(0) as recording:
        recording.add(chunk_of("ab"), arrays, failures, range(2))
    with store(tmp_path, schema=schema).recording(0) as recording:
        assert recording.known("ab") == {1: {"until": None, "name": "b"}}


def test_the_answers_of_a_failed_task_are_stored(tmp_path: Path) -> None:
    """The answers that a failed task received are stored, because the retry of the task needs them."""

    def task() -> None:
        with store(tmp_path).recording(0) as recording:
            arrays = [pa.array(["na"]), pa.array([{"a": 1}], SCHEMA.field(1).type)]
            recording.add(chunk_of(["a"]), arrays, {}, [0])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        task()
    with store(tmp_path).recording(0) as recording:
        assert list(recording.known(["a"])) == [0]


def test_answers_of_an_unfinished_chunk_are_stored_once(tmp_path: Path) -> None:
    """While the task runs, answers for an unfinished chunk are stored. The finished chunk does not store them again."""
    chunk = chunk_of("abcd", known={3: {"name": "nd", "tags": {}}})
    refused = RowFailure("error", "ValueError", "no")
    answers: list[Any] = [{"name": "na", "tags": {"a": 1}}, PENDING, refused, {"name": "nd", "tags": {}}]
    write = AnswerWriter(SCHEMA).write

    def stored() -> list[str]:
        with store(tmp_path).recording(1) as other:
            return [key for key in "abcd" if other.known([key])]

    with store(tmp_path).recording(0) as recording:
        with recording.looking_at(lambda: [(chunk, answers)], write):
            assert eventually(stored, what="the first answer to be stored") == ["a"]
            answers[1] = {"name": "nb", "tags": {}}
            assert eventually(lambda: len(stored()) == 2)
        arrays, failures = write(answers)
        recording.add(chunk, arrays, failures, range(len(chunk.rows)))
    assert stored() == ["a", "b"]
    tables = [pa.ipc.open_stream(path.read_bytes()).read_all() for path in tmp_path.rglob("*.arrow")]
    assert sorted(pa.concat_tables(tables).column("__key").to_pylist()) == ["a", "b"]


def test_late_valid_answers_are_stored(tmp_path: Path) -> None:
    """When a task is cancelled, valid answers are stored at once, not at the next interval."""
    chunk = chunk_of("abc")
    with store(tmp_path).recording(0) as recording:
        answers = [{"name": 1, "tags": {}}, {"name": "nb", "tags": {}}, PENDING]
        with recording.looking_at(lambda: [(chunk, answers)], AnswerWriter(SCHEMA).write):
            pass
    with store(tmp_path).recording(0) as recording:
        assert recording.known(list("abc")) == {1: {"name": "nb", "tags": {}}}


def test_answers_of_a_split_chunk_are_stored_once(tmp_path: Path) -> None:
    keys = [f"k{number}" for number in range(8)]
    chunk = chunk_of(keys)
    answers: list[Any] = [{"name": key, "tags": {}} for key in keys]
    with store(tmp_path).recording(0) as recording:
        with recording.looking_at(
            lambda: [(chunk, [*answers[:5], PENDING, PENDING, PENDING])], AnswerWriter(SCHEMA).write
        ):
            pass
        for start in (0, 4):
            arrays, failures = AnswerWriter(SCHEMA).write(answers[start : start + 4])
            recording.add(chunk, arrays, failures, range(start, start + 4))
    with store(tmp_path).recording(0) as recording:
        assert [answer["name"] for answer in recording.known(keys).values()] == keys
    files = [pa.ipc.open_stream(file.read_bytes()).read_all() for file in tmp_path.rglob("*.arrow")]
    assert sum(file.num_rows for file in files) == 8


def test_answers_belong_to_batch_output_and_function(tmp_path: Path) -> None:
    """Answers belong to a batch, an output and a function, so answers that an older program stored have no effect."""
    keep(store(tmp_path), ["a"])
    changed = pa.schema([("name", pa.int64())])
    others = [store(tmp_path, 2), store(tmp_path, schema=changed), store(tmp_path, function="other")]
    others += [store(tmp_path, version="2"), dataclasses.replace(store(tmp_path), columns="[id]")]
    for other in others:
        with other.recording(0) as recording:
            assert recording.known(["a"]) == {}


def test_own_answers_or_answers_of_another_batch_cause_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers of another definition are not reported if there are answers of this definition as well."""
    own, batch = store(tmp_path, version="2"), MicroBatch("q", 1, run="no warning")
    keep(store(tmp_path, 2), ["e"])
    warn_of_other_definitions(own, batch)
    keep(store(tmp_path), ["a", "b"])
    keep(own, ["a"])
    warn_of_other_definitions(own, batch)
    assert caplog.messages == []


def test_an_incomplete_file_is_ignored(tmp_path: Path) -> None:
    """An incomplete file is ignored: a file receives its final name only when it is complete."""
    keep(store(tmp_path), ["a"])
    (file,) = tmp_path.rglob("*.arrow")
    os.truncate(file, 20)
    file.rename(file.with_suffix(".arrow.part"))
    with store(tmp_path).recording(0) as recording:
        assert recording.known(["a"]) == {}


@pytest.mark.parametrize("how", ["empty", "cut short", "cut shorter", "not one", "another one"])
def test_a_damaged_file_is_ignored_and_reported(tmp_path: Path, how: str) -> None:
    """A damaged file is ignored and reported. It does not block the query, and all other files are used."""
    keep(store(tmp_path), ["a", "b"])
    (file,) = tmp_path.rglob("*.arrow")
    keep(store(tmp_path), ["c"])
    whole = file.read_bytes()
    another = pa.BufferOutputStream()
    with pa.ipc.new_stream(another, pa.schema([("x", pa.int8())])):
        pass
    damaged = {
        "empty": b"",
        "cut short": whole[: len(whole) * 2 // 3],
        "cut shorter": whole[:20],
        "not one": b"something else",
        "another one": another.getvalue().to_pybytes(),
    }
    file.write_bytes(damaged[how])
    with store(tmp_path).recording(0) as recording:
        assert list(recording.known(["a", "b", "c"])) == [2]
        (message,) = recording.warnings
    assert str(file) in message
    assert "is ignored" in message


@pytest.mark.parametrize(
    ("root", "why"),
    [
        ("relative/dir", "ArrowInvalid"),
        ("file:relative", "ArrowInvalid"),
        ("s4://bucket/x", "ArrowInvalid"),
        ("http://host/x", "ArrowInvalid"),
        ("s3://", "the address contains no folder"),
        ("{folder}/file", "Error"),
        ("{folder}/file/x", "Error"),
        ("/proc/nowhere", "Error"),
    ],
)
def test_an_invalid_store_is_rejected_on_the_driver(tmp_path: Path, root: str, why: str) -> None:
    """The driver rejects an invalid store with one sentence: the value, the reason and the allowed values."""
    (tmp_path / "file").touch()
    root = root.format(folder=tmp_path)
    with pytest.raises(InvalidPlanError) as caught:
        check_store(root, shared=True)
    message = str(caught.value)
    assert message.startswith(f"Replay.store is {root!r}, which cannot be used (")
    assert why in message
    assert "allowed: a folder that the driver and all executors can write to" in message


def test_a_valid_store_is_not_changed(tmp_path: Path) -> None:
    """The check of a valid store creates only its folder; on a cluster, the check creates nothing on the driver."""
    check_store((tmp_path / "new").as_uri(), shared=True)
    assert list((tmp_path / "new").iterdir()) == []
    check_store(str(tmp_path / "theirs"), shared=False)
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize("location", ["a file", "below a file", "nowhere"])
def test_an_unusable_store_fails_no_task(tmp_path: Path, location: str) -> None:
    """An unusable store does not fail a task: answers are not stored, and the store's failure is reported once."""
    (tmp_path / "file").touch()
    folder = {"a file": tmp_path / "file", "below a file": tmp_path / "file" / "x", "nowhere": Path("/proc/nowhere")}
    chunk = chunk_of(["a"])
    with store(folder[location]).recording(0) as recording:
        with recording.looking_at(lambda: [(chunk, [{"name": "na", "tags": {}}])], AnswerWriter(SCHEMA).write):
            assert recording.known(["a"]) == {}
        for key in "bcdef":
            keep_one(recording, key)
    assert "cannot be written, so answers are not stored" in recording.warnings[-1]
    assert len(recording.warnings) <= 2


def keep_one(recording: Any, key: str) -> None:
    arrays = [pa.array([key]), pa.array([{}], SCHEMA.field(1).type)]
    recording.add(chunk_of([key]), arrays, {}, [0])
    recording.flush()


def test_an_unknown_file_system_fails_no_task(tmp_path: Path) -> None:
    """An unknown file system, for example because its library is missing, fails no task."""
    with dataclasses.replace(store(tmp_path), root="nothing://x").recording(0) as recording:
        keep_one(recording, "a")
        assert recording.known(["a"]) == {}
    (message,) = recording.warnings
    assert message.startswith("replay store nothing://x cannot be reached")


def test_failed_writes_are_retried(tmp_path: Path) -> None:
    """Failed writes are retried. If the store recovers in time, no answer is lost and no error is reported."""
    root = tmp_path / "store"
    root.touch()
    with store(root).recording(0) as recording:
        keep_one(recording, "a")
        assert len(recording.warnings) == 1
        root.unlink()
        keep_one(recording, "b")
    assert recording.warnings == ()
    with store(root).recording(0) as again:
        assert list(again.known(["a", "b"])) == [0, 1]


def test_committed_batches_are_cleared(tmp_path: Path) -> None:
    """Older batches of a query are deleted at once. The current batch is deleted at its commit."""
    for batch in (1, 2, 3):
        keep(store(tmp_path, batch), ["a"])
    clear_older(store(tmp_path, 3))
    (query,) = tmp_path.iterdir()
    assert [folder.name for folder in query.iterdir()] == ["3"]
    clear(store(tmp_path, 3))
    clear(store(tmp_path, 4))
    assert list(query.iterdir()) == []


@pytest.mark.parametrize(("deletes", "batches"), [(clear, "batch 3"), (clear_older, "earlier batches")])
def test_a_failed_deletion_is_logged(
    deletes: Callable[[ReplayStore], None], batches: str, caplog: pytest.LogCaptureFixture
) -> None:
    """If answers cannot be deleted, the batch continues, and the log names the store and the next step."""
    deletes(dataclasses.replace(store(Path("/x"), 3), root="unknown://x"))
    (message,) = caplog.messages
    assert message.startswith(f"replay store unknown://x: deleting the answers of {batches} failed (")
    assert message.endswith("the query's next batch retries")


@pytest.mark.parametrize("query", [".", "..", "../..", "a.b"])
def test_no_query_name_leads_outside_the_store(tmp_path: Path, query: str) -> None:
    """No query name can refer to files outside the store, because the store deletes files."""
    folder = tmp_path / "a" / "store"
    for sibling in (tmp_path / "0", tmp_path / "a" / "0"):
        sibling.mkdir(parents=True)
    kept = dataclasses.replace(store(folder), query=query)
    keep(kept, ["a"])
    clear_older(dataclasses.replace(kept, batch=2))
    clear(dataclasses.replace(kept, batch=0))
    assert [sorted(path.name for path in at.iterdir()) for at in (tmp_path, tmp_path / "a")] == [
        ["0", "a"],
        ["0", "store"],
    ]
    (own,) = folder.iterdir()
    assert list(own.iterdir()) == []


def test_two_functions_of_one_name_do_not_share_answers_in_a_micro_batch(tmp_path: Path) -> None:
    """Two functions of one name in a micro-batch are rejected, unless each has a version.

    A repeated batch is accepted.
    """
    kept, batch = store(tmp_path), MicroBatch("q", 1, run="first")
    check_definition(kept, batch, "code")
    check_definition(kept, batch, "code")
    check_definition(store(tmp_path, version="2"), batch, "other code")
    check_definition(kept, dataclasses.replace(batch, run="second"), "other code")
    with pytest.raises(InvalidPlanError, match=r"give each enrichment of a batch its own Replay\.name"):
        check_definition(kept, batch, "other code")


def test_a_changed_enrichment_does_not_affect_answers_of_another_enrichment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If all stored answers have another definition that no enrichment of this run has, one warning is logged."""
    changed, same, batch = store(tmp_path, version="2"), store(tmp_path), MicroBatch("q", 1)
    keep(same, ["a", "b"])
    for one in (changed, same, changed):
        check_definition(one, batch, one.version)
        warn_of_other_definitions(one, batch)
    (message,) = caplog.messages
    assert "contains answers for batch 1 of query q, all of another definition" in message


def test_a_changed_function_of_a_batch_job_causes_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """If a batch job's function changes, a warning is logged, and stored answers are used, as after a restart."""
    batch = MicroBatch("q", 1, streams=False)
    check_definition(store(tmp_path), batch, "code")
    assert not caplog.messages
    check_definition(store(tmp_path), batch, "other code")
    (message,) = caplog.messages
    assert "the stored answers are used nevertheless: give another Replay.version" in message
