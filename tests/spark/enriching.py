"""Spark session in this process, and functions that call the enrichment service from its workers.

The enrichment service listens on the loopback interface. Functions of test modules are pickled by value, because
workers cannot import pytest's modules.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from spark.harness import SMALL_SPARK, java_variables, pyspark_home

from spark_events import CircuitBreaker, Limits, Retry, enrich_batch

__all__ = [
    "GIVES_UP",
    "ONCE",
    "Client",
    "by_value",
    "enrich_at_ten_a_second",
    "first",
    "logged_opener",
    "lookup",
    "opener",
    "session",
    "stream",
]

ONCE = Retry(attempts=1)
#: For tests whose destination is down: the circuit breaker opens after one failed call.
GIVES_UP: dict[str, Any] = {
    "limits": Limits(max_in_flight=1, circuit_breaker=CircuitBreaker(failures=1, give_up_after=0)),
    "retry": ONCE,
}


class Client:
    """HTTP client that uses only asyncio streams, with one connection per call."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def get(self, key: Any, idempotency_key: str = "") -> dict[str, Any]:
        """Return the decoded JSON of the service's response.

        Raises:
            OSError: if the status is not 200 or the connection fails.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET /rows/{key} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: {idempotency_key}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(length)
        except asyncio.IncompleteReadError:
            raise ConnectionResetError("closed before the answer") from None
        finally:
            writer.close()
        if (status := int(head.split(b" ", 2)[1])) != 200:
            raise ConnectionError(f"status {status}")
        found: dict[str, Any] = json.loads(body)
        return found


def opener(port: int) -> Callable[[], Any]:
    """Return a resource that opens a client."""

    @contextlib.asynccontextmanager
    async def open_client() -> AsyncIterator[Client]:
        yield Client(port)

    return open_client


def logged_opener(port: int, path: str) -> Callable[[], Any]:
    """Return a resource that appends its process id to a file each time a process opens the resource."""

    @contextlib.asynccontextmanager
    async def open_client() -> AsyncIterator[Client]:
        with open(path, "a", encoding="utf-8") as file:  # noqa: ASYNC230
            file.write(f"{os.getpid()}\n")
        yield Client(port)

    return open_client


async def lookup(row: Any, ctx: Any) -> Mapping[str, Any]:
    """Call the service for the ``id`` of the row."""
    await ctx.resource.get(row.id, ctx.idempotency_key)
    return {"name": f"n{row.id}", "score": row.id / 2}


def by_value(module: str) -> None:
    """Pickle functions of this module and of the caller's module by value."""
    for name in (__name__, module):
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def session(folder: Path, **settings: str) -> Iterator[SparkSession]:
    """Run a small Spark session, and restore the environment variables afterwards."""
    names = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "JAVA_HOME")
    before = {name: os.environ.get(name) for name in names}
    (folder / "conf").mkdir(parents=True)
    os.environ.update(
        SPARK_HOME=str(pyspark_home()),
        SPARK_CONF_DIR=str(folder / "conf"),
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        **java_variables(),
    )
    builder = SparkSession.builder.appName("enriching")
    for key, value in {**SMALL_SPARK, "spark.sql.warehouse.dir": str(folder / "warehouse"), **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    try:
        yield spark
    finally:
        spark.stop()
        for name, earlier in before.items():
            if earlier is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = earlier


def first(df: DataFrame) -> Row:
    """Return the first row of a non-empty DataFrame."""
    row = df.first()
    assert row is not None
    return row


def stream(
    spark: SparkSession,
    source: Path,
    checkpoint: Path,
    process: Callable[[DataFrame, int], None],
    schema: str = "id long",
) -> Any:
    """Start a query over JSON files, with one file per micro-batch, that ends after the last file."""
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return (
        reader.json(str(source))
        .writeStream.foreachBatch(process)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def enrich_at_ten_a_second(spark: SparkSession, port: int) -> DataFrame:
    """Enrich twenty rows in two partitions, with one call at a time in each partition."""
    return enrich_batch(
        spark.range(0, 20, 1, 2),
        lookup,
        output="name string, score double",
        resource=opener(port),
        limits=Limits(rate_limit=10, max_in_flight=1, timeout=None, total_timeout=None),
    )
