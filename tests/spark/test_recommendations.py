"""Test of the advice after real failures for lack of memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from spark.harness import PLAIN_EVENT_LOG, Lab, file_reporter, two_lines

from spark_events.event import Event
from spark_events.records.event_log.log_files import find_logs
from spark_events.translate.replays import LogCounts, Selection, read_log
from spark_events.translate.translation_config import TranslateConfig

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

SETTINGS = {
    **two_lines(),
    **file_reporter(Path("{folder}/events.jsonl")),
    "spark.master": "local-cluster[1,1,1024]",
    "spark.executor.memory": "512m",
    "spark.executor.pyspark.memory": "1g",
    "spark.driver.maxResultSize": "1m",
    "spark.task.maxFailures": "1",
    # Measure during short tasks, and Python's processes too.
    "spark.executor.metrics.pollingInterval": "50ms",
    "spark.executor.processTreeMetrics.enabled": "true",
    **PLAIN_EVENT_LOG,
}
ADVICE = {
    "python": "spark.executor.pyspark.memory 1g → 1536m",
    "results": "spark.driver.maxResultSize 1m → 256m",
    "heap": "spark.executor.memory 512m → 768m",
}


def test_each_kind_of_memory_has_its_own_advice(lab: Lab) -> None:
    run = lab.run("out_of_memory.py", defaults=SETTINGS)
    assert run.process.returncode == 0, run.tail()
    (log,) = [log for log in find_logs(run.folder) if log.path.name.startswith("app-")]
    events: list[Event] = []
    for some in read_log(log, TranslateConfig(), Selection(names=frozenset({"JobFailureEvent"})), LogCounts()):
        events += some
    live = [event["attributes"] for event in run.named("JobFailureEvent")]
    for known in ([event.attributes for event in events], live):
        assert advice(known) == ADVICE, [attributes["exception.message"] for attributes in known]
        evidence = advice(known, "failure.recommendation.evidence")
        measured = re.search(r"the highest heap that Spark measured in executor 0 is (\d+) MiB$", evidence["heap"])
        assert measured is not None, evidence
        assert 0 < int(measured[1]) <= 512
        assert re.search(r"Spark measured at most \d+ MiB of Python in executor 0$", evidence["python"]), evidence


def advice(known: Sequence[Mapping[str, Any]], attribute: str = "failure.recommendation") -> dict[str, Any]:
    """Return an attribute of the failure of each job, by the job's group."""
    jobs = [attributes for attributes in known if attributes["spark.entity"] == "job"]
    return {attributes["spark.job.group"]: attributes.get(attribute) for attributes in jobs}
