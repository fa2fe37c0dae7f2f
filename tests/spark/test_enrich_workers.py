"""Tests without worker reuse: each task runs in a new process, which closes its resource before it exits."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark.enriching import by_value, session

from spark_events import enrich, enrich_batch

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

SETTINGS = {"spark.python.worker.reuse": "false"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    by_value(__name__)
    with session(tmp_path_factory.mktemp("spark"), **SETTINGS) as made:
        yield made


def opener(path: Path) -> Callable[[], Any]:
    """Resource that records its process id when it is opened and when it is closed."""
    log = str(path)

    def note(what: str) -> None:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{what} {os.getpid()}\n")

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[None]:
        note("opened")
        yield
        note("closed")

    return opened


async def answered(row: Any, ctx: Any) -> dict[str, int]:
    return {"answer": row.id}


async def refused(row: Any, ctx: Any) -> dict[str, int]:
    raise ValueError("refused")


def test_every_task_closes_its_resource(spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The process of each task closes its resource although it runs no exit handlers. The driver logs a warning."""
    log = tmp_path / "log"
    with caplog.at_level(logging.WARNING, "spark_events"):
        settled = enrich_batch(spark.range(0, 6, 1, 3), answered, output="answer long", resource=opener(log))
    assert settled.count() == 6
    lines = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    assert Counter(what for what, _ in lines) == {"opened": 3, "closed": 3}
    assert len({process for _, process in lines}) == 3
    assert [text for text in caplog.messages if "spark.python.worker.reuse is off" in text and "resource" in text]


def test_a_failing_task_closes_its_resource(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    df = enrich(spark.range(0, 2, 1, 1), refused, output="answer long", resource=opener(log), retry=None)
    with pytest.raises(Exception, match="refused"):
        df.collect()
    assert [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()] == ["opened", "closed"]
