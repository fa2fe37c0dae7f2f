"""Tests of events in the driver's own Python process, with plain scripts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from process_status import EXIT_STATUS_IS_READABLE
from spark.harness import DEADLINE_SECONDS, Lab, Run, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PYTHON = (sys.executable,)
ROUNDS = 100


def run(lab: Lab, job: str, *arguments: str) -> tuple[Run, Any]:
    done = lab.run(job, *arguments, program=PYTHON)
    assert done.process.returncode == 0, done.tail()
    return done, done.truth()


@pytest.fixture(scope="module")
def script(lab: Lab) -> tuple[Run, Any]:
    """Return the run of a script with two applications."""
    return run(lab, "session_script.py")


@pytest.fixture(scope="module")
def alone(script: tuple[Run, Any]) -> tuple[Run, Any]:
    """Return the application that calls all functions without a sidecar."""
    return script[0], script[1]["alone"]


@pytest.fixture(scope="module")
def with_stream(script: tuple[Run, Any]) -> tuple[Run, Any]:
    """Return the application that has a sidecar and makes every kind of invalid call."""
    return script[0], script[1]["beside"]


@pytest.fixture(scope="module")
def rounds(lab: Lab) -> Any:
    """Return the run of a script that starts and stops streams repeatedly."""
    return run(lab, "session_rounds.py", str(ROUNDS))[1]


@pytest.mark.any_spark
def test_a_stream_that_ends_during_a_wait_does_not_delay_spark(rounds: Any) -> None:
    """If a stream stops while Spark's listener waits for the stream's answer, the listener continues at once."""
    assert rounds["stop_during_a_wait_seconds"] < 30  # The listener's timeout is one minute.


@pytest.mark.any_spark
def test_stop_respects_its_time_limit(rounds: Any) -> None:
    """Even if events in Spark's queue wait for a slow reporter, stop() returns within its time limit."""
    # The limit is 5 s. The reporter needs 4 s for each event, and ten queries cause at least 20 events.
    assert rounds["stop_with_a_full_queue_seconds"] < 30


def test_configure_registers_the_listener(alone: tuple[Run, Any]) -> None:
    """configure registers the listener without a sidecar, and the stream ignores the configured reporters."""
    done, truth = alone
    assert truth["is_configured"] == ["io.sparkevents.EventsListener", "false"]
    assert not (done.folder / "never.jsonl").exists()


def test_a_late_stream_knows_running_queries(alone: tuple[Run, Any]) -> None:
    _, truth = alone
    assert truth["early"] == ["early", "alone"]


def test_every_reporter_gets_every_event_once(alone: tuple[Run, Any]) -> None:
    done, truth = alone
    reported = [tuple(one) for one in truth["history"]]
    assert len(reported) == len(set(reported)) > 10
    assert [tuple(one) for one in truth["memory"]] == reported
    assert [(e["name"], e["event_id"]) for e in done.events(done.folder / "e.jsonl")] == reported


def test_callbacks_run_once_per_event_outside_the_main_thread(alone: tuple[Run, Any]) -> None:
    _, truth = alone
    called = [event_id for event_id, _ in truth["calls"]]
    assert len(called) == len(set(called)) == 2
    assert not any(on_main for _, on_main in truth["calls"])
    # The job's event is WARN; the stage's event is INFO.
    assert len(truth["pages"]) == 1
    assert [name for name, _ in truth["history"]].count("JobFailureEvent") == 2
    assert all("ZeroDivisionError" in page for page in truth["pages"])


def test_callbacks_that_raise_or_block_do_not_affect_others(alone: tuple[Run, Any]) -> None:
    """If a callback raises an exception, it is called once per event, and the job and other callbacks continue."""
    done, truth = alone
    names = {event_id: name for name, event_id in truth["history"]}
    broken = truth["broken"]
    assert len(broken) == len(set(broken)) > 5
    assert [event_id for event_id in names if event_id in set(broken)] == broken
    assert "a callback's own mistake" in done.log
    assert truth["is_abandoned"]
    assert truth["raised"] == "PythonException" or truth["raised"] == "Py4JJavaError"


def test_a_failure_is_reported_with_its_cause(alone: tuple[Run, Any]) -> None:
    """A stream reports a failed job with its cause and severity WARN, like a sidecar."""
    _, truth = alone
    cause, severity = truth["failure"]
    assert "ZeroDivisionError" in cause
    assert severity == "WARN"


def test_a_custom_event_is_in_order(alone: tuple[Run, Any]) -> None:
    """A custom event is reported between the previous and the next job, with the application's attributes."""
    _, truth = alone
    assert truth["mine"] == [12, "alone", "WARN"]
    assert truth["order"] == [True, True]


def test_a_failed_wait_lists_the_events_that_arrived(alone: tuple[Run, Any]) -> None:
    _, truth = alone
    assert truth["awaited"] == "Later"
    assert truth["in_vain"].startswith("timed out after 0.3 s waiting for NeverHappens; events that arrived: ")
    assert "1 OrdersImported" in truth["in_vain"]
    assert truth["ended"].startswith("the stream ended while waiting for NeverHappens; events that arrived: ")


def test_the_end_of_the_application_is_reported(alone: tuple[Run, Any]) -> None:
    """spark.stop() waits until the last events are delivered. Afterwards no thread remains."""
    _, truth = alone
    assert truth["last"][0] == "Application 'alone' finished: its own code stopped it"
    assert truth["last"][1].startswith("alone: events by reporter: ")
    assert not truth["is_running"]
    assert truth["threads"] == []
    assert truth["stop_seconds"] < 60  # Spark's own timeout is two minutes.


def test_a_callback_with_a_reporter_s_name_has_its_own_counts(alone: tuple[Run, Any]) -> None:
    run, truth = alone
    reported = len(run.events(run.folder / "e.jsonl"))
    # The counters do not include the report itself.
    accepted = {account["name"]: account["accepted"] for account in truth["accounts"]}
    assert (accepted["audit"], accepted["audit'"]) == (reported - 1, 1)


def test_a_stream_and_a_sidecar_report_each_event_once(with_stream: tuple[Run, Any]) -> None:
    """A stream and a sidecar report the same events, each once. After the stream has stopped, the sidecar continues."""
    done, truth = with_stream
    in_file = [(e["name"], e["event_id"]) for e in done.events()]
    assert len(in_file) == len(set(in_file))
    names = [name for name, _ in in_file]
    assert names.count("OrdersImported") == names.count("AfterTheStream") == 1
    assert names[0] == "JobStatusChangeEvent"
    assert names[-1] == "DispatcherReportEvent"
    reported = [tuple(one) for one in truth["history"]]
    assert "OrdersImported" in [name for name, _ in reported]
    assert set(reported) <= set(in_file)
    assert truth["mine"] in [event_id for _, event_id in in_file]
    last = done.events()[-2]
    # The script ends without stop(). Its exit hooks do not know the exit code, but the kernel may report it.
    status = "FINISHED" if EXIT_STATUS_IS_READABLE else "ENDED"
    assert (last["name"], last["attributes"]["spark.status.new"]) == ("JobStatusChangeEvent", status)


def test_a_failed_start_restores_the_thread_s_properties(with_stream: tuple[Run, Any]) -> None:
    """A failed start restores the thread's Spark properties, such as the scheduler pool and the job group."""
    _, truth = with_stream
    assert truth["pool"] == "mine"


def test_scala_and_java_can_add_events(with_stream: tuple[Run, Any]) -> None:
    """Custom events from Scala and Java get the same attributes and order as custom events from Python."""
    done, truth = with_stream
    assert truth["added"] is True
    details = {"orders": 12, "share": 0.5, "last": True, "who": "é"}
    assert truth["from_the_jvm"] == ["12 orders", "WARN", details]
    (reported,) = done.named("FromTheJvm")
    assert details.items() <= reported["attributes"].items()
    assert reported["attributes"]["spark.app.name"] == "beside"


MISTAKES = {
    "no session": ["SessionError: no SparkSession is active"],
    "unknown key": [
        "ConfigError: events.reporter.a.ptah: unknown key; set in",
        "did you mean events.reporter.a.path?",
    ],
    "object": ["ConfigError: reporters: 'memory' is an object, or its class cannot", "use spark_events.start"],
    "dispatcher": ["ConfigError: events.dispatcher.type: given 'quick', expected"],
    "late configure": ["SessionError: the application 'beside' is already running", "spark.stop()"],
    "no reporter": ["ConfigError: reporters: given 3 for '3', expected"],
    "taken name": ["ConfigError: reporters: given the name 'history', which is reserved for the stream's history"],
    "wrong key": ["ConfigError: events.reporter.f.path: required, but not set"],
    "no licence": ["ConfigError: events.reporter.f: the reporter cannot be created: RuntimeError: no licence"],
    "no spark": ["SessionError: spark: given str, expected a SparkSession"],
    "twice": [
        "SessionError: this application already has an event stream, started in ",
        "session_script.py:",
        "stop()",
    ],
    "not a function": ["InvalidChoiceError: callback: given 3, expected a function of one event"],
    "no argument": ["InvalidChoiceError: callback: <lambda>", "cannot be called with one argument"],
    "severity": ["InvalidChoiceError: min_severity: given 'LOUD', expected one of TRACE, DEBUG"],
    "name": ["InvalidChoiceError: name: given ''"],
    "timeout": ["InvalidChoiceError: timeout: given -1, expected a number of seconds"],
    "off": ["SessionError: print is not a callback of this stream"],
    "attribute": ["InvalidEventError: attribute 'wrong': given [1] of type list"],
    "no event": ["InvalidEventError: event: given {'name': 'C'}"],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_invalid_call_raises_one_error(with_stream: tuple[Run, Any], mistake: str) -> None:
    """An invalid call raises one error with the argument, the value and the allowed values, and the job continues."""
    _, truth = with_stream
    assert set(truth["mistakes"]) == set(MISTAKES)
    assert all(part in truth["mistakes"][mistake] for part in MISTAKES[mistake]), truth["mistakes"][mistake]


@pytest.mark.any_spark
def test_a_hundred_starts_and_stops_leave_no_resources(rounds: Any) -> None:
    """A hundred starts and stops leave no thread, process or descriptor, even if callbacks used Spark."""
    assert rounds["rounds"] == list(range(ROUNDS))
    before, after = rounds["before"], rounds["after"]
    assert after["jvm_own_threads"] == before["jvm_own_threads"] == []
    assert (after["threads"], after["descriptors"]) == (before["threads"], before["descriptors"])
    assert after["processes"] == before["processes"]
    # The number of Spark's own threads varies.
    assert after["jvm_threads"] <= before["jvm_threads"] + 3
    assert after["jvm_descriptors"] <= before["jvm_descriptors"] + 3


@pytest.mark.any_spark
def test_an_application_has_one_stream(rounds: Any) -> None:
    """Two Spark sessions share one stream. A second call to start raises an error or replaces the stream."""
    assert "already has an event stream, started in " in rounds["second"]
    assert rounds["replaced"] == [False, True]
    assert rounds["counted_on"] is True


@pytest.mark.any_spark
def test_a_fork_does_not_affect_its_parent(rounds: Any) -> None:
    assert rounds["fork"] == [0, True]
    assert rounds["after_fork"] == "AfterTheFork"


@pytest.mark.any_spark
def test_events_of_several_threads_arrive_once_and_in_order(rounds: Any) -> None:
    reported = rounds["from_threads"]
    assert sorted(reported) == list(range(200))
    for thread in range(4):
        own = [number for number in reported if number // 50 == thread]
        assert own == sorted(own)


@pytest.mark.any_spark
def test_a_new_context_has_its_own_stream(rounds: Any) -> None:
    """Calls on a stopped stream raise an error. A new context is a separate application with its own stream."""
    assert rounds["stopped"] == rounds["stopped_add"] == "the SparkSession was stopped: start a new one"
    first, second = rounds["applications"]
    assert first != second
    assert sum("finished" in body and "Application" in body for body in rounds["bodies"]) == 1


@pytest.mark.any_spark
def test_a_script_without_stop_delivers_all_events(lab: Lab, tmp_path: Path) -> None:
    script, reported = tmp_path / "ends.py", tmp_path / "reported.jsonl"
    script.write_text(
        "import spark_events\n"
        "from pyspark.sql import SparkSession\n"
        "spark = spark_events.configure(SparkSession.builder, sidecar=False).getOrCreate()\n"
        f"spark_events.start(spark, reporters={{'f': {{'type': 'file', 'path': {str(reported)!r}}}}})\n"
        "for number in range(500):\n"
        "    spark_events.add_event(spark_events.EventBuilder('a.b', 'Mine').set_attribute('n', number))\n"
    )
    done = lab.run("", str(script), program=PYTHON)
    assert done.process.returncode == 0, done.tail()
    mine = [event["attributes"]["n"] for event in done.events(reported) if event["name"] == "Mine"]
    assert mine == list(range(500))


@pytest.mark.any_spark
def test_a_killed_python_does_not_delay_the_jvm(lab: Lab, tmp_path: Path) -> None:
    """After the driver's Python is killed, the JVM exits before `shutdown.timeout` elapses, as without a stream."""
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, spark_events\n"
        "from pyspark.sql import SparkSession\n"
        "settings = {'shutdown.timeout': '10min'}\n"
        "spark = spark_events.configure(SparkSession.builder, sidecar=False).getOrCreate()\n"
        "events = spark_events.start(spark, settings=settings)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = lab.start("", str(script), program=PYTHON)
    assert done.process.wait(DEADLINE_SECONDS) == -9
    wait_for("the JVM to be gone", lambda: not done.processes())
    assert not done.processes()


@pytest.mark.any_spark
def test_a_missing_jar_is_reported_with_the_missing_line(lab: Lab, tmp_path: Path) -> None:
    """The error about a missing jar contains the missing configuration line and an alternative."""
    script = tmp_path / "bare.py"
    script.write_text(
        "import sys, spark_events\n"
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "for call in (spark_events.start, lambda s: spark_events.add_event(spark_events.EventBuilder('a', 'b'), s)):\n"
        "    try:\n"
        "        call(spark)\n"
        "    except spark_events.SessionError as error:\n"
        "        print(error)\n"
        "print(spark.range(3).count())\n"
        "spark.stop()\n"
        "try:\n"
        "    spark_events.configure(SparkSession.builder)\n"
        "except spark_events.SessionError as error:\n"
        "    print(error)\n"
    )
    done = lab.run("", str(script), program=PYTHON)
    start, add, count, configure = done.output.splitlines()
    assert start == add
    assert "the driver's class path lacks the jar of spark-events" in start
    assert "spark_events.configure(SparkSession.builder, ...)" in start
    assert count == "3"
    assert configure.startswith("the JVM of this Python was started without the jar on its class path")
