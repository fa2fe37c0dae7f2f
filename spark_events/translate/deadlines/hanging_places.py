"""Find the place where overdue work hangs, in a query's thread or in the tasks of a stage.

For a thread, the place is its most informative stack frame. For a stage, the place is the task that has been running
longest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from spark_events.event import AttributeValue
from spark_events.event.text import lasting
from spark_events.records.types import PythonFrame, QueryThread, RunningStage
from spark_events.translate.draft import counted
from spark_events.translate.origin import in_brackets
from spark_events.translate.user_code import UserCode

__all__ = ["Place", "attributes_of", "longest", "place_of", "tasks_of"]

#: ``package.Class.method(File:line)``
_FRAME = re.compile(r"(?P<class>[^(]+)\.(?P<method>[^.(]+)\((?P<place>.*)\)$")
#: Names that Scala assigns to functions inside a method: ``$anonfun$fetchLatestOffsets$1``.
_INNER = re.compile(r"^\$?anonfun\$(?P<method>[^$]+).*|\$(?:adapted|mc\w+\$sp|extension)?\d*$")
#: Libraries whose frames are skipped; the name of the calling method is more informative.
_WAITING = re.compile(
    r"(?:java|javax|jdk|sun|com\.sun|scala|py4j|io\.netty|org\.apache\.(?:kafka|hadoop)|org\.apache\.spark\.util)\."
    r"|.*\$Proxy\d*"
)
_JOB = "org.apache.spark.scheduler.DAGScheduler.runJob"
#: Phases of a trigger, by the Spark method on the stack; the first match decides.
_PHASES = (
    ("constructNextBatch", "looking for new data"),
    ("markMicroBatchEnd", "committing"),
    ("CommitLog", "committing"),
    ("commit", "committing"),
    ("markMicroBatchStart", "writing the offset log"),
    ("OffsetSeqLog", "writing the offset log"),
    ("runBatch", "processing"),
)
_MOST_FRAMES = 12
_MOST_STAGES = 3


class Place(NamedTuple):
    """Place where work hangs, as a clause for event bodies and as attributes."""

    text: str
    attributes: dict[str, AttributeValue | None]


def place_of(thread: QueryThread, stages: Sequence[RunningStage], now: int, code: UserCode) -> Place | None:
    """Return the place where a query hangs; None if its thread has no frames.

    Args:
        thread: the query's thread.
        stages: the running stages of the query.
        now: milliseconds since the epoch.
        code: recognises the user's code.
    """
    frames = thread.frames
    if not frames:
        return None
    phase = next((words for method, words in _PHASES if any(method in frame for frame in frames)), None)
    attributes: dict[str, AttributeValue | None] = {
        "spark.deadline.phase": phase,
        "spark.deadline.stack": "\n".join(frames[:_MOST_FRAMES]),
    }
    parsed = [match for frame in frames if (match := _FRAME.match(frame))]
    own = next((frame for frame in parsed if code.is_own_class(frame["class"])), None)
    if own is not None:
        attributes["spark.deadline.location"] = f"{own['place']} in {_name(own)}"
    if any(frame.startswith(_JOB) for frame in frames):
        text = tasks_of(stages, now) or "a Spark job runs"
        attributes |= longest(stages)
    elif thread.is_in_python:
        text, places = _python_place(thread.python, code)
        attributes |= places
    else:
        named = own or next((frame for frame in parsed if not _WAITING.match(frame["class"])), None)
        name = frames[0] if named is None else _name(named)
        text = f"waiting in {name}"
        attributes["spark.deadline.place"] = name
        if phase is not None and phase != "processing":
            text += f", {phase}"
    return Place(text, attributes)


def _python_place(stacks: Sequence[list[PythonFrame]], code: UserCode) -> tuple[str, dict[str, AttributeValue | None]]:
    """Return the lines of the Python functions that the JVM is calling.

    There are several lines if more than one query calls Python.
    """
    lines = []
    for frames in stacks:
        outermost_first = frames[::-1]
        own = code.innermost([frame.file for frame in outermost_first])
        frame = frames[0] if own is None else outermost_first[own]
        lines.append(f"{os.path.basename(frame.file)}:{frame.line} in {frame.function}")
    if not lines:
        return "waiting in a Python function, which foreachBatch or a Python source calls", {}
    place = " or ".join(lines[:3])
    stack = "\n\n".join(
        "\n".join(f"{frame.file}:{frame.line} in {frame.function}" for frame in frames[:_MOST_FRAMES])
        for frames in stacks
    )
    return f"waiting in Python at {place}", {"spark.deadline.location": place, "spark.deadline.stack": stack}


def tasks_of(stages: Sequence[RunningStage], now: int) -> str:
    """Return the state of the tasks of the first stages as a clause for event bodies.

    For example, ``stage 3 [count at x.py:4] has 7 of 8 tasks done, 1 running, 0 waiting``.
    """
    return "; ".join(_tasks_of_one(stage, now) for stage in stages[:_MOST_STAGES])


def _tasks_of_one(stage: RunningStage, now: int) -> str:
    waiting = max(0, stage.tasks - stage.running - stage.finished)
    text = (
        f"stage {stage.stage_id}{in_brackets(stage.name)} has {stage.finished:,} of {counted(stage.tasks, 'task')} done"
    )
    text += f", {stage.running:,} running, {waiting:,} waiting"
    if (task := stage.longest) is not None:
        text += f"; task {task.task} on executor {task.executor} ({task.host}) has been running for"
        text += f" {lasting(max(0, now - task.time))}"
    return text


def attributes_of(stage: RunningStage) -> dict[str, AttributeValue | None]:
    """Return a stage, its task counts and its longest task as attributes."""
    task = stage.longest
    return {
        "spark.stage.id": stage.stage_id,
        "spark.stage.attempt": stage.attempt,
        "spark.stage.name": stage.name,
        "spark.deadline.tasks_done": stage.finished,
        "spark.deadline.tasks_running": stage.running,
        "spark.deadline.tasks_waiting": max(0, stage.tasks - stage.running - stage.finished),
        "spark.deadline.task": None if task is None else task.task,
        "spark.deadline.task_executor": None if task is None else task.executor,
        "spark.deadline.task_host": None if task is None else task.host,
        "spark.deadline.task_since_millis": None if task is None else task.time,
    }


def longest(stages: Sequence[RunningStage]) -> dict[str, AttributeValue | None]:
    """Return the attributes of the stage whose task has been running longest; empty without a stage."""
    running = [stage for stage in stages if stage.longest is not None] or list(stages)
    if not running:
        return {}
    return attributes_of(min(running, key=lambda stage: stage.longest.time if stage.longest else stage.time))


def _name(frame: re.Match[str]) -> str:
    """Return ``Class.method`` without Scala's additions to the names."""
    method = _INNER.sub(lambda inner: inner["method"] or "", frame["method"])
    owner = frame["class"].rpartition(".")[2].partition("$")[0]
    return f"{owner}.{method}"
