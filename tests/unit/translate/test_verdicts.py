"""Tests of class, evidence, advice and label of whole failures, as events contain them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_events.failures.classes import CLASSES, FIRM, UNKNOWN
from spark_events.records.types import ExceptionLink, Failure
from spark_events.translate.enrichers import TypeEnricher
from spark_events.translate.failures import Diagnostics
from spark_events.translate.user_code import UserCode

ROWS = [
    line.split("\t")
    for line in (Path(__file__).parents[1] / "failures" / "client_errors.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
IN_TASK = """org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, \
most recent failure: Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.9 executor 1): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1247, in main
    process()
  File "/app/job.py", line 12, in send
    {source}
{frames}{error}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:572)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2856)
"""
LIBRARY = '  File "/opt/venv/lib/python3.11/site-packages/client/api.py", line 3, in call\n    raise error\n'


def diagnose(text: str) -> dict[str, object]:
    return dict(Diagnostics([TypeEnricher()]).of_text(text).attributes)


def in_task(error: str, source: str = "client.call(row)", frames: str = LIBRARY) -> dict[str, object]:
    return diagnose(IN_TASK.format(error=error, source=source, frames=frames))


@pytest.mark.parametrize(("error", "failure_class", "retry"), ROWS, ids=[row[0][:60] for row in ROWS])
@pytest.mark.parametrize("frames", [LIBRARY, ""])
def test_errors_of_clients_in_the_user_s_function(error: str, failure_class: str, retry: str, frames: str) -> None:
    """The type decides, whether the client is written in Python or in C (and so has no frames)."""
    found = in_task(error, frames=frames)
    assert found["failure.class"] == failure_class
    assert found["failure.retry_useful"] == (retry == "true")
    assert found["failure.evidence"] == "type"
    assert found["failure.label.type"] == CLASSES[failure_class].label
    assert found["failure.location"] == "/app/job.py:12 in send"


@pytest.mark.parametrize(
    ("error", "source", "frames", "failure_class", "evidence"),
    [
        ("ValueError: no currency", 'raise ValueError("no currency")', "", "USER_CODE", "place"),
        ("ValueError: no currency", 'if not row: raise ValueError("no currency")', "", "USER_CODE", "place"),
        ("AssertionError", "assert row.currency", "", "USER_CODE", "type"),
        ("__main__.NoCurrency: payment 3", "raise NoCurrency(3)", "", "USER_CODE", "place"),
        ("ValueError: odd input", "parse(row)", "", UNKNOWN, None),
        ("ValueError: invalid literal for int() with base 10: 'Connection refused'", "int(row)", "", UNKNOWN, None),
        ("ValueError: time data 'Access denied' does not match format '%Y'", "parse(row)", "", UNKNOWN, None),
        ("ValueError: odd input", "client.call(row)", LIBRARY, UNKNOWN, None),
        ("acme.errors.Odd: odd", "client.call(row)", LIBRARY, UNKNOWN, None),
        ("KeyError: 'currency'", "row['currency']", "", "USER_CODE", "type"),
        ("TypeError: unsupported operand type(s)", "client.call(row)", LIBRARY, "USER_CODE", "type"),
        ("AttributeError: 'NoneType' object has no attribute 'x'", "row.x", "", "USER_CODE", "type"),
        ("NameError: name 'x' is not defined", "x", "", "USER_CODE", "type"),
        ("RuntimeError: the service timed out", 'raise RuntimeError("the service timed out")', "", "EXTERNAL_SYSTEM",
         "text"),
    ],
)  # fmt: skip
def test_the_user_s_code_is_named_only_with_evidence(
    error: str, source: str, frames: str, failure_class: str, evidence: str | None
) -> None:
    """USER_CODE needs the user's own ``raise``, or a type that is a programming error; the rest is UNKNOWN."""
    found = in_task(error, source, frames)
    assert (found["failure.class"], found.get("failure.evidence")) == (failure_class, evidence)
    assert ("failure.retry_useful" in found) == (evidence in FIRM)


ROCKS = """org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading \
state. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1)
Caused by: org.rocksdb.RocksDBException: Mismatch in unique ID on table file 000008. Expected: {1,2} Actual: {3,4}
\tat org.rocksdb.RocksDB.open(Native Method)
"""
COMMIT = """org.apache.iceberg.exceptions.CommitStateUnknownException: Read timed out
Cannot determine whether the commit was successful or not, the underlying data files may or may not be needed.
\tat org.apache.iceberg.hive.HiveTableOperations.doCommit(HiveTableOperations.java:1)
Caused by: java.net.SocketTimeoutException: Read timed out
\tat java.base/java.net.SocketInputStream.read(SocketInputStream.java:1)
"""
ICEBERG = """org.apache.spark.SparkException: Writing job aborted
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.x(QueryExecutionErrors.scala:1)
Caused by: org.apache.iceberg.exceptions.CommitStateUnknownException: Cannot determine whether the commit was successful
\tat org.apache.iceberg.rest.ErrorHandlers.handle(ErrorHandlers.java:1)
"""
POOL = """java.lang.IllegalStateException: Connection pool shut down
\tat org.apache.http.util.Asserts.check(Asserts.java:34)
\tat org.apache.http.impl.conn.PoolingHttpClientConnectionManager.requestConnection(Pooling.java:1)
"""
RPC = """a.B: Traceback (most recent call last):
  File "/app/x.py", line 1, in f
    call()
grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.{}
\tdetails = "x"
>

\tat org.apache.spark.A.b(A.scala:1)
"""
DATA_SOURCE = """org.apache.spark.SparkException: [PYTHON_DATA_SOURCE_ERROR] Failed to read Python data source x: \
Traceback (most recent call last):
  File "/app/source.py", line 9, in read
    client.get()
ConnectionError: host unreachable
SQLSTATE: 38000
"""


@pytest.mark.parametrize(
    ("text", "failure_class", "retry"),
    [
        (DATA_SOURCE, "EXTERNAL_SYSTEM", True),
        ("org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.security.AccessControlException): x", "PERMISSION",
         False),
        ("org.apache.hadoop.ipc.RemoteException(org.apache.hadoop.hdfs.server.namenode.SafeModeException): x",
         "EXTERNAL_SYSTEM", True),
        (RPC.format("UNAVAILABLE"), "EXTERNAL_SYSTEM", True),
        (RPC.format("UNAUTHENTICATED"), "PERMISSION", False),
        (RPC.format("INVALID_ARGUMENT"), UNKNOWN, None),
        ("org.apache.spark.shuffle.FetchFailedException: java.lang.RuntimeException: Executor is not registered "
         "(appId=a, execId=1)", "FETCH_FAILURE", True),
        ("org.apache.uniffle.common.exception.RssFetchFailedException: Failed to read shuffle data", "FETCH_FAILURE",
         True),
        ("org.apache.celeborn.common.exception.CelebornIOException: Fetch chunk failed", "FETCH_FAILURE", True),
        (ROCKS, "DATA_ERROR", False),
        (POOL, "EXTERNAL_SYSTEM", None),
        ("org.apache.spark.SparkException: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple "
         "streaming jobs detected for 5. SQLSTATE: 40000", "CONFIGURATION", False),
        ("java.util.ConcurrentModificationException: Multiple streaming queries are concurrently using "
         "file:/cp/offsets", "CONFIGURATION", None),
        ("java.lang.RuntimeException: Concurrent update to the log. Multiple streaming jobs detected for 5",
         "CONFIGURATION", None),
        (COMMIT, "EXTERNAL_SYSTEM", None),
        (ICEBERG, "EXTERNAL_SYSTEM", None),
        ("java.lang.RuntimeException: file:/x.parquet is not a Parquet file. Expected magic number at tail",
         "DATA_ERROR", None),
        ("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>", "EXTERNAL_SYSTEM", True),
        ("org.apache.spark.SparkException: [FAILED_JDBC.CONNECTION] Failed JDBC jdbc:x on the operation: connect",
         "EXTERNAL_SYSTEM", True),
        ("java.lang.IllegalArgumentException: Wrong basePath /in for the root path: /in/a", "CONFIGURATION", None),
        ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: Container from a bad "
         "node: container_1 on host: h. Exit status: 137. Diagnostics: Container killed on request.",
         "EXECUTOR_OUT_OF_MEMORY", False),
        ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: The executor with id 3 "
         "exited with exit code 143(SIGTERM)", "EXECUTOR_LOST", True),
        ("ExecutorLostFailure (executor 3 exited unrelated to the running tasks) Reason: Container container_1 "
         "exited from explicit termination request. Exit status: -102. Diagnostics: preempted", "EXECUTOR_LOST", True),
        ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks) Reason: \n"
         "The executor with id 3 exited with exit code 137(SIGKILL, possible container OOM).\n"
         "container status: terminated, reason: OOMKilled", "EXECUTOR_OUT_OF_MEMORY", False),
        ("subprocess.CalledProcessError: Command 'convert' returned non-zero exit status 137.", UNKNOWN, None),
        ("java.io.IOException: odd", UNKNOWN, None),
    ],
)  # fmt: skip
def test_failures_of_public_reports(text: str, failure_class: str, retry: bool | None) -> None:
    """The class and the advice of failures that were judged wrong before; the label never contradicts the class."""
    if text.startswith(("urllib", "subprocess")):
        text = f'a.B: Traceback (most recent call last):\n  File "/app/x.py", line 1, in f\n    call()\n{text}\n'
    found = diagnose(text)
    assert (found["failure.class"], found.get("failure.retry_useful")) == (failure_class, retry)
    facts = CLASSES.get(failure_class)
    assert found.get("failure.label.type") == (facts.label if facts else None)


@pytest.mark.parametrize(("text", "warns"), [(COMMIT, True), (ICEBERG, True), (POOL, False), (ROCKS, False)])
def test_the_body_warns_of_a_harmful_rerun(text: str, warns: bool) -> None:
    """If it is unknown whether a commit succeeded, the body of the event says that a rerun may duplicate rows."""
    body = Diagnostics().of_text(text).summary
    assert body.endswith("so a rerun may write the rows a second time") == warns


@pytest.mark.parametrize(
    ("frames", "failure_class"),
    [
        (["com.acme.Job.main"], "USER_CODE"),
        (["com.acme.Job$.check", "com.acme.Job.main"], "USER_CODE"),
        (["org.lib.Client.call", "com.acme.Job.main"], UNKNOWN),
        (["org.apache.spark.sql.X.y", "com.acme.Job.main"], UNKNOWN),
    ],
)
def test_a_throw_of_a_java_program_is_its_own(frames: list[str], failure_class: str) -> None:
    """As in Python, only an exception that the program itself threw is an error of its code."""
    diagnostics = Diagnostics()
    diagnostics.code = UserCode("org.apache.spark.deploy.SparkSubmit --class com.acme.Job /jobs/job.jar")
    spark = "org.apache.spark.deploy.JavaMainApplication.start"
    stack = "".join(f"\tat {frame}(X.java:{line})\n" for line, frame in enumerate([*frames, spark], 1))
    found = diagnostics.of_text(f"java.lang.RuntimeException: no customer\n{stack}").attributes
    assert found["failure.class"] == failure_class


FIRST = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/httpcore/_sync.py", line 3, in read
    raise exc
httpcore.ConnectError: [Errno 111] Connection refused
"""
SECOND = """Traceback (most recent call last):
  File "/app/job.py", line 12, in send
    httpx.get(url)
  File "/opt/venv/lib/python3.11/site-packages/httpx/_api.py", line 9, in get
    raise mapped
httpx.ConnectError: [Errno 111] Connection refused
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/app/job.py", line 12, in send
  |     asyncio.run(everything(rows))
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/opt/venv/lib/python3.11/site-packages/httpx/_api.py", line 9, in get
    |     raise mapped
    | httpx.ConnectError: refused
    +------------------------------------
"""
DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
QUOTED = """Traceback (most recent call last):
  File "/app/job.py", line 12, in send
    raise RuntimeError(answer.text)
RuntimeError: the service answered 500:
Traceback (most recent call last):
  File "/srv/other.py", line 3, in handle
    rows[key]
KeyError: 'k'
\tat shop.Orders.get(Orders.java:12)
Caused by: java.net.SocketTimeoutException: read timed out
"""


@pytest.mark.parametrize(
    ("traceback", "root"),
    [
        (FIRST + DIRECT + SECOND, "httpcore.ConnectError"),
        (FIRST + DURING + SECOND, "httpx.ConnectError"),
        (FIRST + DIRECT + FIRST + DIRECT + SECOND, "httpcore.ConnectError"),
        (FIRST + DURING + FIRST + DIRECT + SECOND, "httpcore.ConnectError"),
        (SECOND + "a note of the program\nand another\n", "httpx.ConnectError"),
        (FIRST + "a note\n" + DIRECT + SECOND, "httpcore.ConnectError"),
        (GROUP, "httpx.ConnectError"),
        (QUOTED, "RuntimeError"),
    ],
)
def test_the_location_is_the_last_own_line_of_the_whole_text(traceback: str, root: str) -> None:
    """Chains, groups, notes and quoted tracebacks have the cause and the location of the program's own code."""
    for text in (f"py4j.Py4JException: Return Message: {traceback}", traceback):
        found = diagnose(text)
        assert str(found["failure.root_cause"]).startswith(root)
        assert found["failure.location"] == "/app/job.py:12 in send"


def test_a_python_message_that_quotes_java_is_read_alike_live_and_in_a_replay() -> None:
    """The message is part of the Python error, whether the trace comes from the shim or from the event log."""
    kind = "org.apache.spark.api.python.PythonException"
    frames = "\tat org.apache.spark.api.python.BasePythonRunner.x(PythonRunner.scala:1)\n"
    live = Diagnostics().of(Failure([ExceptionLink(kind, QUOTED)], f"{kind}: {QUOTED}\n{frames}"))
    replay = Diagnostics().of(Failure([ExceptionLink(kind, QUOTED)], f"{kind}: {QUOTED}\n"))
    assert (live.attributes["failure.class"], live.attributes["failure.evidence"]) == ("USER_CODE", "place")
    for key in ("failure.root_cause", "failure.location", "failure.class", "exception.message", "exception.type"):
        assert live.attributes.get(key) == replay.attributes.get(key)
    assert live.attributes["exception.message"] == QUOTED
