"""The shim's parts in a JVM of their own, without Spark running: what each check says is in the files beside this."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from spark.harness import pyspark_home, spark_version

from spark_events.jars import jar_path

SOURCES = sorted(Path(__file__).parent.glob("*Checks.java"))
CHECKS = [check for source in SOURCES for check in re.findall(r"void (check\w+)", source.read_text(encoding="utf-8"))]

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(spark_version() < (4,), reason="compiled against Spark 4, as the shim is"),
]


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    """What each check has said."""
    path = f"{jar_path()}:{pyspark_home() / 'jars'}/*"
    with tempfile.TemporaryDirectory() as classes:
        subprocess.run(["javac", "-encoding", "UTF-8", "-cp", path, "-d", classes, *SOURCES], check=True)
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{classes}:{path}", "io.sparkevents.Checks"]
        named = [source.stem for source in SOURCES if source.stem != "Checks"]
        done = subprocess.run([*command, *named], capture_output=True, text=True, check=True, timeout=540)
    return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)


def test_each_check_has_a_name_of_its_own() -> None:
    """Or one would hide the other."""
    assert len(CHECKS) == len(set(CHECKS)) > 20


@pytest.mark.parametrize("check", CHECKS)
def test_shim(results: dict[str, str], check: str) -> None:
    """Each check holds."""
    assert results[check] == "ok"
