"""The shim's parts in a JVM of their own, without Spark running: what each check says is in ShimChecks.java."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from spark.harness import pyspark_home, spark_version

from spark_events.jars import jar_path

SOURCE = Path(__file__).parent / "ShimChecks.java"
CHECKS = re.findall(r"void (check\w+)", SOURCE.read_text(encoding="utf-8"))

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(spark_version() < (4,), reason="compiled against Spark 4, as the shim is"),
]


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    """What each check has said."""
    path = f"{jar_path()}:{pyspark_home() / 'jars'}/*"
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-encoding", "UTF-8", "-cp", path, "-d", classes, str(SOURCE)], check=True)
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{path}", "io.sparkevents.ShimChecks"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=150)
    return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)


@pytest.mark.parametrize("check", CHECKS)
def test_shim(results: dict[str, str], check: str) -> None:
    """Each check holds."""
    assert results[check] == "ok"
