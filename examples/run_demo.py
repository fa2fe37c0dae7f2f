#!/usr/bin/env python3
"""Run three real spark-submit jobs whose code does not mention spark-events, and display their events.

Usage: run_demo.py [--dir DIR] [--logs]. With --logs, the jobs run without spark-events, and a report is made from their
event logs. Requirements: the packages spark-events and pyspark in this Python's environment, and Java for Spark. The
exit code is 1 if an expected event is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
JOB_TIMEOUT_SECONDS = 300
# The caller's Spark and Python settings must not affect the Spark of the demo.
FOREIGN = ("SPARK_", "PYSPARK_", "PYTHONPATH", "PYTHONHOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "HIVE_CONF_DIR")


class Job(NamedTuple):
    script: str
    does: str
    fails: bool = False

    @property
    def name(self) -> str:
        return self.script.removesuffix(".py")


JOBS = (
    Job("clickstream.py", "a stream: clicks per minute, with a watermark and late data"),
    Job("orders.py", "a batch job: one of its steps fails and has a fallback"),
    Job("payments.py", "a stream that fails in foreachBatch", fails=True),
)


class Result(NamedTuple):
    job: Job
    exit_code: int
    seconds: float
    log: Path


def main() -> int:
    parser = argparse.ArgumentParser(description="Run three Spark jobs and show their events.")
    parser.add_argument("--dir", type=Path, help="output folder (default: a new temporary directory)")
    parser.add_argument(
        "--logs", action="store_true", help="run the jobs without spark-events, and report on their event logs"
    )
    chosen = parser.parse_args()
    spark_home = find_spark()
    base = prepare(chosen.dir)
    events_file = base / "events.jsonl"
    settings = write_configuration(base, event_log_lines(base) if chosen.logs else live_lines(events_file))
    write_input(base)

    print("The complete configuration (conf/spark-defaults.conf):\n")
    print("\n".join(f"    {line}" for line in settings))
    print(f"\nRunning {len(JOBS)} jobs with {spark_home / 'bin' / 'spark-submit'}")
    print(f"Spark's own output is in {base / 'logs'}{os.sep}\n")
    results = [run(job, base, spark_home, number) for number, job in enumerate(JOBS, start=1)]
    problems = [problem for result in results for problem in judge_exit(result)]

    if chosen.logs:
        problems += report_on_logs(base)
        return conclude(problems, "The report on the event logs is as expected: `payments` failed, with its cause.")
    if events_file.exists():
        print("\nThe events, as `spark-events tail` shows them:\n")
        problems += show(events_file)
        problems += judge_events(events_file, base)
    else:
        problems.append(f"no job wrote {events_file}")
    summarize(results, events_file)
    if remarks := [f"{result.log}: {line}" for result in results for line in complaints(result.log)]:
        print("\nWarnings and errors of spark-events:")
        print("\n".join(f"  {remark}" for remark in remarks))
    return conclude(problems, "All events are as expected: `payments` fails on purpose, and its events name the cause.")


def conclude(problems: list[str], success: str) -> int:
    if problems:
        print("\nDifferences from the expected result:")
        print("\n".join(f"  - {problem}" for problem in problems))
        return 1
    print(f"\n{success}")
    return 0


def report_on_logs(base: Path) -> list[str]:
    """Print the report on the jobs' event logs. Return the differences from the expected report."""
    from spark_events.cli import main as spark_events

    logs = base / "event-logs"
    print(f"\nThe jobs ran without spark-events. Report on their logs: spark-events report {logs}\n", flush=True)
    output = io.StringIO()
    codes = [spark_events(["report", str(logs)])]
    with contextlib.redirect_stdout(output):
        codes.append(spark_events(["report", str(logs), "--json"]))
    if any(codes):
        return [f"`spark-events report {logs}` ended with exit codes {codes}"]
    report = json.loads(output.getvalue())
    problems = []
    if (names := sorted(one["name"] for one in report["applications"])) != sorted(job.name for job in JOBS):
        problems.append(f"the report has the applications {names}")
    causes = [group["cause"] for group in report["failures"]]
    if not any("payment 1003 has no currency" in cause for cause in causes):
        problems.append(f"the causes of failures are {causes}")
    return problems


def find_spark() -> Path:
    """Return the Spark folder of the installed PySpark without importing it."""
    for package, remedy in (("spark_events", "spark-events"), ("pyspark", "'spark-events[spark]'")):
        if importlib.util.find_spec(package) is None:
            sys.exit(
                f"demo: package {package} not found in {sys.executable}; run: {sys.executable} -m pip install {remedy}"
            )
    spec = importlib.util.find_spec("pyspark")
    for place in (spec and spec.submodule_search_locations) or ():
        if (Path(place) / "bin" / "spark-submit").is_file():
            return Path(place)
    sys.exit(
        f"demo: the pyspark of {sys.executable} has no bin/spark-submit; install the full package: pip install pyspark"
    )


def prepare(wanted: Path | None) -> Path:
    base = Path(tempfile.mkdtemp(prefix="spark-events-demo-")) if wanted is None else wanted.resolve()
    base.mkdir(parents=True, exist_ok=True)
    if any(base.iterdir()):
        sys.exit(f"demo: {base} is not empty; choose a new directory")
    for folder in ("conf", "input", "output", "logs"):
        (base / folder).mkdir()
    return base


def event_log_lines(base: Path) -> list[str]:
    """Return the lines that most clusters already have, and create the folder of the event logs."""
    folder = base / "event-logs"
    folder.mkdir()
    return ["spark.eventLog.enabled          true", f"spark.eventLog.dir              {folder.as_uri()}"]


def live_lines(events_file: Path) -> list[str]:
    """Return the lines that configure spark-events."""
    from spark_events.cli import conf
    from spark_events.errors import SparkEventsError

    try:
        switched_on = conf.lines()
    except SparkEventsError as error:
        sys.exit(f"demo: {error}")
    return [
        *switched_on,
        "spark.events.dispatcher.type          async-queued",
        "spark.events.reporters                audit, console",
        "spark.events.reporter.audit.type      file",
        f"spark.events.reporter.audit.path      {events_file}",
        "spark.events.reporter.console.type    log",
    ]


def write_configuration(base: Path, settings: list[str]) -> list[str]:
    """Write a configuration directory like that of a cluster. Return the settings."""
    small = [
        "spark.master                    local[2]",
        "spark.ui.enabled                false",
        "spark.sql.shuffle.partitions    1",
        # The jobs take seconds, so full JIT compilation would take longer than it saves.
        "spark.driver.extraJavaOptions   -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    ]
    lines = ["# events", *settings, "", "# a small Spark", *small, ""]
    (base / "conf" / "spark-defaults.conf").write_text("\n".join(lines), encoding="utf-8")
    return settings


def write_input(base: Path) -> None:
    clicks = [[(f"10:0{minute}:{second:02}", "/shop") for second in range(0, 60, 10)] for minute in range(3)]
    clicks.append([("10:00:05", "/late"), ("10:03:00", "/shop")])  # Now the watermark is later than 10:02.
    write_files(
        base / "input" / "clickstream",
        [
            [{"time": f"2026-01-31T{time}Z", "page": page, "user": user} for user, (time, page) in enumerate(batch)]
            for batch in clicks
        ],
    )
    write_files(
        base / "input" / "payments",
        [
            [{"id": 1001, "amount": 20, "currency": "EUR"}, {"id": 1002, "amount": 35, "currency": "EUR"}],
            [{"id": 1003, "amount": 12, "currency": None}],
        ],
    )
    (base / "input" / "orders").write_text("id,amount\n1,20\n2,n/a\n3,35\n", encoding="utf-8")


def write_files(folder: Path, batches: list[list[dict[str, Any]]]) -> None:
    """Write one file per batch, each one second newer than the previous file.

    A file source reads the oldest file first.
    """
    folder.mkdir()
    now = time.time()
    for number, batch in enumerate(batches):
        file = folder / f"{number}.json"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in batch), encoding="utf-8")
        moment = now - len(batches) + number
        os.utime(file, (moment, moment))


def run(job: Job, base: Path, spark_home: Path, number: int) -> Result:
    log = base / "logs" / f"{job.name}.log"
    folders = [str(base / kind / job.name) for kind in ("input", "output")]
    command = [str(spark_home / "bin" / "spark-submit"), str(HERE / job.script), *folders]
    print(f"  {number}/{len(JOBS)}  {job.name:12} {job.does}", flush=True)
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=base,  # Spark writes folders such as spark-warehouse to its working directory.
            env=environment(base, spark_home),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            with progress() as tick:
                while process.poll() is None:
                    seconds = time.monotonic() - started
                    tick(seconds)
                    if seconds > JOB_TIMEOUT_SECONDS:
                        process.kill()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
        except BaseException:
            process.terminate()
            process.wait()
            raise
    result = Result(job, process.returncode, time.monotonic() - started, log)
    intended = " (as intended)" if job.fails and result.exit_code == 1 else ""
    print(f"       exit code {result.exit_code}{intended}, {result.seconds:.0f} s", flush=True)
    return result


def environment(base: Path, spark_home: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(FOREIGN)}
    return {
        **kept,
        "SPARK_HOME": str(spark_home),
        "SPARK_CONF_DIR": str(base / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",  # The demo works without a network and without a resolvable host name.
        "PYSPARK_PYTHON": sys.executable,
    }


@contextlib.contextmanager
def progress() -> Iterator[Callable[[float], None]]:
    """While the context is active, display the elapsed seconds on a terminal. On exit, clear the line."""
    if not sys.stdout.isatty():
        yield lambda seconds: None
        return
    try:
        yield lambda seconds: print(f"\r       running, {seconds:.0f} s ", end="", flush=True)
    finally:
        print("\r\033[K", end="", flush=True)


class CountingLines:
    """Output stream that counts the written lines."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.lines = 0

    def write(self, text: str) -> int:
        self.lines += text.count("\n")
        return int(self._stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def show(events_file: Path) -> list[str]:
    from spark_events.cli import main as spark_events

    counting: Any = CountingLines(sys.stdout)
    with contextlib.redirect_stdout(counting):
        code = spark_events(["tail", str(events_file)])
    events = len(events_file.read_bytes().splitlines())
    if code == 0 and counting.lines >= events:
        return []
    return [f"`spark-events tail` showed {counting.lines} of {events} events, exit code {code}"]


def complaints(log: Path) -> list[str]:
    """Return the warnings and errors that the shim and the sidecar wrote to a driver's log."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    # A line of the reporter `log` begins with the tag; those of the shim and the sidecar begin with time and level.
    return [line for line in lines if re.search(r" (WARN|ERROR) .*\[spark-events\] ", line)]


def judge_exit(result: Result) -> list[str]:
    if (result.exit_code != 0) == result.job.fails:
        return []
    last = result.log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
    verb = "should have failed" if result.job.fails else f"ended with exit code {result.exit_code}"
    return [f"{result.job.name} {verb}; the end of {result.log}:\n" + "\n".join(f"      {line}" for line in last)]


def judge_events(events_file: Path, base: Path) -> list[str]:
    """Compare the events with the expected behavior and with Spark's checkpoints. Return the differences."""
    events = [json.loads(line) for line in events_file.read_text(encoding="utf-8").splitlines()]

    def found(job: str, name: str, **wanted: Any) -> list[dict[str, Any]]:
        wanted["spark.app.name"] = job
        return [
            event["attributes"]
            for event in events
            if event["name"] == name
            and all(event["attributes"].get(key.replace("__", ".")) == value for key, value in wanted.items())
        ]

    problems = []

    def expect(holds: object, what: str) -> None:
        if not holds:
            problems.append(what)

    def statuses(job: str, entity: str, *wanted: str) -> None:
        seen = [change["spark.status.new"] for change in found(job, "JobStatusChangeEvent", spark__entity=entity)]
        expect(seen == list(wanted), f"{job}: the {entity}'s statuses are {seen}, not {list(wanted)}")

    statuses("clickstream", "application", "RUNNING", "FINISHED")
    statuses("clickstream", "query", "RUNNING", "FINISHED")
    statuses("orders", "application", "RUNNING", "FINISHED")
    statuses("payments", "application", "RUNNING", "FAILED")
    statuses("payments", "query", "RUNNING", "FAILED")
    for job, most in (("clickstream", 0), ("orders", 0), ("payments", 1)):
        alarms = [e["body"] for e in events if e["severity"] == "ERROR" and e["attributes"]["spark.app.name"] == job]
        expect(len(alarms) == most, f"{job}: {len(alarms)} alarms instead of {most}: {alarms}")
    for job in ("clickstream", "payments"):
        reported = [commit["spark.batch.id"] for commit in found(job, "BatchCommitEvent")]
        commits = base / "output" / job / "checkpoint" / "commits"
        committed = sorted(int(file.name) for file in commits.glob("[0-9]*"))
        expect(reported == committed, f"{job}: reported batches {reported}, Spark committed {committed}")
    late = sum(c.get("spark.state.rows_dropped_by_watermark", 0) for c in found("clickstream", "BatchCommitEvent"))
    expect(late == 1, f"clickstream: {late} late rows were reported, not 1")
    [*failed_steps] = found("orders", "JobFailureEvent", spark__entity="job", error__type="CAST_INVALID_INPUT")
    expect(failed_steps, "orders: no JobFailureEvent with CAST_INVALID_INPUT for its failed step")
    causes = [failure["failure.root_cause"] for failure in found("payments", "JobFailureEvent", spark__entity="query")]
    expect(causes == ["ValueError: payment 1003 has no currency"], f"payments: the causes of failure are {causes}")
    return problems


def summarize(results: list[Result], events_file: Path) -> None:
    counts: dict[str, int] = {}
    if events_file.exists():
        for line in events_file.read_text(encoding="utf-8").splitlines():
            app = json.loads(line)["attributes"].get("spark.app.name", "")
            counts[app] = counts.get(app, 0) + 1
    print("\n  job          exit code  events  seconds")
    for result in results:
        job = result.job.name
        print(f"  {job:12} {result.exit_code:9}  {counts.get(job, 0):6}  {result.seconds:7.0f}")
    if events_file.exists():
        print(f"\nAll events with all attributes, as one JSON document per line: {events_file}")
        print(f"Show failures with their stack traces: {Path(sys.executable).parent / 'spark-events'} tail -v", end=" ")
        print(f"--min-severity error {events_file}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
