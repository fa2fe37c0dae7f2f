"""Tests of the advice after a failure for lack of memory."""

from __future__ import annotations

import msgspec
import pytest
from fakes import START, application_start, decoded

from spark_events.failures.classes import CLASSES
from spark_events.records.types import MemoryPeaks
from spark_events.translate.recommendations import recommended
from spark_events.translate.translator import Translator

SETTINGS = {
    "spark.executor.memory": "4g",
    "spark.executor.memoryOverhead": "512m",
    "spark.executor.pyspark.memory": "2g",
    "spark.driver.maxResultSize": "1g",
}
HEAP = "java.lang.OutOfMemoryError: Java heap space"
GC = "java.lang.OutOfMemoryError: GC overhead limit exceeded"
TASK = "Job aborted: Lost task 0.3 in stage 2.0 (TID 5, h, executor 2): "
YARN = (
    "ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Container killed by YARN for "
)
WORKER = (
    "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "/opt/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 4327, in main\nMemoryError\n'
)
RESULTS = (
    "Total size of serialized results of 40 tasks (6.2 GiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)"
)
TOO_LARGE = "java.lang.OutOfMemoryError: Not enough memory to build and broadcast the table to all worker nodes. As a"
EXECUTOR, DRIVER, PYTHON = (f"{name}_OUT_OF_MEMORY" for name in ("EXECUTOR", "DRIVER", "PYTHON"))


@pytest.mark.parametrize(
    ("failure_class", "text", "advice", "evidence"),
    [
        (EXECUTOR, TASK + HEAP, "spark.executor.memory 4g → 6g", "Java heap space in the executor"),
        (
            EXECUTOR,
            TASK + GC,
            "spark.executor.memory 4g → 6g",
            "",
        ),
        (
            *(EXECUTOR, YARN + "exceeding memory limits. 4.5 GB of 4.5 GB physical memory used."),
            *("spark.executor.memoryOverhead 512m → 768m", "4.5 GB of 4.5 GB used"),
        ),
        (EXECUTOR, YARN + "exceeding physical memory limits.", "spark.executor.memoryOverhead 512m → 768m", "limit"),
        (EXECUTOR, "The executor with id 1 was OOMKilled", "spark.executor.memoryOverhead 512m → 768m", "OOMKilled"),
        (PYTHON, WORKER, "spark.executor.pyspark.memory 2g → 3g", "Python worker"),
        (DRIVER, RESULTS, "spark.driver.maxResultSize 1g → 10g", "6.2 GiB"),
        (DRIVER, TOO_LARGE, "spark.sql.autoBroadcastJoinThreshold 10MB → -1", "not enough memory to build"),
        (DRIVER, HEAP, "spark.driver.memory 1g → 1536m", "in the driver"),
    ],
)
def test_advice_names_setting_and_evidence(failure_class: str, text: str, advice: str, evidence: str) -> None:
    found = recommended(failure_class, text, SETTINGS)
    assert found is not None
    assert found.attributes["failure.recommendation"] == advice
    assert evidence in found.attributes["failure.recommendation.evidence"]


@pytest.mark.parametrize(
    ("failure_class", "text", "settings"),
    [
        # Settings are unknown, or a value has no unit.
        (EXECUTOR, TASK + HEAP, {}),
        (EXECUTOR, TASK + HEAP, {"spark.executor.memory": "4096"}),
        # An exit code does not tell which memory was full.
        (EXECUTOR, "ExecutorLostFailure (executor 3 exited) Reason: Command exited with code 137", SETTINGS),
        (EXECUTOR, "ExecutorLostFailure (executor 3 exited) Reason: Command exited with code 143", SETTINGS),
        (EXECUTOR, "ExecutorLostFailure (executor 3 exited) Reason: Command exited with code 52", SETTINGS),
        # Other memory than the heap
        (EXECUTOR, TASK + "java.lang.OutOfMemoryError: Metaspace", SETTINGS),
        (EXECUTOR, TASK + "java.lang.OutOfMemoryError: unable to create native thread", SETTINGS),
        # The default in Kubernetes depends on the language of the program.
        (EXECUTOR, "The executor with id 1 was OOMKilled", {"spark.executor.memory": "4g"}),
        # Without a limit of Spark, the machine's memory was full.
        (PYTHON, WORKER, {"spark.executor.memory": "4g"}),
        (PYTHON, "Traceback (most recent call last):\nMemoryError", SETTINGS),
        # A hint in the program asked for the broadcast.
        (DRIVER, TOO_LARGE, {"spark.sql.autoBroadcastJoinThreshold": "-1"}),
        *((name, TASK + HEAP, SETTINGS) for name in CLASSES if name not in (EXECUTOR, DRIVER)),
    ],
)
def test_weak_evidence_gives_no_advice(failure_class: str, text: str, settings: dict[str, str]) -> None:
    assert recommended(failure_class, text, settings) is None


GIB = 1 << 30
YARN_OF = YARN + "exceeding memory limits. {} GB of 6.5 GB physical memory used."
KILLED = "ExecutorLostFailure (executor 3 exited) Reason: Command exited with code 137"
ON_YARN = {"spark.master": "yarn", "spark.executor.memory": "4g"}
PYTHON_PEAKS = MemoryPeaks(executor_heap=3 * GIB, executor_offheap=GIB // 4, executor_python=3 * GIB)


@pytest.mark.parametrize(
    ("failure_class", "text", "settings", "peaks", "advice", "evidence"),
    [
        # A heap is never larger than its setting; the peak shows whether it was full.
        (
            *(EXECUTOR, TASK + HEAP, SETTINGS, MemoryPeaks(executor_heap=GIB), "spark.executor.memory 4g → 6g"),
            "Java heap space in the executor; the highest heap that Spark measured in an executor is 1,024 MiB",
        ),
        (
            *(DRIVER, HEAP, SETTINGS, MemoryPeaks(driver_heap=12 * GIB), "spark.driver.memory 1g → 18g"),
            "the highest heap that Spark measured in the driver is 12.0 GiB",
        ),
        # Heap 4 GiB, Python 2 GiB: what remains is overhead.
        (EXECUTOR, YARN_OF.format(7), SETTINGS, MemoryPeaks(), "spark.executor.memoryOverhead 512m → 1536m", "7 GB of"),
        (EXECUTOR, YARN_OF.format(6), SETTINGS, PYTHON_PEAKS, "spark.executor.memoryOverhead 512m → 2g", "of Python"),
        (
            *(EXECUTOR, "The executor with id 1 was OOMKilled", SETTINGS, PYTHON_PEAKS),
            *("spark.executor.memoryOverhead 512m → 2g", "256 MiB of the JVM and 3,072 MiB of Python"),
        ),
        # The executor of the failed task is known.
        (
            *(EXECUTOR, TASK + HEAP, SETTINGS, MemoryPeaks(executor="2", executor_heap=GIB)),
            *("spark.executor.memory 4g → 6g", "Spark measured in executor 2 is 1,024 MiB"),
        ),
        (
            *(EXECUTOR, TASK + HEAP, SETTINGS, MemoryPeaks(executor="2", driver_heap=GIB)),
            *("spark.executor.memory 4g → 6g", "Spark measured no heap in executor 2"),
        ),
        (
            *(EXECUTOR, KILLED, ON_YARN, msgspec.structs.replace(PYTHON_PEAKS, executor="2")),
            *("spark.executor.memoryOverhead 410m → 5g", "outside the heap of executor 2, Spark measured at most"),
        ),
        (
            *(PYTHON, WORKER, SETTINGS, msgspec.structs.replace(PYTHON_PEAKS, executor="2")),
            *("spark.executor.pyspark.memory 2g → 5g", "at most 3,072 MiB of Python in executor 2"),
        ),
        # The tasks of a local application run in the driver.
        (
            *(EXECUTOR, TASK + HEAP, SETTINGS, MemoryPeaks(executor="driver", driver_heap=GIB)),
            *("spark.driver.memory 1g → 1536m", "the highest heap that Spark measured in the driver is 1,024 MiB"),
        ),
        # SIGKILL with more memory outside the heap than the container has for it
        (EXECUTOR, KILLED, ON_YARN, PYTHON_PEAKS, "spark.executor.memoryOverhead 410m → 5g", "killed by SIGKILL"),
        (
            *(PYTHON, "Python worker exited unexpectedly (crashed): exit code -9", ON_YARN, PYTHON_PEAKS),
            *("spark.executor.memoryOverhead 410m → 5g", "3,072 MiB of Python, more than the overhead"),
        ),
        (
            *(EXECUTOR, KILLED, {**SETTINGS, "spark.master": "k8s://h"}, PYTHON_PEAKS),
            *("spark.executor.memoryOverhead 512m → 2g", ""),
        ),
        (
            PYTHON,
            WORKER,
            SETTINGS,
            PYTHON_PEAKS,
            "spark.executor.pyspark.memory 2g → 5g",
            "at most 3,072 MiB of Python",
        ),
    ],
)
def test_measured_memory_is_evidence_and_raises_the_value(
    failure_class: str, text: str, settings: dict[str, str], peaks: MemoryPeaks, advice: str, evidence: str
) -> None:
    found = recommended(failure_class, text, settings, peaks)
    assert found is not None
    assert found.attributes["failure.recommendation"] == advice
    assert evidence in found.evidence


@pytest.mark.parametrize(
    ("text", "evidence"),
    [
        (TASK + HEAP, "Spark measured no heap"),
        (YARN_OF.format(7), "Spark measured no memory outside the heap"),
    ],
)
def test_the_evidence_says_that_nothing_was_measured(text: str, evidence: str) -> None:
    found = recommended(EXECUTOR, text, SETTINGS)
    assert found is not None
    assert evidence in found.evidence


@pytest.mark.parametrize(
    ("text", "settings", "peaks"),
    [
        (KILLED, ON_YARN, MemoryPeaks(executor_offheap=GIB // 4)),
        # No container, so no overhead
        (KILLED, {**ON_YARN, "spark.master": "spark://h:7077"}, PYTHON_PEAKS),
        # The default depends on the language of the program.
        (KILLED, {**ON_YARN, "spark.master": "k8s://h"}, PYTHON_PEAKS),
        (KILLED.replace("137", "143"), ON_YARN, PYTHON_PEAKS),
    ],
)
def test_a_kill_without_evidence_gives_no_advice(text: str, settings: dict[str, str], peaks: MemoryPeaks) -> None:
    assert recommended(EXECUTOR, text, settings, peaks) is None


def test_the_event_of_a_failure_contains_the_advice() -> None:
    """The settings are those of the application's start, also after a restart of the sidecar."""
    start = application_start(settings={"spark.executor.memory": "4g"})
    job = {"kind": "job_start", "job_id": 1, "time": START}
    end = {
        "kind": "job_end",
        "job_id": 1,
        "time": START,
        "failure": {"chain": [{"type": "a.B", "message": TASK + HEAP}]},
        "peaks": {"executor_heap": 3 << 30},
    }
    translator = Translator()
    events = [event for record in (start, job, end) for event in translator.translate(decoded(record))]
    [failure] = [event for event in events if event.name == "JobFailureEvent"]
    assert failure.attributes["failure.recommendation"] == "spark.executor.memory 4g → 6g"
    assert "is 3,072 MiB" in str(failure.attributes["failure.recommendation.evidence"])
    assert "failure.recommendation" not in events[0].attributes
