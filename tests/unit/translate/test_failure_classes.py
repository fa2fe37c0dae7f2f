"""Tests of failure classes with real failure messages and their sources."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from fakes import ROOT

from spark_events.failures.classes import CLASSES, UNKNOWN
from spark_events.records.types import ExecutorRemoved, StageCompleted
from spark_events.translate.executors import Executors
from spark_events.translate.failures import Diagnostics

CORPUS = Path(__file__).parent / "fixtures" / "failures.jsonl"
#: Sets of texts. The rules were written for the set "rules". Each later set first measured the rules and was then used
#: to extend them.
ROUNDS = ("rules", "first check", "second check", "third check")


def corpus() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]


def test_nine_of_ten_real_failures_are_classified() -> None:
    """Nine of ten real failures have the class that was assigned by hand, and one of twenty at most a wrong class."""
    texts = corpus()
    found = [(text["class"], Diagnostics().of_text(text["text"]).attributes["failure.class"]) for text in texts]
    wrong = [pair for pair in found if pair[1] not in (pair[0], UNKNOWN)]
    assert len(wrong) <= len(texts) * 0.05, wrong
    assert sum(right == given for right, given in found) >= len(texts) * 0.9


def test_the_corpus_has_every_class_and_a_source_for_every_text() -> None:
    found = corpus()
    assert set(Counter(text["class"] for text in found)) == CLASSES.keys() | {UNKNOWN}
    assert {text["round"] for text in found} == set(ROUNDS)
    assert all(text["source"].startswith(("https://", "PySpark 4.3.0", "Apache Spark 4.3.0")) for text in found)


def test_the_page_lists_every_class_with_its_retry() -> None:
    """docs/events/verdicts.md lists every failure class of the code, whether a retry is useful, and the label."""
    page = (ROOT / "docs" / "events" / "verdicts.md").read_text(encoding="utf-8").split("## Classes of failures", 1)[1]
    rows = [line.split("|")[1:5] for line in page.split("\n## ", 1)[0].splitlines() if line.startswith("| ")]
    listed = {name.strip(): (retry.partition(";")[0].strip(), label.strip()) for name, _, retry, label in rows[1:]}
    known = {name: ("yes" if facts.retry else "no", facts.label or "") for name, facts in CLASSES.items()}
    assert listed == {UNKNOWN: ("", ""), **known}


def test_a_retry_is_stated_except_for_an_unknown_cause() -> None:
    """If the cause is unknown, failure.retry_useful is missing instead of false, so that a value is always reliable."""
    lost = Diagnostics().of_text("ExecutorLostFailure (executor 3 exited) Reason: heartbeat timed out").attributes
    assert (lost["failure.class"], lost["failure.retry_useful"]) == ("EXECUTOR_LOST", True)
    unknown = Diagnostics().of_text("java.io.IOException: odd").attributes
    assert unknown["failure.class"] == UNKNOWN
    assert "failure.retry_useful" not in unknown


def test_a_wrong_argument_of_this_package_is_user_code() -> None:
    """In the text of a stream's exception, spark_events' own error for a wrong argument tells that no rerun helps."""
    text = """org.apache.spark.sql.streaming.StreamingQueryException: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error
py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/app/job.py", line 20, in process
    enrich_batch(df, lookup)
  File "/x/spark_events/enrichment/signature.py", line 112, in check
    raise InvalidPlanError("fn is int, not a function")
spark_events.errors.InvalidPlanError: fn is int, not a function
"""
    found = Diagnostics().of_text(text).attributes
    names = ("failure.class", "failure.retry_useful", "failure.evidence", "failure.location")
    assert [found[name] for name in names] == ["USER_CODE", False, "type", "/app/job.py:20 in process"]


def test_a_lost_output_of_an_executor_without_memory_needs_memory() -> None:
    """If an executor ran out of memory, the next fetch failure has the memory class, and a retry is not useful."""
    executors = Executors()
    executors.removed(ExecutorRemoved(executor_id="7", time=5, reason="Command exited with code 137"))
    reason = "org.apache.spark.shuffle.FetchFailedException: Connection reset"
    record = StageCompleted(
        stage_id=1, attempt=0, name="s", tasks=1, time=9, failure_reason=reason, lost_executor="7", lost_host="h"
    )
    plain = Diagnostics().of_text(reason)
    assert plain.attributes["failure.class"] == "FETCH_FAILURE"
    explained = executors.explain_stage(record, 1, plain).attributes
    assert (explained["failure.class"], explained["failure.retry_useful"]) == ("EXECUTOR_OUT_OF_MEMORY", False)
