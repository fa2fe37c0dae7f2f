"""On a terminal, a line that says how far a long batch is."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from spark_events.enrichment.driver.micro_batch import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["told"]

#: Spark's own bar is not shown before half a second, either; what is over soon needs no line.
_AFTER_SECONDS = 2.0
_EVERY_SECONDS = 1.0
_GROUP = "spark.jobGroup.id"


@contextlib.contextmanager
def told(df: DataFrame, what: str, stream: TextIO | None = None) -> Iterator[None]:
    """While it is inside, every second: tasks that have ended, tasks in all, and for how long it has run."""
    stream = stream or sys.stderr
    if is_connect(df) or not stream.isatty():
        yield
        return
    over = threading.Event()
    context = df.sparkSession.sparkContext
    group = context.getLocalProperty(_GROUP)

    def tell() -> None:
        started = time.monotonic()
        wait = _AFTER_SECONDS
        while not over.wait(wait):
            wait = _EVERY_SECONDS
            with contextlib.suppress(Exception):  # a context that is being stopped
                done, tasks = _tasks(context, group)
                seconds = time.monotonic() - started
                line = f"\r\033[Kenrich {what}: {done} of {tasks} tasks, {seconds:.0f} s"
                if tasks:
                    print(line, end="", file=stream, flush=True)
        print("\r\033[K", end="", file=stream, flush=True)

    teller = threading.Thread(target=tell, name="enrich-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join(_EVERY_SECONDS)


def _tasks(context: Any, group: str | None) -> tuple[int, int]:
    tracker = context.statusTracker()
    done = tasks = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        if info is None or info.status != "RUNNING":
            continue
        for stage in map(tracker.getStageInfo, info.stageIds):
            if stage is not None:
                done += stage.numCompletedTasks
                tasks += stage.numTasks
    return done, tasks
