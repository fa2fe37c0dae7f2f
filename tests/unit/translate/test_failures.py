"""Tests of the analysis of failures, with messages from real Spark versions (see fixtures/README.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import spark_events
from spark_events import Event, Severity
from spark_events.records.types import (
    ExceptionLink,
    Failure,
    JobEnd,
    JobStart,
    QueryStarted,
    QueryTerminated,
    decode,
)
from spark_events.translate.enrichers import TypeEnricher
from spark_events.translate.failures import MESSAGE_LIMIT, SUMMARY_LIMIT, Diagnosis, Diagnostics
from spark_events.translate.translator import Translator
from spark_events.translate.user_code import UserCode

FIXTURES = Path(__file__).parent / "fixtures"
PACKAGE = Path(spark_events.__file__).parent
TRACE_LIMIT = 16_384


def record(name: str) -> Any:
    return decode((FIXTURES / f"{name}.json").read_bytes())


def diagnosis(name: str) -> Diagnosis:
    parsed = record(name)
    if isinstance(parsed, QueryTerminated):
        assert parsed.exception is not None
        return Diagnostics().of_text(parsed.exception, parsed.error_class)
    assert isinstance(parsed, JobEnd)
    assert parsed.failure is not None
    return Diagnostics().of(parsed.failure)


@pytest.mark.parametrize(
    ("name", "error_type", "root_cause", "location"),
    [
        ("3.5-foreachbatch", "ValueError", "ValueError: bad foreachBatch value at batch 1", "47 in fb"),
        (
            "4.3-foreachbatch",
            "FOREACH_BATCH_USER_FUNCTION_ERROR",
            "ValueError: bad foreachBatch value at batch 1",
            "47 in fb",
        ),
        (
            "3.5-foreachbatch-job",
            "ZeroDivisionError",
            "ZeroDivisionError: integer division or modulo by zero",
            "54 in <lambda>",
        ),
        (
            "4.3-foreachbatch-job",
            "FOREACH_BATCH_USER_FUNCTION_ERROR",
            "ZeroDivisionError: integer division or modulo by zero",
            "54 in <lambda>",
        ),
        ("3.5-streamudf", "TASK_WRITE_FAILED", "ValueError: bad udf value 7", "63 in bad"),
        ("4.3-streamudf", "PYTHON_EXCEPTION", "ValueError: bad udf value 7", "63 in bad"),
        ("3.5-batch-udf", "ValueError", "ValueError: bad batch udf value 0", "72 in bad"),
        ("4.3-batch-udf", "PYTHON_EXCEPTION", "ValueError: bad batch udf value 0", "72 in bad"),
        (
            "4.3-batch-udf-trace",
            "PYTHON_EXCEPTION",
            "ZeroDivisionError: integer division or modulo by zero",
            "20 in f",
        ),
    ],
)
def test_a_python_error_is_found_with_its_location(name: str, error_type: str, root_cause: str, location: str) -> None:
    """The root cause is the Python exception, and its location is in the user's code."""
    found = diagnosis(name)
    assert found.error_type == found.attributes["error.type"] == error_type
    assert found.attributes["failure.root_cause"] == root_cause
    assert found.attributes["failure.location"] == f"/app/job.py:{location}"
    assert found.summary == f"{root_cause} (job.py:{location.partition(' ')[0]})"
    assert not found.cancelled


@pytest.mark.parametrize("name", ["3.5-batch-ansi", "4.3-batch-ansi"])
def test_a_jvm_error_is_found_behind_the_stage_failure(name: str) -> None:
    """In traces from Spark 3.5 and Spark 4.3, the error class of a division by zero in ANSI mode is found."""
    found = diagnosis(name)
    assert found.error_type == "DIVIDE_BY_ZERO"
    assert str(found.attributes["failure.root_cause"]).startswith(
        "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero."
    )
    assert "failure.location" not in found.attributes
    assert "\n" not in found.summary


@pytest.mark.parametrize(
    ("name", "outermost", "state"),
    [
        ("3.5-streamudf", "org.apache.spark.SparkException", None),
        ("4.3-streamudf", "org.apache.spark.api.python.PythonException", "38000"),
        ("4.3-batch-ansi", "org.apache.spark.SparkArithmeticException", "22012"),
        ("3.5-foreachbatch", "py4j.Py4JException", None),
    ],
)
def test_exception_type_is_the_outermost_exception(name: str, outermost: str, state: str | None) -> None:
    """The attribute exception.type is the type of the outermost exception.

    If Spark provides an SQLSTATE, the event contains it.
    """
    attributes = diagnosis(name).attributes
    assert attributes["exception.type"] == outermost
    assert attributes.get("failure.sql_state") == state


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.json")))
def test_the_message_has_no_stack_frames(name: str) -> None:
    """A failure's message ends before the first frame. The stack trace is the whole string."""
    found = diagnosis(name)
    assert "\tat org.apache" not in str(found.attributes["exception.message"]).partition("most recent failure")[0]
    parsed = record(name)
    text = parsed.exception if isinstance(parsed, QueryTerminated) else parsed.failure.trace
    if text:
        assert found.attributes["exception.stacktrace"] == text
        assert "failure.stacktrace_cut" not in found.attributes


def events_of(*names_or_records: Any) -> list[Event]:
    translator = Translator()
    return [e for r in names_or_records for e in translator.translate(record(r) if isinstance(r, str) else r)]


def test_a_failed_job_has_its_call_site() -> None:
    """The body of a failed job's event contains the job's number, call site and cause."""
    start = JobStart(job_id=6, time=1, properties={"callSite.short": "collect at /app/job.py:21"})
    (event,) = [e for e in events_of(start, "4.3-batch-udf-trace") if e.name == "JobFailureEvent"]
    assert event.body == (
        "Job 6 (collect at /app/job.py:21) failed: ZeroDivisionError: integer division or modulo by zero (job.py:20)"
    )
    assert (event.severity, event.attributes["spark.entity"]) == (Severity.WARN, "job")


def test_a_failed_job_of_a_micro_batch_names_query_and_batch() -> None:
    """The failed job of a micro-batch names the query and the batch, even if the start of the query is unknown."""
    properties = {"sql.streaming.queryId": "q1", "streaming.sql.batchId": "7"}
    start = JobStart(job_id=6, time=1, properties=properties)
    (event,) = [e for e in events_of(start, "4.3-batch-udf-trace") if e.name == "JobFailureEvent"]
    assert event.body.startswith("Job 6 (query 'q1', batch 7) failed: ZeroDivisionError")
    assert event.attributes["spark.batch.id"] == 7
    assert event.attributes["spark.streaming.query.id"] == "q1"


def test_a_cancelled_job_is_no_failure() -> None:
    (change,) = events_of("4.3-cancelled")
    assert (change.name, change.severity) == ("JobStatusChangeEvent", Severity.INFO)
    assert change.attributes["spark.status.new"] == "CANCELLED"
    assert "was cancelled" in change.body


def test_job_cancelled_by_stop_makes_no_event() -> None:
    """A job that stop() cancels causes no event, because the user stopped the query on purpose."""
    start = JobStart(job_id=2, time=1, properties={"sql.streaming.queryId": "q1"})
    assert events_of(start, "4.3-cancelled") == []


@pytest.mark.parametrize(
    ("why", "count"),
    [
        ("Query [id = q1, runId = run-of-q1] was stopped", 0),
        ("part of cancelled job group run-of-q1", 0),
        ("as part of cancellation of all jobs", 1),
        ("part of cancelled job group nightly", 1),
    ],
)
def test_job_of_a_query_cancelled_without_stop_is_reported(why: str, count: int) -> None:
    """A job of a query that is cancelled without stop() may be the cause of its query's failure."""
    query = QueryStarted(id="q1", run_id="run-of-q1", name="q", timestamp="2026-01-31T10:00:00.000Z")
    start = JobStart(job_id=6, time=1, properties={"sql.streaming.queryId": "q1", "streaming.sql.batchId": "7"})
    message = f"[SPARK_JOB_CANCELLED] Job 6 cancelled {why} SQLSTATE: XXKDA"
    link = ExceptionLink(type="org.apache.spark.SparkException", message=message, error_class="SPARK_JOB_CANCELLED")
    end = JobEnd(job_id=6, time=2, failure=Failure(chain=[link], trace=f"{link.type}: {message}\n\tat a.B.c(B.java:1)"))
    translator = Translator()
    events = [event for record in (query, start, end) for event in translator.translate(record)]
    cancelled = [event for event in events if event.attributes.get("spark.status.new") == "CANCELLED"]
    assert [event.severity for event in cancelled] == [Severity.INFO] * count


CALLED = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/pyspark/sql/utils.py", line 120, in call
    self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
  File "/app/book.py", line 16, in book
    df.write.jdbc(url, "payments")
  File "/opt/venv/lib/python3.11/site-packages/py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o57.save.
: {java}
\tat java.sql/java.sql.DriverManager.getDriver(DriverManager.java:300)
\tat org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions.<init>(JDBCOptions.scala:110)
"""


@pytest.mark.parametrize(
    ("java", "cause", "label"),
    [
        ("java.sql.SQLException: No suitable driver", "java.sql.SQLException: No suitable driver", "SYSTEM"),
        ("java.lang.OutOfMemoryError: Java heap space", "java.lang.OutOfMemoryError: Java heap space", "SYSTEM"),
        ("java.io.IOException", "java.io.IOException", None),
        (
            "org.apache.spark.SparkException: Aborted\n\tat a.B.c(B.java:1)\nCaused by: java.io.IOException: Mkdirs",
            "java.io.IOException: Mkdirs",
            None,
        ),
    ],
)
def test_the_error_of_a_call_to_the_jvm_is_the_cause(java: str, cause: str, label: str | None) -> None:
    """The cause of a py4j error is the error in the JVM. The location is the line of the Python call."""
    message = CALLED.format(java=java)
    text = f"py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: {message}"
    found = Diagnostics([TypeEnricher()]).of_text(text)
    assert found.attributes["failure.root_cause"] == cause
    assert found.attributes["failure.location"] == "/app/book.py:16 in book"
    assert found.attributes.get("failure.label.type") == label


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/opt/venv/lib/python3.11/site-packages/pyspark/sql/utils.py", line 120, in call
  |     self.func(DataFrame(jdf, wrapped_session_jdf), batch_id)
  |   File "/app/book.py", line 30, in book
  |     asyncio.run(everything(rows))
  |   File "/usr/lib/python3.11/asyncio/taskgroups.py", line 145, in __aexit__
  |     raise me from None
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/app/book.py", line 16, in pay
    |     raise ValueError(f"payment {number} has no currency")
    | ValueError: payment 1003 has no currency
    +------------------------------------
"""


def test_the_cause_of_an_exception_group_is_one_of_its_exceptions() -> None:
    """The cause of an exception group, for example from ``asyncio.TaskGroup``, is one of its exceptions."""
    found = Diagnostics([TypeEnricher()]).of_text(f"py4j.Py4JException: Return Message: {GROUP}")
    assert found.attributes["failure.root_cause"] == "ValueError: payment 1003 has no currency"
    assert found.attributes["failure.location"] == "/app/book.py:16 in pay"
    assert found.attributes["failure.label.type"] == "USER"


SECOND = """    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "/app/book.py", line 19, in notify
    |     {raised}
    | {error}
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("first", "second", "expected", "retry"),
    [
        ("httpx.ConnectError: refused", "KeyError: 'CHF'", "UNKNOWN", None),
        ("KeyError: 'CHF'", "httpx.ConnectError: refused", "UNKNOWN", None),
        ("httpx.ConnectError: refused", "psycopg.OperationalError: refused", "EXTERNAL_SYSTEM", True),
        ("KeyError: 'CHF'", "TypeError: None", "USER_CODE", False),
        ("shop.PriceError: 3", "httpx.ConnectError: refused", "UNKNOWN", None),
    ],
)
def test_the_class_of_a_group_is_that_of_all_its_exceptions(
    first: str, second: str, expected: str, retry: bool | None
) -> None:
    """A rerun that helps against one exception of a group may not help against another."""
    end = "    +------------------------------------\n"
    begun = GROUP.replace("ValueError: payment 1003 has no currency\n", f"{first}\n").removesuffix(end)
    found = Diagnostics([TypeEnricher()]).of_text(begun + SECOND.format(raised="post(payment)", error=second))
    assert found.attributes["failure.class"] == expected
    assert found.attributes.get("failure.retry_useful") == retry
    assert found.attributes["failure.location"] == "/app/book.py:19 in notify"
    assert found.attributes["failure.root_cause"] == second


RAISED = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/app/job.py", line 20, in process
    out = enrich_batch(df, lookup, output="country string")
  File "{file}", line 54, in run
    raise RuntimeError("not the user's")
RuntimeError: not the user's
"""
SHIPPED = "/tmp/spark-1f/userFiles-2e/spark_events-0.1.0.zip/"


@pytest.mark.parametrize(
    "file",
    [
        f"{SHIPPED}spark_events/enrichment/worker/partition.py",
        f"{SHIPPED}spark_events/__init__.py",
        "/x/spark_events/enrichment/worker/partition.py",
        "/x/deps.zip/spark_events/dispatch/pipeline.py",
        r"C:\x\spark_events\event\model.py",
    ],
)
def test_no_line_of_this_package_is_user_code(file: str) -> None:
    """Code of this package never counts as the user's code, in a checkout or shipped to executors."""
    found = Diagnostics().of_text(RAISED.format(file=file))
    assert found.attributes["failure.location"] == "/app/job.py:20 in process"


def test_generated_code_is_no_location() -> None:
    """The location of an error in a dataclass's generated ``__init__`` is the line that creates the object."""
    found = Diagnostics().of_text(RAISED.format(file="<string>"))
    assert found.attributes["failure.location"] == "/app/job.py:20 in process"


def test_all_files_of_this_package_are_recognized() -> None:
    """The pattern for files of this package matches all of its folders, including new folders."""
    files = [f"/x/spark_events/{path.relative_to(PACKAGE).as_posix()}" for path in PACKAGE.rglob("*.py")]
    locations = {file: Diagnostics().of_text(RAISED.format(file=file)).attributes["failure.location"] for file in files}
    assert locations == dict.fromkeys(files, "/app/job.py:20 in process")


@pytest.mark.parametrize(
    "file",
    [
        "/home/me/my_spark_events_jobs/job.py",
        "/home/me/spark_events/job.py",
        "/home/me/spark_events/jobs/enrich.py",
        "/home/me/spark_events/examples/payments.py",
        "/home/me/my_spark_events/event/orders.py",
        "/home/me/spark_events.py",
    ],
)
def test_a_user_s_folder_of_the_same_name_is_user_code(file: str) -> None:
    """A user's folder with the name of this package is user code; only the files of this package are excluded."""
    assert Diagnostics().of_text(RAISED.format(file=file)).attributes["failure.location"] == f"{file}:54 in run"


def test_no_line_of_the_jar_is_user_code() -> None:
    """No line in the jar counts as the user's code. If the jar rejects a call, the location is the line of the call."""
    trace = (
        "java.lang.IllegalArgumentException: severity: given LOUD, expected one of TRACE\n"
        "\tat io.sparkevents.EventBuilder.severity(EventBuilder.java:43)\n"
        "\tat com.acme.Orders$.main(Orders.scala:5)\n"
    )
    diagnostics = Diagnostics()
    diagnostics.code = UserCode(main_class="com.acme.Orders")
    assert diagnostics.of_text(trace).attributes["failure.location"] == "Orders.scala:5 in com.acme.Orders$.main"


def test_call_without_java_trace_is_its_own_cause() -> None:
    """If a py4j error contains no Java trace, for example because of truncation, this error is the cause."""
    text = CALLED.partition("\n: ")[0]
    assert "Py4JJavaError: An error occurred while calling o57.save." in Diagnostics().of_text(text).summary


def test_a_long_trace_is_truncated_with_a_mark() -> None:
    """A long trace keeps its first and last parts, which contain the causes. An attribute marks the truncation."""
    text = "a.B: first\n" + "\tat a.B.c(B.java:1)\n" * 2_000 + "Caused by: c.D: last\n\tat c.D.e(D.java:2)"
    found = Diagnostics().of_text(text)
    trace = str(found.attributes["exception.stacktrace"])
    assert len(trace) < TRACE_LIMIT + 100
    assert trace.startswith("a.B: first")
    assert trace.endswith("at c.D.e(D.java:2)")
    assert found.attributes["failure.stacktrace_cut"] is True
    assert found.attributes["failure.root_cause"] == "c.D: last"


def test_a_long_message_is_truncated_in_attributes_and_body() -> None:
    """A long message is truncated in attributes and body, so the size of the event is limited. The body is one line."""
    found = Diagnostics().of_text("a.B: " + "x\n" * 10_000)
    assert len(str(found.attributes["exception.message"])) < MESSAGE_LIMIT + 100
    assert len(str(found.attributes["failure.root_cause"])) < MESSAGE_LIMIT + 100
    assert len(found.summary) <= SUMMARY_LIMIT
    assert "\n" not in found.summary


@pytest.mark.parametrize(
    "text", ["", "\n", "no exception at all", "Traceback (most recent call last):", "a.b.c", ": : :"]
)
def test_any_text_is_diagnosed(text: str) -> None:
    """For any text, the analysis returns a type, a message and a trace."""
    attributes = Diagnostics().of_text(text).attributes
    assert {"error.type", "exception.type", "exception.message", "failure.root_cause"} <= attributes.keys()
    assert attributes["exception.stacktrace"] == text


LENGTH = 200_000


@pytest.mark.parametrize(
    "message",
    [
        "\n" * LENGTH,
        "\n\tat a" + " " * LENGTH + "\n" * LENGTH,
        "most recent failure: (TID " + "1" * LENGTH,
        "\n\tat " + "/a(" * LENGTH,
        f"Traceback (most recent call last):\n{'a' * LENGTH}",
        "INCOMPATIBLE_" * (LENGTH // 10),
        "SSL" * LENGTH,
    ],
    ids=["newlines", "spaces and newlines", "digits", "calls", "python", "rule with _", "rule with letters"],
)
def test_a_long_message_is_analysed_in_linear_time(message: str) -> None:
    """Messages that match the start of a pattern many times are analysed at once; quadratic time would be minutes."""
    found = Diagnostics((TypeEnricher(),)).of_text(f"a.B: bad row{message}\n\tat a.B.c(B.java:1)\n")
    assert len(found.summary) < SUMMARY_LIMIT + 100


def test_an_explicit_error_class_has_precedence() -> None:
    """Spark's explicit error class has precedence over an error class in the message."""
    found = Diagnostics().of_text("a.B: [INNER_CLASS] x", error_class="OUTER_CLASS", sql_state="XX000")
    assert (found.error_type, found.attributes["failure.sql_state"]) == ("OUTER_CLASS", "XX000")


def test_the_first_of_chained_python_errors_is_the_root() -> None:
    """In chained Python errors ('raise ... from error'), the cause is the root error; the location is the last line."""
    text = (
        "py4j.Py4JException: x Return Message: Traceback (most recent call last):\n"
        "  File \"/app/a.py\", line 1, in inner\n    x\nKeyError: 'k'\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        '  File "/app/a.py", line 9, in outer\n    y\nRuntimeError: wrapped\n\n\tat py4j.X.y(X.java:1)\n'
    )
    found = Diagnostics().of_text(text)
    assert found.attributes["failure.root_cause"] == "KeyError: 'k'"
    assert found.attributes["failure.location"] == "/app/a.py:9 in outer"


@pytest.mark.parametrize("kind", ["ValueError", "collect.<locals>.PaymentError", "acme.errors.Zahlungsfehler"])
@pytest.mark.parametrize("frames", ["", "\tat org.apache.spark.A.b(A.scala:1)\n"])
def test_a_python_message_does_not_replace_the_root_cause(kind: str, frames: str) -> None:
    """Lines in a Python message that look like a cause do not replace the root cause, the line after the frames."""
    message = "payment failed\nCaused by: com.acme.Bank: no money\njava.lang.Error: x\nmore\n"
    text = (
        "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        f'  File "/app/job.py", line 18, in pay\n    raise\n    ^^^^^\n{kind}: {message}\n{frames}'
    )
    found = Diagnostics().of_text(text)
    assert found.attributes["failure.root_cause"] == f"{kind}: payment failed"
    assert found.attributes["failure.location"] == "/app/job.py:18 in pay"


def test_a_java_message_does_not_replace_the_root_cause() -> None:
    """Lines in a Java message that look like a cause are ignored, because a cause must follow a frame."""
    text = (
        "a.B: first\nCaused by: no.Such: thing\n\tat a.B.c(B.java:1)\n"
        "Caused by: c.D: second\nCaused by: no.Such: thing\n\tat c.D.e(D.java:2)\n\t... 3 more\n"
    )
    found = Diagnostics().of_text(text)
    assert found.attributes["failure.root_cause"] == "c.D: second\nCaused by: no.Such: thing"


CRASHED = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 2 times, \
most recent failure: Lost task 0.1 in stage 2.0 (TID 6) (10.0.0.9 executor driver): org.apache.spark.SparkException: \
Python worker exited unexpectedly (crashed){rest}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.a(PythonRunner.scala:1136)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readFully(DataInputStream.java:210)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.a(DAGScheduler.scala:1)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readFully(DataInputStream.java:210)
"""
HINT = ". Consider setting 'spark.python.worker.faulthandler.enabled' configuration to 'true' for the better traceback."
FAULT = """: Fatal Python error: Segmentation fault

Current thread 0x00007f20e7e6ab80 (most recent call first):
  File "/opt/venv/lib/python3.11/site-packages/native/api.py", line 3 in call
  File "/app/job.py", line 12 in segv
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2884 in <listcomp>
"""


@pytest.mark.parametrize(
    ("rest", "message", "location", "label"),
    [
        ("", "", None, "SYSTEM"),
        (HINT, "", None, "SYSTEM"),
        (": \n", "", None, "SYSTEM"),
        (FAULT, ": Fatal Python error: Segmentation fault", "/app/job.py:12 in segv", "SYSTEM"),
        (", exit code 137", ", exit code 137", None, "SYSTEM"),
        (", exited with code -9", ", exited with code -9", None, "SYSTEM"),
        (", exit code: 139", ", exit code: 139", None, "SYSTEM"),
    ],
)
def test_a_python_worker_that_crashed_is_the_root_cause(
    rest: str, message: str, location: str | None, label: str
) -> None:
    """If a Python worker crashes, the crash is the cause, not the closed socket. After a kill, the cause is memory."""
    found = Diagnostics([TypeEnricher()]).of_text(CRASHED.format(rest=rest))
    cause = f"org.apache.spark.SparkException: Python worker exited unexpectedly (crashed){message}"
    assert found.attributes["failure.root_cause"] == cause
    assert found.attributes.get("failure.location") == location
    assert found.attributes["failure.label.type"] == label


def test_a_wrapper_s_class_and_sqlstate_are_ignored_together() -> None:
    """The error class and the SQLSTATE of a wrapper are ignored together, because both belong to one exception."""
    text = (
        "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] reading. SQLSTATE: KD001\n\tat a.B.c(B.java:1)\n"
        "Caused by: org.apache.spark.SparkRuntimeException: [CANNOT_PARSE_JSON_FIELD] Cannot. SQLSTATE: 2203G\n"
    )
    attributes = Diagnostics([TypeEnricher()]).of_text(text).attributes
    found = [attributes[key] for key in ("error.type", "failure.sql_state", "failure.label.type")]
    assert found == ["CANNOT_PARSE_JSON_FIELD", "2203G", "USER"]


def test_the_source_line_belongs_to_the_location() -> None:
    """In a chain, the location is in an outer exception; a frame without a source line has none."""
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/usr/lib/python3.12/site-packages/httpx/_client.py", line 7, in send\n    raise mapped(error)\n'
        "httpx.ConnectError: refused\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        f'  File "/app/job.py", line 18, in pay\n    client.post({"x" * 300})\n           ~~~~~~~~~~~^^^\n'
        '  File "/usr/lib/python3.12/site-packages/httpx/_api.py", line 9, in post\n    return self.send()\n'
        "httpx.ConnectError: refused\n"
    )
    attributes = Diagnostics().of_text(trace).attributes
    assert attributes["failure.location"] == "/app/job.py:18 in pay"
    assert attributes["failure.source_line"] == f"client.post({'x' * 187}…"
    without = Diagnostics().of_text(trace.replace(f"    client.post({'x' * 300})\n           ~~~~~~~~~~~^^^\n", ""))
    assert without.attributes["failure.location"] == "/app/job.py:18 in pay"
    assert "failure.source_line" not in without.attributes
