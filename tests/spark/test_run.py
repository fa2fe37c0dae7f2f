"""Tests of ``spark-events run`` with real drivers and their sidecars."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fakes import eventually
from spark.failing import settings_of, variables_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

#: Program whose argument names its ending.
_PROGRAM = """
import os, pathlib, signal, sys, time
import psutil

how = sys.argv[1]

def book(row):
    raise ConnectionRefusedError(111, "Connection refused")

if how == "no-spark":
    book(1)

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("orders").getOrCreate()
spark.range(3).count()

def command(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""

if how.startswith("kill-"):
    me = psutil.Process()
    [jvm] = [one for one in [*me.parents(), *me.children(True)] if "deploy.SparkSubmit" in command(one)]
    [sidecar] = [one for one in jvm.children() if "spark_events.sidecar" in command(one)]
    parts = {"python": me, "jvm": jvm, "sidecar": sidecar}
    for name in how.split("-")[1:]:
        parts[name].kill()
    if "python" not in how:
        spark.range(3).count()
elif how == "raise":
    book(1)
elif how == "raise-after-stop":
    spark.stop()
    book(1)
elif how == "caught":
    try:
        spark.sparkContext.parallelize([1], 1).map(book).collect()
    except Exception:
        raise ValueError("no report today") from None
elif how == "exit":
    sys.exit(3)
elif how == "query":
    rows = spark.readStream.format("rate").load()
    rows.writeStream.foreachBatch(lambda batch, number: [][number]).start().awaitTermination()
elif how == "wait":
    pathlib.Path("started").touch()
    time.sleep(600)
"""


class Ending(NamedTuple):
    """Start and end of a program: its exit codes, and the expected verdict."""

    how: str
    codes: set[int]
    outcome: str
    failure_class: str | None = None
    rerun: bool | None = None
    says: str = ""
    by: str = "python"
    signal: signal.Signals | None = None


ENDINGS = {
    "success": Ending("ok", {0}, "FINISHED"),
    "success of spark-submit": Ending("ok", {0}, "FINISHED", by="spark-submit"),
    "exception": Ending("raise", {1}, "FAILED", "EXTERNAL_SYSTEM", True, "Connection refused"),
    "exception in spark-submit": Ending(
        "raise", {1}, "FAILED", "EXTERNAL_SYSTEM", True, "Connection refused", "spark-submit"
    ),
    "exception after stop": Ending("raise-after-stop", {1}, "FAILED", "EXTERNAL_SYSTEM", True, "Connection refused"),
    "exception after a caught one": Ending("caught", {1}, "FAILED", "USER_CODE", None, "no report today"),
    "exit code": Ending("exit", {3}, "FAILED", "UNKNOWN", None, "exit code 3"),
    "killed Python": Ending("kill-python", {137}, "FAILED", "UNKNOWN", says="SIGKILL"),
    "out of memory": Ending("kill-python", {137}, "FAILED", "UNKNOWN", says="137", by="spark-submit"),
    "killed JVM": Ending("kill-jvm", {1}, "LOST"),
    "killed JVM of spark-submit": Ending("kill-jvm", {137}, "LOST", by="spark-submit"),
    "killed JVM and sidecar": Ending("kill-sidecar-jvm", {1}, "LOST", says="JVM"),
    "killed JVM and Python": Ending("kill-jvm-python", {137}, "LOST"),
    "all killed": Ending("kill-sidecar-jvm-python", {137}, "LOST", says="SIGKILL"),
    "killed sidecar": Ending("kill-sidecar", {0}, "FINISHED"),
    "no Spark": Ending("no-spark", {1}, "FAILED", "EXTERNAL_SYSTEM", True, "Connection refused"),
    "query": Ending("query", {1}, "FAILED", "USER_CODE", False, "IndexError"),
    "Ctrl-C": Ending("wait", {1, 130}, "CANCELLED", says="SIGINT", signal=signal.SIGINT),
    "timeout": Ending("wait", {143}, "CANCELLED", says="SIGTERM", signal=signal.SIGTERM),
    "timeout of spark-submit": Ending("wait", {143}, "CANCELLED", says="SIGTERM", by="spark-submit",
                                      signal=signal.SIGTERM),
}  # fmt: skip

#: Endings whose verdict depends on the version of Spark; the others run on the newest one only.
ON_EVERY_SPARK = {"exception", "exception in spark-submit", "query"}


def run(folder: Path, program: list[str], to_send: signal.Signals | None = None) -> tuple[int, dict[str, Any], str]:
    """Run a program by the command; return exit code, verdict and standard error."""
    (folder / "job.py").write_text(_PROGRAM)
    command = [sys.executable, "-c", "from spark_events.cli import main; import sys; sys.exit(main())", "run"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--verdict", "verdict.json", "--", *program],
            env=variables_of(settings_of(folder)), cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            if to_send is not None:
                eventually((folder / "started").exists, within=300)
                process.send_signal(to_send)
            code = process.wait(600)
        finally:
            process.kill()
    return code, json.loads((folder / "verdict.json").read_text()), (folder / "log").read_text(errors="replace")


@pytest.mark.parametrize(
    "name", [name if name in ON_EVERY_SPARK else pytest.param(name, marks=pytest.mark.any_spark) for name in ENDINGS]
)
def test_an_ending(name: str, tmp_path: Path) -> None:
    """The exit code is kept, and the verdict names outcome, class and whether a rerun helps."""
    ending = ENDINGS[name]
    program = [sys.executable if ending.by == "python" else ending.by, "job.py", ending.how]
    code, verdict, log = run(tmp_path, program, ending.signal)
    shown = [line for line in log.splitlines() if line.startswith("spark-events: ")]
    assert code in ending.codes, log[-3000:]
    assert verdict["exit_code"] == code
    assert (verdict["outcome"], verdict.get("class"), verdict.get("retry_useful")) == (
        ending.outcome, ending.failure_class, ending.rerun,
    ), log[-3000:]  # fmt: skip
    assert shown[0].startswith(f"spark-events: {ending.outcome} (exit code {code}): ")
    assert ending.says in "\n".join(shown)
    assert f"{tmp_path}" in verdict.get("location", f"{tmp_path}")


@pytest.mark.any_spark
def test_a_file_that_is_missing(tmp_path: Path) -> None:
    code, verdict, log = run(tmp_path, ["spark-submit", "no-such-file.py"])
    assert (code, verdict["outcome"]) == (2, "FAILED"), log
    assert "the program exited with 2, and no sidecar wrote a verdict" in log
