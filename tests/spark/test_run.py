"""Test of ``spark-events run`` with a real driver and its sidecar."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from spark.harness import SMALL_SPARK, environment, two_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

_PROGRAM = """
import spark_events
from pyspark.sql import SparkSession

spark = spark_events.configure(SparkSession.builder.appName("orders")).getOrCreate()

def book(row):
    raise ConnectionRefusedError(111, "Connection refused")

spark.sparkContext.parallelize([1], 1).map(book).collect()
"""


def test_the_verdict_of_a_failing_program(tmp_path: Path) -> None:
    """The command keeps the exit code, and the sidecar's verdict names cause, class and line."""
    job, conf, kept = tmp_path / "orders.py", tmp_path / "spark-defaults.conf", tmp_path / "verdict.json"
    job.write_text(_PROGRAM)
    settings = {**SMALL_SPARK, **two_lines(), "spark.events.python": sys.executable}
    conf.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    command = [sys.executable, "-c", "from spark_events.cli import main; import sys; sys.exit(main())"]
    submit = ["spark-submit", "--properties-file", str(conf), str(job)]
    done = subprocess.run(
        [*command, "run", "--verdict", str(kept), "--", *submit],
        env=environment({}), capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr[-3000:]
    verdict = json.loads(kept.read_text())
    assert (verdict["outcome"], verdict["exit_code"], verdict["class"]) == ("FAILED", 1, "EXTERNAL_SYSTEM")
    assert verdict["retry_useful"] is True
    assert verdict["location"].startswith(f"{job}:8")
    assert "spark-events: FAILED (exit code 1): orders: " in done.stderr
