"""Compare the reports of Spark and each tool about ten ways in which an application ends.

Each tool observes the same ten programs, one run per program and tool, with spark-submit in client mode and the tool's
output in a file. Spark's own report is the exit code of spark-submit; for the event log, the answer of the
history server also counts. A report is

- right (✓) if it contains the application's outcome: finished, or failed (for a killed driver also: killed);
- wrong (✗) if it contains the opposite outcome;
- open (–) if it contains no outcome: no output, only metrics, or an end without an outcome.

"cause" means that the output contains the text of the error. The results are a table in Markdown, and JSON, in
build/bench. ``ENDINGS`` selects some of the endings, such as ``ENDINGS="success,kill -9"``, and ``ENDINGS_TOOLS``
selects some of the tools.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._peers import SPARK_HOME, TOOLS, Tool, environment, spark_version, write

_SECONDS = 180
_PROGRAM = """
import os, signal, sys, threading, time
from pyspark.sql import SparkSession
how = sys.argv[1]
spark = SparkSession.builder.appName(how).getOrCreate()
assert spark.range(3).count() == 3
def refuse(value):
    raise ValueError("the value is refused")
if how == "exception":
    raise ValueError("the program is wrong")
if how == "exit(3)":
    sys.exit(3)
if how == "kill -9":
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(2)
if how == "out of memory":
    spark.range(1).selectExpr("sum(length(repeat('x', 2000000000 + cast(id as int))))").collect()
if how == "cancelled job":
    def cancel():
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            time.sleep(0.1)
        spark.sparkContext.cancelAllJobs()
    threading.Thread(target=cancel).start()
    try:
        spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: time.sleep(60))
    except Exception as error:
        print("cancelled:", type(error).__name__)
if how == "caught exception":
    try:
        spark.sparkContext.parallelize(range(2), 2).foreach(refuse)
    except Exception as error:
        print("caught:", type(error).__name__)
if how == "failed query":
    def process(batch, number):
        raise ValueError("the batch is refused")
    stream = spark.readStream.format("rate").load().writeStream.foreachBatch(process)
    stream.option("checkpointLocation", sys.argv[2]).start().awaitTermination()
if how == "analysis error":
    spark.table("no_such_table").count()
spark.stop()
if how == "stop, exception":
    raise ValueError("the program is wrong")
"""


class Ending(NamedTuple):
    """Way in which an application ends: description, correct outcomes, and the string that identifies the cause."""

    happens: str
    outcomes: frozenset[str]
    cause: str | None = None


_FAILED, _FINISHED = frozenset({"failed"}), frozenset({"finished"})
_ENDINGS = {
    "success": Ending("`spark.stop()` and the end of the program", _FINISHED),
    "exception": Ending("an exception leaves the Python program", _FAILED, "the program is wrong"),
    "exit(3)": Ending("`sys.exit(3)`", _FAILED),
    "kill -9": Ending("`kill -9` of the driver's JVM", frozenset({"failed", "killed"})),
    "out of memory": Ending("the driver's JVM runs out of memory", _FAILED, "OutOfMemoryError"),
    "cancelled job": Ending("a job is cancelled, the program goes on and stops", _FINISHED, "cancel"),
    "caught exception": Ending("a job fails, the program catches it and stops", _FINISHED, "the value is refused"),
    "failed query": Ending("a streaming query fails, and with it the program", _FAILED, "the batch is refused"),
    "analysis error": Ending("the program queries a table that does not exist", _FAILED, "no_such_table"),
    "stop, exception": Ending("`spark.stop()`, then an exception", _FAILED, "the program is wrong"),
}


class Statement(NamedTuple):
    """Report of a tool: its outcome (None: no outcome), its wording, and whether it contains the cause."""

    outcome: str | None
    words: str
    names_cause: bool = False


def _submit(tool: Tool, how: str, folder: Path) -> int:
    """Run one program and return the exit code of spark-submit."""
    job = folder / "job.py"
    job.write_text(_PROGRAM, encoding="utf-8")
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **tool.conf(folder),
    }
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), *options, str(job), how, str(folder / "checkpoint")]
    own = {"SPARK_CONF_DIR": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    with (folder / "output").open("wb") as output:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**environment(), **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=_SECONDS,
            check=False,
        )
    return done.returncode


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _of_exit_code(code: int, folder: Path, cause: str | None) -> Statement:
    words = f"exit code {code}" if code >= 0 else f"signal {-code}"
    outcome = "finished" if code == 0 else "killed" if code in (-9, 137) else "failed"
    output = (folder / "output").read_text(encoding="utf-8", errors="replace")
    return Statement(outcome, words, cause is not None and cause in output)


def _of_event_log(code: int, folder: Path, cause: str | None) -> Statement:
    [log] = (folder / "log").iterdir()
    parts = [log] if log.is_file() else sorted(log.glob("events_*"))
    events = [event for part in parts for event in _lines(part)]
    ends = [event for event in events if event["Event"] == "SparkListenerApplicationEnd"]
    failed = sum(event.get("Job Result", {}).get("Result") == "JobFailed" for event in events)
    code_of_end = ends[-1].get("ExitCode") if ends else None
    words = "no end" if not ends else "end" if code_of_end is None else f"end, exit code {code_of_end}"
    outcome = None if code_of_end is None else "failed" if code_of_end else "finished"
    words += f"; {failed} failed job" if failed else ""
    return Statement(outcome, words, cause is not None and cause in json.dumps(events))


def _of_open_lineage(code: int, folder: Path, cause: str | None) -> Statement:
    events = _lines(folder / "lineage.jsonl")
    of_application: list[str] = []
    of_jobs: list[str] = []
    for event in events:
        kind = event["job"].get("facets", {}).get("jobType", {}).get("jobType")
        (of_application if kind == "APPLICATION" else of_jobs).append(event["eventType"])
    last = of_application[-1] if of_application else None
    outcome = {"COMPLETE": "finished", "FAIL": "failed", "ABORT": "failed"}.get(last or "")
    words = "no end" if outcome is None else str(last)
    words += f"; {of_jobs.count('FAIL')} FAIL of a job" if "FAIL" in of_jobs else ""
    return Statement(outcome, words, cause is not None and cause in json.dumps(events))


def _of_spark_measure(code: int, folder: Path, cause: str | None) -> Statement:
    path = folder / "stages.json"
    if not path.exists():
        return Statement(None, "nothing")
    stages = len(re.findall(r'"stageId"', path.read_text(encoding="utf-8")))
    return Statement(None, f"metrics of {stages} stage{'' if stages == 1 else 's'}")


def _of_spark_events(code: int, folder: Path, cause: str | None) -> Statement:
    events: list[dict[str, Any]] = []
    for _ in range(100):
        events = _lines(folder / "events.jsonl")
        if any(event["name"] == "DispatcherReportEvent" for event in events):
            break
        time.sleep(0.1)  # After the driver was killed, the sidecar may still run.
    ends = [
        event
        for event in events
        if event["name"] == "JobStatusChangeEvent" and event["attributes"].get("spark.entity") == "application"
    ]
    status = ends[-1]["attributes"]["spark.status.new"] if ends else None
    outcome = {"FINISHED": "finished", "FAILED": "failed", "CANCELLED": "failed", "LOST": "killed"}.get(status or "")
    alarms = sum(event["severity"] in ("ERROR", "FATAL") for event in events)
    words = f"{status}; {alarms} alarm{'' if alarms == 1 else 's'}"
    return Statement(outcome, words, cause is not None and cause in json.dumps([event["body"] for event in events]))


_READERS = {
    "no listener": _of_exit_code,
    "event log": _of_event_log,
    "OpenLineage": _of_open_lineage,
    "sparkMeasure": _of_spark_measure,
    "spark-events": _of_spark_events,
}


@contextlib.contextmanager
def _history_server(logs: Path) -> Iterator[int]:
    """Run a history server over event logs and yield its port."""
    port = 18_480
    options = f"-Dspark.history.fs.logDirectory={logs} -Dspark.history.ui.port={port}"
    command = [str(SPARK_HOME / "bin" / "spark-class"), "org.apache.spark.deploy.history.HistoryServer"]
    variables = {**environment(), "SPARK_HISTORY_OPTS": options}
    with subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        yield port
        server.terminate()


def _of_history_server(logs: Path, count: int) -> dict[str, Statement]:
    """Return the history server's report on the application of this name."""
    with _history_server(logs) as port:
        applications: list[dict[str, Any]] = []
        for _ in range(300):
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/applications", timeout=5) as answer,
            ):
                applications = json.load(answer)
            if len(applications) == count:
                break
            time.sleep(0.2)
    found = {}
    for application in applications:
        attempt = application["attempts"][-1]
        # Spark 4.2 and newer may include the final status of a failure.
        status = attempt.get("finalStatus") or attempt.get("exitCode")
        words = "completed" if attempt["completed"] else "incomplete: still running"
        found[application["name"]] = Statement("failed" if status else None, words + (f", {status}" if status else ""))
    return found


def _mark(ending: Ending, statement: Statement) -> str:
    verdict = "–" if statement.outcome is None else "✓" if statement.outcome in ending.outcomes else "✗"
    return f"{verdict} {statement.words}{'; cause' if statement.names_cause else ''}"


def run() -> None:
    """Run all programs with all tools, and write the table to build/bench/endings-<version of Spark>."""
    wanted = os.environ.get("ENDINGS")
    names = wanted.split(",") if wanted else list(_ENDINGS)
    chosen = os.environ.get("ENDINGS_TOOLS", ",".join(_READERS)).split(",")
    tools = [tool for tool in TOOLS if tool.name in _READERS and tool.name in chosen and tool.is_available]
    table: dict[str, dict[str, Statement]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory() as scratch:
        logs = Path(scratch, "logs")
        logs.mkdir()
        for number, how in enumerate(names):
            for tool in tools:
                folder = Path(scratch, f"{number}-{tool.name.replace(' ', '-')}")
                folder.mkdir()
                code = _submit(tool, how, folder)
                table[how][tool.title] = _READERS[tool.name](code, folder, _ENDINGS[how].cause)
                if tool.name == "event log":
                    [log] = (folder / "log").iterdir()
                    (shutil.copytree if log.is_dir() else shutil.copy)(log, logs / log.name)
        found = _of_history_server(logs, len(names)) if any(logs.iterdir()) else {}
        for how, statement in found.items():
            table[how]["history server"] = statement
    _conclude(table)


def _conclude(table: dict[str, dict[str, Statement]]) -> None:
    columns = list(next(iter(table.values())))
    lines = ["| what happens | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for how, row in table.items():
        marks = [_mark(_ENDINGS[how], row[column]) if column in row else "– unknown" for column in columns]
        lines.append(f"| {_ENDINGS[how].happens} | " + " | ".join(marks) + " |")
    rows = {how: {name: statement._asdict() for name, statement in row.items()} for how, row in table.items()}
    write(f"endings-{spark_version()}", lines, rows)
