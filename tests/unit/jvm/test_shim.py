"""Run the JUnit tests of the shim in a separate JVM, without a running Spark."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from fakes import ROOT
from missing import missing
from spark.harness import pyspark_home, spark_version
from spark.quick_java import JVM_OPTIONS, quick_java_home

from spark_events.jars import jar_path

SOURCES = sorted(Path(__file__).parent.glob("*.java"))
TESTS = [
    f"{source.stem}.{name}"
    for source in SOURCES
    for name in re.findall(r"@Test\s+void (\w+)", source.read_text(encoding="utf-8"))
]
JAVAC = ["javac", "-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-encoding", "UTF-8", "-nowarn"]
JUNIT = ROOT / ".tools" / "junit" / "jars"

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(spark_version() < (4,), reason="the tests, like the shim, are compiled against Spark 4"),
]


@pytest.fixture(scope="module")
def failures() -> dict[str, str | None]:
    """Return the result of each JUnit test by name: its failure, or None."""
    junit = next(JUNIT.glob("junit-platform-console-standalone-*.jar"), None)
    if junit is None:
        missing("there is no JUnit in .tools/junit; make junit fetches it")
    # Spark's jars are first on the class path, so that these JVMs, and those that the tests start, can use the archive.
    path = f"{pyspark_home() / 'jars'}/*:{jar_path()}:{junit}"
    options = JVM_OPTIONS
    if home := quick_java_home(pyspark_home()):
        options += f" -XX:SharedArchiveFile={home / 'classes.jsa'}"
    with tempfile.TemporaryDirectory() as folder:
        classes, reports = Path(folder, "classes"), Path(folder, "reports")
        subprocess.run([*JAVAC, "-cp", path, "-d", classes, *SOURCES], check=True)
        launcher = ["java", "-cp", f"{path}:{classes}"]
        execute = ["org.junit.platform.console.ConsoleLauncher", "execute", "--details=none", "--disable-banner"]
        what = [f"--scan-classpath={classes}", "--include-classname=.*Test", f"--reports-dir={reports}"]
        # Exit code 1 means that a test failed. The reports contain the details, so exit code 1 is not an error here.
        variables = {**os.environ, "JDK_JAVA_OPTIONS": options}
        subprocess.run([*launcher, *execute, *what], env=variables, check=False, timeout=540)
        cases = ElementTree.parse(reports / "TEST-junit-jupiter.xml").getroot().iter("testcase")
        return {_name(case): _failure(case) for case in cases}


def _name(case: ElementTree.Element) -> str:
    return f"{case.attrib['classname'].rpartition('.')[2]}.{case.attrib['name'].removesuffix('()')}"


def _failure(case: ElementTree.Element) -> str | None:
    found = case.find("failure")
    found = case.find("error") if found is None else found
    return None if found is None else found.text or found.attrib.get("message", "failed")


def test_benchmarks_compile(tmp_path: Path) -> None:
    """The Java sources of the benchmarks, which no other test runs, compile against the shim."""
    sources = sorted((ROOT / "benchmarks" / "java").glob("*.java"))
    path = f"{jar_path()}:{pyspark_home() / 'jars'}/*"
    command: list[str | Path] = [*JAVAC, "-cp", path, "-d", tmp_path, *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("*Benchmark.class"))) == 3


def test_junit_tests_are_found() -> None:
    """JUnit finds tests, so the name pattern is correct."""
    assert len(TESTS) == len(set(TESTS)) > 50


@pytest.mark.parametrize("test", TESTS)
def test_shim(failures: dict[str, str | None], test: str) -> None:
    """JUnit ran the named test, and the test passed."""
    assert failures.get(test, "JUnit did not run it") is None
