"""Tests of enrichment in foreachBatch. The service's log and the checkpoint show calls, commits and replays."""

from __future__ import annotations

import functools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from enrich_service import EnrichService, rule
from pyspark import InheritableThread, inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from spark.enriching import GIVES_UP, ONCE, by_value, lookup, opener, session, stream
from spark.harness import committed, wait_for

from spark_events import Auto, Buffer, EnrichmentError, InvalidPlanError, Limits, Replay, Retry, enrich, enrich_batch

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

OUTPUT = "name string, score double"
SECONDS = 240
#: Step that never answers, so that only the caller can end the call.
HELD = {"held": True}
WITHOUT_END = Limits(max_in_flight=2, timeout=None, total_timeout=None)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return a session in which Spark does not kill workers of finished jobs. The default is to kill them after 2 s."""
    by_value(__name__)
    with session(tmp_path_factory.mktemp("spark"), **{"spark.python.task.killTimeout": "1h"}) as made:
        yield made


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with two files of ten rows, one file per micro-batch."""
    folder = tmp_path / "source"
    folder.mkdir()
    for number in range(2):
        add_file(folder, number)
    return folder


def add_file(folder: Path, number: int) -> None:
    file = folder / f"{number}.json"
    file.write_text("".join(f'{{"id": {row}}}\n' for row in range(10 * number, 10 * number + 10)), encoding="utf-8")
    # A file source reads the oldest file first.
    os.utime(file, (time.time() - 100 + number,) * 2)


def writing(target: Path, service: EnrichService, **options: Any) -> Callable[[DataFrame, int], None]:
    """Return a typical foreachBatch function."""
    port = service.port

    def process(df: DataFrame, batch_id: int) -> None:
        made = enrich_batch(df, lookup, **{"output": OUTPUT, "resource": opener(port), **options})
        made.write.mode("overwrite").json(str(target / str(batch_id)))

    return process


def finish(query: Any) -> None:
    assert query.awaitTermination(SECONDS), "the query did not end"


def written(target: Path, batch: int) -> list[Mapping[str, Any]]:
    """Return the rows that a batch wrote to its sink."""
    files = sorted((target / str(batch)).glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def stored(spark: SparkSession) -> set[int]:
    """Return the ids of the stored RDDs."""
    return {int(number) for number in dict(spark.sparkContext._jsc.getPersistentRDDs())}


def running_tasks(spark: SparkSession) -> int:
    """Return the number of running tasks, including tasks of finished jobs."""
    (driver,) = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    return int(driver.numRunningTasks())


def outcomes(service: EnrichService) -> list[str]:
    """Return the number of calls by outcome."""
    return [call.outcome for call in service.calls()]


def test_a_batch_is_committed_after_its_last_answer(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    service.script(delay=0.02, tail=[0.2, 0.3])
    offset = time.time() - time.monotonic()
    query = stream(
        spark, source, tmp_path / "checkpoint", writing(tmp_path / "sink", service, limits=Limits(max_in_flight=3))
    )
    finish(query)
    assert committed(tmp_path / "checkpoint") == [0, 1]
    for batch in (0, 1):
        calls = [call for call in service.calls() if int(call.key) // 10 == batch]
        assert Counter(call.key for call in calls) == Counter(str(10 * batch + row) for row in range(10))
        commit = (tmp_path / "checkpoint" / "commits" / str(batch)).stat().st_mtime
        assert max(call.over_at for call in calls) + offset <= commit
        assert [row["name"] for row in written(tmp_path / "sink", batch)] == [
            f"n{call}" for call in range(10 * batch, 10 * batch + 10)
        ]


def test_a_failed_batch_is_not_committed_and_runs_again(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    service.script(rules=[rule("13", forever={"status": 500})])
    process = writing(tmp_path / "sink", service, retry=ONCE)
    query = stream(spark, source, tmp_path / "checkpoint", process)
    expected = r"EnrichmentError: 1 of 10 rows have no answer \(.*In batch 1 of query"
    with pytest.raises(StreamingQueryException, match=expected):
        finish(query)
    assert "ConnectionError: status 500" in str(query.exception())[:200]
    assert committed(tmp_path / "checkpoint") == [0]
    assert not (tmp_path / "sink" / "1").exists()
    before = {call.key: call.idempotency_key for call in service.calls()}
    assert len(service.calls()) == 20
    service.script()
    finish(stream(spark, source, tmp_path / "checkpoint", process))
    assert committed(tmp_path / "checkpoint") == [0, 1]
    again = {call.key: call.idempotency_key for call in service.calls()}
    assert again == {key: before[key] for key in map(str, range(10, 20))}
    assert len(set(before.values())) == 20


#: For calls that type checkers reject.
any_batch: Any = enrich_batch


async def reads_another_column(row: Any) -> dict[str, Any]:
    return {"name": row.user}


async def answers(row: Any) -> dict[str, Any]:
    return {"name": str(row.id)}


@pytest.mark.any_spark
@pytest.mark.parametrize(
    ("mistake", "cause"),
    [
        (lambda df: enrich_batch(df, answers, output=OUTPUT, input_cols="user"), "input_cols contains 'user', which "),
        (lambda df: any_batch(df, answers, OUTPUT), "enrich_batch(): too many positional arguments; write "),
        (lambda df: enrich_batch(df, answers, output=OUTPUT, limits=Limits(Auto(max=10, initial=20))), "initial is 20"),
        (lambda df: enrich_batch(df, answers, output=OUTPUT, retry=Retry(attempts=0)), "Retry.attempts is 0; allowed"),
        (lambda df: any_batch(df, answers, output=OUTPUT, on_failure="dead_letter").write, "returns two DataFrames"),
        (lambda df: enrich_batch(df, reads_another_column, output=OUTPUT), "no column 'user'; the function receives"),
    ],
)
def test_a_mistake_is_the_first_line_of_the_exception(
    spark: SparkSession, source: Path, tmp_path: Path, mistake: Callable[[DataFrame], object], cause: str
) -> None:
    """The exception of the query begins with the cause, not with frames of py4j and of this package."""

    def process(df: DataFrame, batch_id: int) -> None:
        mistake(df)

    query = stream(spark, source, tmp_path / "checkpoint", process)
    with pytest.raises(StreamingQueryException):
        finish(query)
    assert cause in str(query.exception())[:200]


@pytest.mark.any_spark
@pytest.mark.parametrize("query", [None, "mine"])
def test_stored_data_is_released_at_the_next_batch_and_at_the_end(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path, query: str | None
) -> None:
    """Stored data is released at the next batch and at the query's end, without a call by the user.

    Stored data is also released if Replay names the query.
    """
    add_file(source, 2)
    before = stored(spark)
    seen = []
    write = writing(tmp_path / "sink", service, replay=Replay(query=query))

    def process(df: DataFrame, batch_id: int) -> None:
        write(df, batch_id)
        write(df, batch_id)
        # Count only new data, because Spark may still release data of an earlier query.
        seen.append(len(stored(spark) - before))

    finish(stream(spark, source, tmp_path / "checkpoint", process))
    assert seen == [2, 2, 2]
    wait_for("the last batch to be released", lambda: not stored(spark) - before)


def test_files_in_the_checkpoint_directory_are_deleted_with_the_batch(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    """Checkpoint files are deleted at the next batch and when the query stops. No other data is stored."""
    folder = tmp_path / "reliable"
    spark.sparkContext.setCheckpointDir(str(folder))
    write = writing(tmp_path / "sink", service, limits=Limits(buffer=Buffer(storage="reliable")))
    before = stored(spark)
    seen = []

    def process(df: DataFrame, batch_id: int) -> None:
        write(df, batch_id)
        seen.append((len(list(folder.glob("*/*"))), len(stored(spark) - before)))

    finish(stream(spark, source, tmp_path / "checkpoint", process))
    assert seen == [(1, 0), (1, 0)]
    assert Counter(call.key for call in service.calls()) == Counter(map(str, range(20)))
    assert [row["id"] for batch in (0, 1) for row in written(tmp_path / "sink", batch)] == list(range(20))
    wait_for("the last one to be deleted", lambda: not list(folder.glob("*/*")))


def test_a_batch_may_set_job_groups(spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path) -> None:
    """Results that were settled in one job group are available in the next group and in parallel threads."""
    before = stored(spark)
    port = service.port
    seen: list[tuple[int, int]] = []
    results: list[list[str]] = []

    def process(df: DataFrame, batch_id: int) -> None:
        context = df.sparkSession.sparkContext

        def enriched(rows: DataFrame, column: str) -> DataFrame:
            async def call(row: Any, ctx: Any) -> dict[str, Any]:
                await ctx.resource.get(f"{column}-{row.id}")
                return {column: f"{column}{row.id}"}

            context.setJobGroup(f"{column} {batch_id}", column)
            return enrich_batch(rows, call, output=f"{column} string", input_cols="id", resource=opener(port))

        def alone(column: str) -> DataFrame:
            return enriched(df, column)

        both = enriched(enriched(df, "a"), "b")
        with ThreadPoolExecutor() as pool:
            parallel = [pool.submit(inheritable_thread_target(alone), column) for column in ("c", "d")]
            apart = [one.result() for one in parallel]
        query_id = context.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None
        waits = f"enrich-release-{query_id[:8]}"
        seen.append((len(stored(spark) - before), [one.name for one in enumerate_threads()].count(waits)))
        results.extend([row.a, row.b] for row in both.orderBy("id").collect())
        results.extend([row[1]] for one in apart for row in one.orderBy("id").collect())

    finish(stream(spark, source, tmp_path / "checkpoint", process))
    assert seen == [(4, 1), (4, 1)]
    ids = [range(10), range(10, 20)]
    assert results == [
        made
        for batch in ids
        for made in [*([f"a{n}", f"b{n}"] for n in batch), *([f"c{n}"] for n in batch), *([f"d{n}"] for n in batch)]
    ]
    assert set(Counter(call.key for call in service.calls()).values()) == {1}
    wait_for("the last batch to be released", lambda: not stored(spark) - before)


def test_a_replay_makes_only_missing_calls(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    """A replay makes only the missing calls. After the last commit, the replay store is empty."""
    store = tmp_path / "store"
    options = {"retry": ONCE, "replay": Replay(store=store.as_uri())}
    service.script(rules=[rule("1[36]", forever={"status": 500})])
    process = writing(tmp_path / "sink", service, **options)
    with pytest.raises(StreamingQueryException, match="2 of 10 rows"):
        finish(stream(spark, source, tmp_path / "checkpoint", process))
    # The cleanup after the query stops must not delete answers for this uncommitted batch.
    wait_for("the end to be seen", lambda: not [one for one in enumerate_threads() if "enrich-release" in one.name])
    (kept,) = store.iterdir()
    assert [folder.name for folder in kept.iterdir()] == ["1"]
    service.script()
    finish(stream(spark, source, tmp_path / "checkpoint", process))
    assert sorted(call.key for call in service.calls()) == ["13", "16"]
    assert written(tmp_path / "sink", 1) == [{"id": n, "name": f"n{n}", "score": n / 2} for n in range(10, 20)]
    # `os.walk` ignores folders that are deleted during the walk.
    wait_for("the store to be empty", lambda: not [file for *_, files in os.walk(store) for file in files])


@pytest.mark.any_spark
def test_a_replay_with_answers_of_another_definition_is_logged(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Stored answers of another definition cause one message, even if two enrichments find them."""
    store = tmp_path / "store"
    options = {"retry": ONCE, "replay": Replay(store=store.as_uri())}
    service.script(rules=[rule("13", forever={"status": 500})])
    with pytest.raises(StreamingQueryException, match="1 of 10 rows"):
        finish(stream(spark, source, tmp_path / "checkpoint", writing(tmp_path / "sink", service, **options)))
    assert "another definition" not in caplog.text
    service.script()
    other = writing(tmp_path / "sink", service, **options, output=f"{OUTPUT}, more string", on_failure="null")
    own = writing(tmp_path / "sink", service, **options, output="name string", on_failure="null")

    def process(df: DataFrame, batch_id: int) -> None:
        other(df, batch_id)
        own(df, batch_id)

    finish(stream(spark, source, tmp_path / "checkpoint", process))
    (message,) = [one for one in caplog.messages if "another definition" in one]
    assert "contains answers for batch 1" in message
    assert "all rows are called" in message


@pytest.mark.any_spark
def test_answers_are_cleared_if_the_failure_was_caught_and_the_batch_committed(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    """A retry within a batch uses the stored answers. The commit of the batch deletes these answers."""
    store = tmp_path / "store"
    write = writing(tmp_path / "sink", service, retry=ONCE, replay=Replay(store=store.as_uri()))
    service.script(rules=[rule("1?3", forever={"status": 500})])
    failures: list[int] = []

    def process(df: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            try:
                write(df, batch_id)
            except EnrichmentError as error:
                failures.append(error.failed)

    finish(stream(spark, source, tmp_path / "checkpoint", process))
    assert committed(tmp_path / "checkpoint") == [0, 1]
    assert failures == [1, 1, 1, 1]
    calls = Counter(call.key for call in service.calls())
    assert calls == Counter({str(row): 1 for row in range(20)}) + Counter({"3": 1, "13": 1})
    wait_for("the store to be empty", lambda: not [file for *_, files in os.walk(store) for file in files])


@pytest.mark.any_spark
def test_the_schema_and_the_function_may_change_across_restarts(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    """A restarted query may change columns, types and endpoint: its checkpoint contains no enrichment data."""

    async def other(row: Any, ctx: Any) -> dict[str, Any]:
        await ctx.resource.get(f"v2-{row.id}")
        return {"score": f"{row.id} points", "tags": ["a", "b"]}

    finish(stream(spark, source, tmp_path / "checkpoint", writing(tmp_path / "sink", service)))
    add_file(source, 2)
    port = service.port

    def process(df: DataFrame, batch_id: int) -> None:
        made = enrich_batch(df, other, output="score string, tags array<string>", resource=opener(port))
        made.write.mode("overwrite").json(str(tmp_path / "sink" / str(batch_id)))

    finish(stream(spark, source, tmp_path / "checkpoint", process))
    assert committed(tmp_path / "checkpoint") == [0, 1, 2]
    assert written(tmp_path / "sink", 1)[0] == {"id": 10, "name": "n10", "score": 5.0}
    assert written(tmp_path / "sink", 2)[0] == {"id": 20, "score": "20 points", "tags": ["a", "b"]}
    assert sorted(call.key for call in service.calls()[20:]) == [f"v2-{row}" for row in range(20, 30)]


def test_threads_of_foreach_batch_without_a_batch_are_rejected(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    """An enrichment in a thread of foreachBatch must know its batch from Spark's properties or from Replay.

    A thread that inherits Spark's properties knows its batch. An enrichment in a plain thread is rejected, except with
    an explicit Replay, or for work that is unrelated to the stream.
    """
    port = service.port
    ways: dict[str, Callable[[Callable[[], None]], Any]] = {
        "inheritable": InheritableThread,
        "target": lambda run: Thread(target=inheritable_thread_target(run)),
        "plain": lambda run: Thread(target=run),
    }
    known: list[tuple[str, int]] = []
    refused: list[str] = []

    def process(df: DataFrame, batch_id: int) -> None:
        def enriched(way: str, rows: DataFrame, **options: Any) -> None:
            async def called(row: Any, ctx: Any) -> dict[str, Any]:
                await ctx.resource.get(f"{way}-{batch_id}", ctx.idempotency_key)
                return {"done": True}

            try:
                known.append((way, enrich_batch(rows, called, output="done boolean", **options).count()))
            except InvalidPlanError as error:
                refused.append(str(error))

        def in_thread(kind: str, way: str, rows: DataFrame, **options: Any) -> None:
            thread = ways[kind](functools.partial(enriched, way, rows, resource=opener(port), **options))
            thread.start()
            thread.join()

        same = df.limit(1).selectExpr("1 as id")
        enriched("own", same, resource=opener(port))
        in_thread("inheritable", "inheritable", same)
        in_thread("target", "target", same)
        in_thread("plain", "given", same, replay=Replay(query="mine", batch_id=batch_id))
        in_thread("plain", "apart", spark.range(1))
        for replay in (Replay(), Replay(batch_id=batch_id), Replay(query="mine")):
            in_thread("plain", "plain", same, replay=replay)

    finish(stream(spark, source, tmp_path / "checkpoint", process))
    assert known == 2 * [(way, 1) for way in ("own", "inheritable", "target", "given", "apart")]
    assert len(refused) == 6
    assert all("start a pyspark.InheritableThread" in error and "or pass replay=Replay(" in error for error in refused)
    keys = {call.key: call.idempotency_key for call in service.calls()}
    assert len(service.calls()) == len(keys) == 10
    for batch in (0, 1):
        assert keys[f"inheritable-{batch}"] == keys[f"target-{batch}"] == keys[f"own-{batch}"]
    assert all(keys[f"{way}-0"] != keys[f"{way}-1"] for way in ("own", "given"))


def test_a_stopped_query_makes_no_further_calls(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    """When a query stops, its workers are notified and cancel calls in flight. No calls or commits follow."""
    service.script(rules=[rule(".*", forever=HELD)])
    process = writing(tmp_path / "sink", service, limits=WITHOUT_END)
    spark_stream = spark.readStream.schema("id long").json(str(source)).repartition(2)
    query = spark_stream.writeStream.foreachBatch(process).option("checkpointLocation", str(tmp_path / "c")).start()
    wait_for("two calls of each task", lambda: len(service.calls()) == 4)
    query.stop()
    wait_for("calls to end", lambda: outcomes(service) == ["gone"] * 4)
    wait_for("the tasks to end", lambda: not running_tasks(spark))
    assert outcomes(service) == ["gone"] * 4
    assert committed(tmp_path / "c") == []


@pytest.mark.any_spark
@pytest.mark.parametrize("how", ["cancelled", "failed"])
def test_a_job_that_ends_early_makes_no_further_calls(
    spark: SparkSession, service: EnrichService, tmp_path: Path, how: str
) -> None:
    service.script(rules=[rule(".*", forever=HELD)])
    flag = tmp_path / "flag"

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            if context.partitionId() == 1:
                while not flag.exists():
                    time.sleep(0.02)
                raise ValueError("a partition that cannot be read")
            yield batch

    def end() -> None:
        wait_for("calls", lambda: len(service.calls()) == 2)
        if how == "cancelled":
            spark.sparkContext.cancelAllJobs()
        else:
            flag.touch()

    df = spark.range(0, 400, 1, 2).mapInArrow(read, "id long")
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(end)
        with pytest.raises(Exception, match=r"cancelled|cannot be read"):
            enrich_batch(df, lookup, output=OUTPUT, resource=opener(service.port), limits=WITHOUT_END)
        ended.result()
    wait_for("calls to end", lambda: outcomes(service) == ["gone"] * 2)
    # The task that reads the result has no driver channel and receives no notification. Wait until it ends.
    flag.touch()
    wait_for("the tasks to end", lambda: not running_tasks(spark))
    assert outcomes(service) == ["gone"] * 2


def test_a_stream_without_foreach_batch_is_enriched_lazily(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    """Without foreachBatch, a stream is enriched lazily. Different checkpoints use different idempotency keys."""
    df = spark.readStream.schema("id long").json(str(source))
    enriched = enrich(df, lookup, output=OUTPUT, resource=opener(service.port))

    def run(name: str) -> dict[str, str]:
        service.script()
        query = (
            enriched.writeStream.format("json")
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start(str(tmp_path / "sink"))
        )
        finish(query)
        return {call.key: call.idempotency_key for call in service.calls()}

    first = run("checkpoint")
    assert sorted(map(int, first)) == list(range(20))
    assert len(service.calls()) == 20
    assert len(set(first.values())) == 20
    assert not set(first.values()) & set(run("another").values())


@pytest.mark.any_spark
def test_a_stream_without_foreach_batch_calls_a_recovered_destination(
    spark: SparkSession, service: EnrichService, source: Path, tmp_path: Path
) -> None:
    """Only rows of the micro-batch during the outage are null. The same worker makes calls for the next batch."""
    add_file(source, 2)
    service.script(rules=[rule("[0-9]", forever={"status": 500})])
    enriched = enrich(
        spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(source)).repartition(2),
        lookup,
        output=OUTPUT,
        resource=opener(service.port),
        **GIVES_UP,
        on_failure="null",
    )
    writer = enriched.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))
    finish(writer.trigger(availableNow=True).start(str(tmp_path / "sink")))
    files = (tmp_path / "sink").glob("*.json")
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert sorted(row["id"] for row in rows if "name" not in row) == list(range(10))
    assert sorted(int(call.key) for call in service.calls() if int(call.key) >= 10) == list(range(10, 30))
    assert len(service.calls()) < 20 + 10
