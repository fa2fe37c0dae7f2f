"""Events in the Python that drives the application: plain scripts, started as people start them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from process_status import TELLS_EXIT_STATUS
from spark.harness import DEADLINE_SECONDS, Lab, Run, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PYTHON = (sys.executable,)
ROUNDS = 100


def run(lab: Lab, job: str, *arguments: str) -> tuple[Run, Any]:
    done = lab.run(job, *arguments, program=PYTHON)
    assert done.process.returncode == 0, done.tail()
    return done, done.truth()


@pytest.fixture(scope="module")
def alone(lab: Lab) -> tuple[Run, Any]:
    """A script that uses everything, without a sidecar."""
    return run(lab, "session_alone.py")


@pytest.fixture(scope="module")
def beside(lab: Lab) -> tuple[Run, Any]:
    """A script with a sidecar, which makes every mistake there is."""
    return run(lab, "session_beside.py")


@pytest.fixture(scope="module")
def rounds(lab: Lab) -> Any:
    """A script that starts and stops all the time."""
    return run(lab, "session_rounds.py", str(ROUNDS))[1]


def test_a_stream_that_breaks_off_keeps_nobody_waiting(lab: Lab) -> None:
    """Spark's listener, which waits for its answer, goes on; so does what takes the listener out of Spark's queue."""
    _, took = run(lab, "session_ends.py")
    assert took < 30  # a minute is what the listener would wait


def test_a_stream_that_is_stopped_takes_no_longer_than_it_may(lab: Lab) -> None:
    """What Spark still has in its queue, and waits with for a slow reporter, is of the time for the end."""
    _, took = run(lab, "session_stops.py")
    assert took < 8  # 5 s are what it may take; it was twice that, and what the last answer took


def test_configure_sets_everything(alone: tuple[Run, Any]) -> None:
    """The listener is there, and no sidecar is; what is configured beside `reporters=` stays out of the stream."""
    done, truth = alone
    assert truth["is_configured"] == ["io.sparkevents.EventsListener", "false"]
    assert not (done.folder / "never.jsonl").exists()


def test_a_stream_that_starts_late_knows_what_runs(alone: tuple[Run, Any]) -> None:
    """The application, and a query that was started before, by their names."""
    _, truth = alone
    assert truth["early"] == ["early", "alone"]


def test_every_reporter_gets_every_event_once(alone: tuple[Run, Any]) -> None:
    """A reporter that was made by hand, one that was configured, and the history are told the same."""
    done, truth = alone
    told = [tuple(one) for one in truth["history"]]
    assert len(told) == len(set(told)) > 10
    assert [tuple(one) for one in truth["memory"]] == told
    assert [(e["name"], e["event_id"]) for e in done.events(done.folder / "e.jsonl")] == told


def test_callbacks_are_called_once_an_event_and_off_the_main_thread(alone: tuple[Run, Any]) -> None:
    """Plain ones and async ones."""
    _, truth = alone
    called = [event_id for event_id, _ in truth["calls"]]
    assert len(called) == len(set(called)) > 3
    assert not any(on_main for _, on_main in truth["calls"])
    # The job's, and that of its stage's last attempt.
    assert len(truth["pages"]) == [name for name, _ in truth["history"]].count("JobFailureEvent") == 2
    assert all("ZeroDivisionError" in page for page in truth["pages"])


def test_callbacks_that_raise_or_block_harm_nobody(alone: tuple[Run, Any]) -> None:
    """The one that raises is called with each event, once; the job, and the others, go on as if there were none."""
    done, truth = alone
    names = {event_id: name for name, event_id in truth["history"]}
    broken = truth["broken"]
    assert len(broken) == len(set(broken)) > 5
    assert [event_id for event_id in names if event_id in set(broken)] == broken
    assert "a callback's own mistake" in done.log
    assert "blocks its thread; the thread is given up" in done.log
    assert truth["raised"] == "PythonException" or truth["raised"] == "Py4JJavaError"


def test_a_failure_is_told_with_its_cause(alone: tuple[Run, Any]) -> None:
    """As the sidecar tells it."""
    _, truth = alone
    cause, severity = truth["failure"]
    assert "ZeroDivisionError" in cause
    assert severity == "ERROR"


def test_an_event_of_the_program_s_own_has_its_place(alone: tuple[Run, Any]) -> None:
    """Behind the job before it, before the job behind it, with the application's variables."""
    _, truth = alone
    assert truth["mine"] == [12, "alone", "WARN"]
    assert truth["order"] == [True, True]


def test_who_waits_is_told_what_came_instead(alone: tuple[Run, Any]) -> None:
    """In a thread and in a coroutine; in vain, and behind the end."""
    _, truth = alone
    assert truth["awaited"] == "Later"
    assert truth["in_vain"].startswith("NeverHappens has not come within 0.3 s; what did come: ")
    assert "1 OrdersImported" in truth["in_vain"]
    assert truth["ended"].startswith("the events have ended, and NeverHappens has not come; what did come: ")


def test_the_end_of_the_application_is_told(alone: tuple[Run, Any]) -> None:
    """spark.stop() waits for the last events, and leaves no thread."""
    _, truth = alone
    assert truth["last"][0] == "Application 'alone' finished: its own code stopped it"
    assert truth["last"][1].startswith("Events by reporter: ")
    assert not truth["is_running"]
    assert truth["threads"] == []
    assert truth["stop_seconds"] < 60  # two minutes is what Spark would wait


def test_a_callback_with_the_name_of_a_reporter_has_an_account_of_its_own(alone: tuple[Run, Any]) -> None:
    """Neither hides what the other has lost."""
    run, truth = alone
    told = len(run.events(run.folder / "e.jsonl"))
    # Without the report itself, which is made of the accounts.
    assert truth["accounts"]["reporter.audit.accepted"] == told - 1
    assert truth["accounts"]["reporter.audit'.accepted"] == 1


def test_a_stream_beside_the_sidecar_doubles_nothing(beside: tuple[Run, Any]) -> None:
    """The sidecar's file has each event once, also those behind the stream's end; the stream told the same ones."""
    done, truth = beside
    in_file = [(e["name"], e["event_id"]) for e in done.events()]
    assert len(in_file) == len(set(in_file))
    names = [name for name, _ in in_file]
    assert names.count("OrdersImported") == names.count("AfterTheStream") == 1
    assert names[0] == "JobStatusChangeEvent"
    assert names[-1] == "DispatcherReportEvent"
    told = [tuple(one) for one in truth["history"]]
    assert "OrdersImported" in [name for name, _ in told]
    assert set(told) <= set(in_file)
    assert truth["mine"] in [event_id for _, event_id in in_file]
    last = done.events()[-2]
    # The script just ends: its exit hooks do not know with which code, the kernel may.
    status = "FINISHED" if TELLS_EXIT_STATUS else "ENDED"
    assert (last["name"], last["attributes"]["status.new"]) == ("JobStatusChangeEvent", status)


def test_a_start_that_fails_leaves_the_thread_as_it_was(beside: tuple[Run, Any]) -> None:
    """What Spark keeps for it, its scheduler pool or its job group, is there as before."""
    _, truth = beside
    assert truth["pool"] == "mine"


def test_scala_and_java_add_events_too(beside: tuple[Run, Any]) -> None:
    """With the same builder; the application's variables and the place among the others are the same matter."""
    done, truth = beside
    assert truth["added"] is True
    details = {"orders": 12, "share": 0.5, "last": True, "who": "é"}
    assert truth["from_the_jvm"] == ["12 orders", "WARN", details]
    (told,) = done.named("FromTheJvm")
    assert details.items() <= told["attributes"].items()
    assert told["attributes"]["spark.app.name"] == "beside"


MISTAKES = {
    "no session": ["SessionError: no SparkSession is active"],
    "unknown key": [
        "ConfigError: events.reporter.a.ptah: unknown key, given '1'",
        "did you mean events.reporter.a.path?",
    ],
    "object": ["ConfigError: reporters: 'memory' is an object of this process", "use spark_events.start"],
    "dispatcher": ["ConfigError: events.dispatcher.type: given 'quick', allowed is"],
    "late configure": ["SessionError: the application 'beside' runs already", "spark.stop()"],
    "no reporter": ["ConfigError: reporters: given 3 for '3', allowed is"],
    "taken name": ["ConfigError: reporters: given the name 'history', which is that of the stream's own memory"],
    "wrong key": ["ConfigError: events.reporter.f.path: required, but not set"],
    "no licence": ["ConfigError: events.reporter.f: the reporter cannot be made: RuntimeError: no licence"],
    "no spark": ["SessionError: spark: given str, allowed is a SparkSession"],
    "twice": ["SessionError: the events of this application are started already, at ", "session_beside.py:", "stop()"],
    "not a function": ["InvalidChoiceError: callback: given 3, allowed is a function of one event"],
    "no argument": ["InvalidChoiceError: callback: <lambda>", "cannot be called with one argument"],
    "severity": ["InvalidChoiceError: min_severity: given 'LOUD', allowed is one of TRACE, DEBUG"],
    "name": ["InvalidChoiceError: name: given ''"],
    "timeout": ["InvalidChoiceError: timeout: given -1, allowed are seconds"],
    "off": ["SessionError: print is not subscribed"],
    "attribute": ["InvalidEventError: attribute 'wrong': given [1] of type list"],
    "no event": ["InvalidEventError: event: given {'name': 'C'}"],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_clear_error(beside: tuple[Run, Any], mistake: str) -> None:
    """What, where, what was given, what is allowed; and the job goes on."""
    _, truth = beside
    assert set(truth["mistakes"]) == set(MISTAKES)
    assert all(part in truth["mistakes"][mistake] for part in MISTAKES[mistake]), truth["mistakes"][mistake]


def test_a_hundred_starts_and_stops_leave_nothing(rounds: Any) -> None:
    """Threads, processes and descriptors, in Python and in the JVM, though callbacks have used Spark in theirs."""
    assert rounds["rounds"] == list(range(ROUNDS))
    before, after = rounds["before"], rounds["after"]
    assert after["jvm_own_threads"] == before["jvm_own_threads"] == []
    assert (after["threads"], after["descriptors"]) == (before["threads"], before["descriptors"])
    assert after["processes"] == before["processes"]
    # Spark has threads of its own that come and go.
    assert after["jvm_threads"] <= before["jvm_threads"] + 3
    assert after["jvm_descriptors"] <= before["jvm_descriptors"] + 3


def test_an_application_has_one_stream(rounds: Any) -> None:
    """Also where it has two sessions; the second is refused, or takes the first one's place."""
    assert "are started already, at " in rounds["second"]
    assert rounds["replaced"] == [False, True]
    assert rounds["counted_on"] is True


def test_a_fork_ends_nothing_of_its_parent(rounds: Any) -> None:
    """The child has no stream, the parent's goes on."""
    assert rounds["fork"] == [0, True]
    assert rounds["after_fork"] == "AfterTheFork"


def test_events_from_several_threads_come_once_and_in_each_one_s_order(rounds: Any) -> None:
    """Four threads, fifty events each."""
    told = rounds["from_threads"]
    assert sorted(told) == list(range(200))
    for thread in range(4):
        own = [number for number in told if number // 50 == thread]
        assert own == sorted(own)


def test_a_context_that_is_made_again_has_a_stream_of_its_own(rounds: Any) -> None:
    """The stopped one says that it is; the next ones are applications of their own, each with one end."""
    assert rounds["stopped"] == rounds["stopped_add"] == "the SparkSession was stopped: start a new one"
    first, second = rounds["applications"]
    assert first != second
    assert sum("finished" in body and "Application" in body for body in rounds["bodies"]) == 1


def test_a_script_that_just_ends_has_delivered_everything(lab: Lab, tmp_path: Path) -> None:
    """Neither the stream nor the session was stopped."""
    script, told = tmp_path / "ends.py", tmp_path / "told.jsonl"
    script.write_text(
        "import spark_events\n"
        "from pyspark.sql import SparkSession\n"
        "spark = spark_events.configure(SparkSession.builder, sidecar=False).getOrCreate()\n"
        f"spark_events.start(spark, reporters={{'f': {{'type': 'file', 'path': {str(told)!r}}}}})\n"
        "for number in range(500):\n"
        "    spark_events.add_event(spark_events.EventBuilder('a.b', 'Mine').set_attribute('n', number))\n"
    )
    done = lab.run("", str(script), program=PYTHON)
    assert done.process.returncode == 0, done.tail()
    mine = [event["attributes"]["n"] for event in done.events(told) if event["name"] == "Mine"]
    assert mine == list(range(500))


def test_a_python_that_is_killed_keeps_nobody_waiting(lab: Lab, tmp_path: Path) -> None:
    """The JVM ends as it would without a stream, and not after `shutdown.timeout`."""
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


def test_without_the_jar_the_missing_line_is_named(lab: Lab, tmp_path: Path) -> None:
    """And what to do instead."""
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
    assert "lacks the line `spark.driver.extraClassPath" in start
    assert "spark_events.configure(SparkSession.builder, ...)" in start
    assert count == "3"
    assert configure.startswith("the JVM of this Python was started without the jar on its class path")
