"""Advice on a setting after a failure for lack of memory; nothing is applied, and weak evidence gives no advice.

An exit code alone (137, 143, 52) is weak: it shows neither which memory was full, nor who ended the process. Memory
that Spark has measured makes it firm. A proposed value is half more than the setting and than the measured memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from spark_events.records.types import MemoryPeaks

__all__ = ["Recommendation", "recommended"]

_HEAP = re.compile(r"OutOfMemoryError: (?:Java heap space|GC overhead limit exceeded)")
_CONTAINER = re.compile(
    r"(?:exceeding|beyond the)[ \w']{0,40}memory limits?\b[.:]?\s{0,2}(?P<used>\d[\d.]* ?\w?B of \d[\d.]* ?\w?B)?"
)
_KILLED_POD = re.compile(r"\bOOMKilled\b")
_RESULTS = re.compile(
    r"serialized results of [\d,]+ tasks \((?P<size>[\d.]+ \w?i?B)\) is bigger than (?:local result size limit )?"
    r"spark\.driver\.maxResultSize"
)
_BROADCAST = re.compile(
    r"Not enough memory to build and broadcast the table|[Cc]annot broadcast the table (?:that is larger|over)"
    r"|Size of broadcasted table far exceeds estimates"
)
_PYTHON = re.compile(r"^\W*(?:numpy\S*\.)?_?(?:Array)?MemoryError\b", re.MULTILINE)
_IN_WORKER = re.compile(r"PythonException|Python worker|pyspark/\S*worker\S*\.py")
#: Exit code 128 + 9 of an executor, or -9 of a Python worker
_KILLED = re.compile(r"(?i)(?:exit(?:ed)?|code|status)\D{0,30}(?:137|-9)\b|SIGKILL")
_SIZE = re.compile(r"(?i)\s*(\d+(?:\.\d+)?)\s*([kmgt])i?b?\s*")
_MIB = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0 * 1024}
_BYTES = 1 << 20
_UNMEASURED = MemoryPeaks()
_LEAST_OVERHEAD, _OVERHEAD = 384, 0.1
_OVERHEAD_SETTING = "spark.executor.memoryOverhead"
_PYTHON_SETTING = "spark.executor.pyspark.memory"
_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"


class Recommendation(NamedTuple):
    """A setting, its old and new value, and what speaks for the new one."""

    setting: str
    old: str
    new: str
    evidence: str

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the failure's event."""
        return {
            "failure.recommendation": f"{self.setting} {self.old} → {self.new}",
            "failure.recommendation.evidence": self.evidence,
        }


def recommended(
    failure_class: str, text: str, settings: Mapping[str, str], peaks: MemoryPeaks = _UNMEASURED
) -> Recommendation | None:
    """Return the advice for a failure; None if the evidence is weak.

    Args:
        failure_class: class of the failure.
        text: message and stack trace.
        settings: Spark's settings of the application; empty: unknown.
        peaks: memory that Spark has measured.

    >>> text = "Lost task 0.0: java.lang.OutOfMemoryError: Java heap space"
    >>> recommended("EXECUTOR_OUT_OF_MEMORY", text, {"spark.executor.memory": "4g"}).new
    '6g'
    """
    if not settings:
        return None
    if failure_class == "PYTHON_OUT_OF_MEMORY":
        return _of_python(text, settings, peaks) or _of_kill(text, settings, peaks)
    if failure_class == "EXECUTOR_OUT_OF_MEMORY":
        # A local application has no executors: its tasks run in the driver.
        process = "driver" if peaks.executor == "driver" else "executor"
        heap = _of_heap(process, text, settings, peaks)
        return _of_container(text, settings, peaks) or heap or _of_kill(text, settings, peaks)
    if failure_class == "DRIVER_OUT_OF_MEMORY":
        heap = _of_heap("driver", text, settings, peaks)
        return _of_results(text, settings) or _of_broadcast(text, settings) or heap
    return None


def _of_heap(process: str, text: str, settings: Mapping[str, str], peaks: MemoryPeaks) -> Recommendation | None:
    heap = _HEAP.search(text)
    if heap is None:
        return None
    who, peak = ("the driver", peaks.driver_heap) if process == "driver" else (_who(peaks), peaks.executor_heap)
    measured = f"the highest heap that Spark measured in {who} is {_shown(peak)}"
    if not peak:
        measured = f"Spark measured no heap in {who}"
    evidence = f"java.lang.{heap[0]} in the {process}; {measured}"
    return _larger(f"spark.{process}.memory", settings, "1g", evidence, peak / _BYTES)


def _who(peaks: MemoryPeaks) -> str:
    """Return whose the peaks are: those of the executor that failed, or the highest of any."""
    return f"executor {peaks.executor}" if peaks.executor else "an executor"


def _of_container(text: str, settings: Mapping[str, str], peaks: MemoryPeaks) -> Recommendation | None:
    container = _CONTAINER.search(text)
    measured = _outside_heap(settings, peaks)
    if container is None:
        # The default in Kubernetes depends on the language of the program.
        is_known = _KILLED_POD.search(text) and _OVERHEAD_SETTING in settings
        evidence = f"Kubernetes ended the container: OOMKilled{measured.clause}"
        return _larger(_OVERHEAD_SETTING, settings, "", evidence, measured.mib) if is_known else None
    default = _default_overhead(settings)
    if default is None:
        return None
    used, most = "", measured.mib
    if container["used"]:
        used = f", {container['used']} used"
        # What the container used, without the memory that other settings give it.
        given = [_mib(settings.get("spark.executor.memory", "1g")), _mib(settings.get(_PYTHON_SETTING, "0m"))]
        most = max(most, (_mib(container["used"].partition(" of ")[0]) or 0.0) - sum(size or 0.0 for size in given))
    evidence = f"the container exceeded its memory limit{used}{measured.clause}"
    return _larger(_OVERHEAD_SETTING, settings, default, evidence, most)


def _of_kill(text: str, settings: Mapping[str, str], peaks: MemoryPeaks) -> Recommendation | None:
    """Return the advice after SIGKILL, if Spark measured more memory outside the heap than the container has for it."""
    master = settings.get("spark.master", "")
    is_known = master.startswith("yarn") or (master.startswith("k8s") and _OVERHEAD_SETTING in settings)
    default = _default_overhead(settings)
    measured = _outside_heap(settings, peaks)
    if not is_known or default is None or not _KILLED.search(text):
        return None
    overhead = _mib(settings.get(_OVERHEAD_SETTING, default))
    if overhead is None or measured.mib <= overhead:
        return None
    evidence = f"the process was killed by SIGKILL{measured.clause}, more than the overhead"
    return _larger(_OVERHEAD_SETTING, settings, default, evidence, measured.mib)


class _Outside(NamedTuple):
    """Memory of an executor that its overhead has to contain, and the clause that says so."""

    mib: float
    clause: str


def _outside_heap(settings: Mapping[str, str], peaks: MemoryPeaks) -> _Outside:
    limit = _mib(settings.get(_PYTHON_SETTING, "0m")) or 0.0
    # Python's own limit is part of the container, and not of the overhead.
    python = max(0.0, peaks.executor_python / _BYTES - limit)
    size = peaks.executor_offheap / _BYTES + python
    if not size:
        return _Outside(0.0, f"; Spark measured no memory outside the heap of {_who(peaks)}")
    parts = f"{_shown(peaks.executor_offheap)} of the JVM"
    if peaks.executor_python:
        parts += f" and {_shown(peaks.executor_python)} of Python"
    return _Outside(size, f"; outside the heap of {_who(peaks)}, Spark measured at most {parts}")


def _default_overhead(settings: Mapping[str, str]) -> str | None:
    memory = _mib(settings.get("spark.executor.memory", "1g"))
    return None if memory is None else f"{max(_LEAST_OVERHEAD, round(_OVERHEAD * memory))}m"


def _of_python(text: str, settings: Mapping[str, str], peaks: MemoryPeaks) -> Recommendation | None:
    # Without this limit, the memory of the machine was full, which no setting describes.
    if _PYTHON_SETTING not in settings or not _PYTHON.search(text) or not _IN_WORKER.search(text):
        return None
    measured = f"Spark measured no memory of Python in {_who(peaks)}"
    if peaks.executor_python:
        measured = f"Spark measured at most {_shown(peaks.executor_python)} of Python in {_who(peaks)}"
    evidence = f"MemoryError in a Python worker, whose memory this setting limits; {measured}"
    return _larger(_PYTHON_SETTING, settings, "", evidence, peaks.executor_python / _BYTES)


def _of_results(text: str, settings: Mapping[str, str]) -> Recommendation | None:
    results = _RESULTS.search(text)
    if results is None:
        return None
    evidence = f"the results of the tasks had {results['size']} when Spark ended the job"
    return _larger("spark.driver.maxResultSize", settings, "1g", evidence, _mib(results["size"]) or 0.0)


def _of_broadcast(text: str, settings: Mapping[str, str]) -> Recommendation | None:
    found = _BROADCAST.search(text)
    old = settings.get(_THRESHOLD, "10MB")
    # Without automatic broadcasts, a hint in the program asked for this one.
    if found is None or old.strip().startswith("-"):
        return None
    return Recommendation(_THRESHOLD, old, "-1", f"{found[0][0].lower()}{found[0][1:]}")


def _larger(
    setting: str, settings: Mapping[str, str], default: str, evidence: str, least: float = 0.0
) -> Recommendation | None:
    """Return the advice to enlarge a setting; None if its value has no unit, so its size is in doubt.

    Args:
        setting: the setting.
        settings: Spark's settings.
        default: its value if it is not set.
        evidence: what speaks for a larger value.
        least: memory that was used, in MiB.
    """
    old = settings.get(setting, default)
    size = _mib(old)
    if size is None:
        return None
    wanted = 1.5 * max(size, least)
    step = 256 if wanted < 4096 else 1024
    new = -int(-wanted // step) * step
    return Recommendation(setting, old, f"{new // 1024}g" if new % 1024 == 0 else f"{new}m", evidence)


def _shown(size: float) -> str:
    mib = size / _BYTES
    return f"{mib:,.0f} MiB" if mib < 10_240 else f"{mib / 1024:,.1f} GiB"


def _mib(text: str) -> float | None:
    match = _SIZE.fullmatch(text)
    return None if match is None else float(match[1]) * _MIB[match[2].lower()]
