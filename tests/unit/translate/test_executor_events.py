"""Tests of events about added and lost executors: reason of the loss, and limit per minute."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import START, application_end, application_start, decoded

from spark_events import Event
from spark_events.translate.executor_events import loss_of
from spark_events.translate.translation_config import ExecutorConfig, TranslateConfig
from spark_events.translate.translator import Translator


def added(executor: str = "7", time: int = START) -> dict[str, Any]:
    return {"kind": "executor_added", "executor_id": executor, "time": time, "host": "host-3", "cores": 4}


def removed(executor: str = "7", time: int = START + 5, **changes: Any) -> dict[str, Any]:
    about = {"reason": "Command exited with code 137", "host": "host-3", "tasks": 3, "stages": [23, 24]}
    return {"kind": "executor_removed", "executor_id": executor, "time": time, **about, **changes}


def translated(records: list[dict[str, Any]], most: int = 10) -> tuple[Translator, list[Event]]:
    translator = Translator(TranslateConfig(executor=ExecutorConfig(most)))
    events = [event for record in records for event in translator.translate(decoded({"at": START, **record}))]
    return translator, [event for event in events if event.name == "ExecutorStatusChangeEvent"]


@pytest.mark.parametrize(
    ("reason", "label", "words"),
    [
        ("Command exited with code 137", "KILLED", "it was killed by SIGKILL (exit code 137), by the kernel's"),
        (
            "Container from a bad node: container_1 on host: h. Exit status: 143. Diagnostics: x",
            "TERMINATED",
            "SIGTERM",
        ),
        ("Container marked as failed: container_1 on host: h. Exit status: 137. x", "KILLED", "exit code 137"),
        ("The executor with id 3 exited with exit code 52(JVM OOM).", "OUT_OF_MEMORY", "OutOfMemoryError"),
        (
            "\nThe executor with id 1 exited with exit code 137(SIGKILL, possible container OOM).\n",
            "KILLED",
            "137",
        ),
        ("Container killed by YARN for exceeding physical memory limits. 1.2 GB of 1 GB", "MEMORY_LIMIT", "memory"),
        ("termination reason: OOMKilled, exit code 137", "MEMORY_LIMIT", "memory limit (exit code 137)"),
        ("Executor decommission.", "DECOMMISSIONED", "decommissioned"),
        ("Executor heartbeat timed out after 130000 ms", "HEARTBEAT_TIMEOUT", "heartbeat"),
        ("Container container_1 on host: h was preempted.", "RECLAIMED", "reclaimed"),
        ("Executor decommission: spot instance reclaim", "RECLAIMED", "reclaimed"),
        ("Executor killed by driver.", "RELEASED", "released"),
        ("worker lost: Not receiving heartbeat for 60 seconds", "WORKER_LOST", "worker"),
        ("Remote RPC client disassociated. Likely due to containers exceeding thresholds", "DISCONNECTED", "closed"),
        ("Command exited with code 139", "EXITED", "it was killed by SIGSEGV (exit code 139)"),
        ("Command exited with code 1", "EXITED", "exit code 1"),
        ("something\nnew", "UNKNOWN", "Spark reports: something new"),
        (None, "UNKNOWN", "no reason"),
    ],
)
def test_the_reason_of_a_loss_is_a_sentence(reason: str | None, label: str, words: str) -> None:
    """The reason for an executor loss, as reported by Spark, becomes a label and part of the event's body."""
    found, clause, _ = loss_of(reason)
    assert found == label
    assert words in clause


def test_the_event_of_a_lost_executor_has_its_tasks_and_stages() -> None:
    _, (first, second) = translated([application_start(), added(), removed()])
    assert (first.severity.value, first.body) == ("DEBUG", "shop: executor 7 was added on host-3 with 4 cores")
    assert second.severity.value == "WARN"
    assert second.body == (
        "shop: executor 7 on host-3 was lost with 3 running tasks of stages 23, 24: it was killed by"
        " SIGKILL (exit code 137), by the kernel's out-of-memory killer or by a command"
    )
    expected = {"spark.status.old": "ADDED", "spark.status.new": "LOST", "spark.executor.tasks_lost": 3}
    assert second.attributes.items() >= {**expected, "spark.executor.exit_code": 137}.items()


def test_an_executor_is_lost_once() -> None:
    """Spark removes an executor when its connection closes, and again when its process has ended."""
    again = removed(time=START + 1_255, reason="Command exited with code 0", tasks=0, stages=[])
    _, events = translated([application_start(), added(), removed(reason="Executor decommission."), again])
    assert [event.attributes.get("spark.executor.loss") for event in events] == [None, "DECOMMISSIONED"]


def test_a_released_executor_is_not_a_warning() -> None:
    """If dynamic allocation releases an executor, the event is not a warning."""
    _, (event,) = translated([application_start(), removed(reason="Executor killed by driver.", tasks=0, stages=[])])
    assert (event.severity.value, event.attributes["spark.status.new"]) == ("DEBUG", "REMOVED")


def test_more_than_the_limit_is_counted() -> None:
    """After a minute or at the application's end, one event contains the number of executors above the limit."""
    records = [removed(str(number), START + number) for number in range(30)]
    translator, events = translated([application_start(), *records], most=3)
    assert len(events) == 3
    assert translator.tick(START + 59_999) == []
    (rest,) = [e for e in translator.tick(START + 60_000) if e.class_scope == "spark.executor"]
    assert rest.body == "shop: within one minute, 27 more executors were removed (27 KILLED)"
    assert (rest.severity.value, rest.attributes["spark.executor.more_removed"]) == ("WARN", 27)
    _, events = translated([application_start(), *records, added("31", START + 40), application_end()], most=3)
    assert events[-1].body.startswith(
        "shop: within one minute, 1 more executor was added and 27 more executors were removed"
    )
    _, events = translated([application_start(), *records, removed("40", START + 70_000)], most=3)
    assert [e.attributes.get("spark.executor.id") for e in events] == ["0", "1", "2", None, "40"]


def test_no_events_without_a_limit() -> None:
    assert translated([added(), removed()], most=0)[1] == []


def test_an_executor_before_the_application_s_start_is_reported_after_it() -> None:
    """The event of an executor is held until the application's start, so that it contains the application's name."""
    translator = Translator()
    assert translator.translate(decoded({"at": START, **added()})) == []
    started, executor = translator.translate(decoded(application_start()))
    assert (started.name, executor.name) == ("JobStatusChangeEvent", "ExecutorStatusChangeEvent")
    assert executor.attributes["spark.app.name"] == "shop"
    assert (started.sequence, executor.sequence) == (1, 2)


def test_an_executor_of_an_application_whose_start_is_missing_is_reported_with_the_next_record() -> None:
    translator = Translator()
    translator.translate(decoded({"at": START, **added()}))
    events = translator.translate(decoded(application_end()))
    assert "ExecutorStatusChangeEvent" in [event.name for event in events]


@pytest.mark.parametrize("blank", [" ", "\n"])
def test_a_long_reason_is_analysed_in_linear_time(blank: str) -> None:
    """A reason with very many blanks is analysed at once; quadratic time would be minutes."""
    assert loss_of(f"Container exited with code{blank * 400_000}137")[2] == 137
    assert loss_of(f"exit code{blank * 400_000}unknown")[0] == "UNKNOWN"


@pytest.mark.parametrize(
    ("record", "status", "severity", "body"),
    [
        (
            {"excluded": True, "executor_id": "7", "failures": 2},
            ("INCLUDED", "EXCLUDED", "application"),
            "WARN",
            "shop: executor 7 was excluded from the application after 2 failed tasks",
        ),
        (
            {"excluded": True, "executor_id": "7", "failures": 1, "stage_id": 23, "attempt": 1},
            ("INCLUDED", "EXCLUDED", "stage"),
            "WARN",
            "shop: executor 7 was excluded from stage 23 after 1 failed task",
        ),
        (
            {"excluded": True, "host": "host-3", "failures": 2, "stage_id": 23},
            ("INCLUDED", "EXCLUDED", "stage"),
            "WARN",
            "shop: node host-3 was excluded from stage 23 after 2 failed executors",
        ),
        (
            {"excluded": False, "executor_id": "7"},
            ("EXCLUDED", "INCLUDED", "application"),
            "INFO",
            "shop: executor 7 is no longer excluded",
        ),
        (
            {"excluded": False, "host": "host-3"},
            ("EXCLUDED", "INCLUDED", "application"),
            "INFO",
            "shop: node host-3 is no longer excluded",
        ),
    ],
)
def test_exclusions_are_reported(record: dict[str, Any], status: tuple[str, ...], severity: str, body: str) -> None:
    given = {"kind": "exclusion", "time": START, **record}
    # A repeated record causes no second event.
    _, (event,) = translated([application_start(), given, given])
    keys = ("spark.status.old", "spark.status.new", "spark.executor.scope")
    assert tuple(event.attributes[key] for key in keys) == status
    assert (event.severity.name, event.body) == (severity, body)
    assert event.attributes.get("spark.stage.id") == record.get("stage_id")
    assert event.attributes.get("spark.executor.id") == record.get("executor_id")


def test_a_stage_that_cannot_be_scheduled_is_reported() -> None:
    about = {"kind": "unschedulable", "stage_id": 23, "attempt": 1, "time": START}
    _, events = translated([{**about, "unschedulable": True}, {**about, "unschedulable": False}, application_start()])
    assert [(event.severity.name, event.attributes["spark.status.new"]) for event in events] == [
        ("WARN", "UNSCHEDULABLE"),
        ("INFO", "SCHEDULABLE"),
    ]


@pytest.mark.parametrize("kind", ["exclusion", "unschedulable"])
def test_an_exclusion_from_a_stage_names_the_client_of_the_stage(kind: str) -> None:
    session = "839c8b37-e5f1-4496-83ce-6ca71c9ee9bb"
    tags = f"SparkConnect_OperationTag_User_ada_Session_{session}_Operation_{session}"
    stage = {"stage_id": 23, "attempt": 1, "time": START}
    submitted = {"kind": "stage_submitted", "name": "s", "tasks": 2, "properties": {"spark.job.tags": tags}, **stage}
    about = {"kind": kind, "excluded": True, "unschedulable": True, "executor_id": "7", "failures": 2}
    _, (event,) = translated([application_start(), submitted, {**about, **stage}])
    assert event.attributes["spark.connect.user_id"] == "ada"
    assert event.attributes["spark.connect.session_id"] == session
    assert "stage 23 (user 'ada', session 839c8b37) " in event.body.lower()


def test_exclusions_beyond_the_limit_are_counted_apart_from_losses() -> None:
    excluded = [
        {"kind": "exclusion", "excluded": True, "executor_id": str(number), "time": START} for number in range(5)
    ]
    translator, _ = translated([application_start(), *excluded, removed("9", START)], most=2)
    (event,) = translator.tick(START + 3_600_000)
    assert event.body == (
        "shop: within one minute, 1 more executor was removed (1 KILLED) and 3 more exclusions have changed"
    )
    assert event.attributes["spark.executor.more_excluded"] == 3
    assert event.attributes["spark.executor.more_removed"] == 1
