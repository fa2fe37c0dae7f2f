"""Tests of how programs end in YARN's cluster mode, with drivers in the ApplicationMaster of a one-node cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import tenacity
from fakes import ROOT
from missing import missing
from spark.harness import environment, pyspark_home, two_lines
from spark.quick_java import JVM_OPTIONS

import spark_events

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(900)]

_JARS = ROOT / ".tools" / "yarn" / "jars"
_SOURCES = Path(__file__).parent / "yarn"
_DEADLINE_SECONDS = 600
#: JDK packages that Hadoop's YARN client needs to access. In this test, the client runs in the cluster's process.
_OPENED = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.lang", "java.nio", "sun.nio.ch", "java.util")]


class Expected(NamedTuple):
    """Expected final state in YARN, and expected last event of a program."""

    state: str
    status: str
    reason: str
    exit_code: int | None
    exception: str | None = None
    label: str | None = None


_THROWN = Expected("FAILED", "FAILED", "PROGRAM_FAILED", 15, "java.lang.IllegalStateException")
_OUT_OF_MEMORY = Expected("FAILED", "FAILED", "PROGRAM_FAILED", 15, "java.lang.OutOfMemoryError", "SYSTEM")
_RAISED = Expected("FAILED", "FAILED", "PROGRAM_FAILED", 1)
_RETURNED = Expected("FINISHED", "FINISHED", "RETURNED", 0)
PROGRAMS = {
    "java-throw": _THROWN,
    "java-stop-throw": _THROWN,
    "java-out-of-memory": _OUT_OF_MEMORY,
    "java-exit-3": Expected("FAILED", "FAILED", "EXITED_ON_YARN", None),
    "java-return": _RETURNED,
    "python-raise": _RAISED,
    "python-stop-raise": _RAISED,
    "python-exit-3": Expected("FAILED", "FAILED", "PROGRAM_FAILED", 3),
    "python-return-packed": _RETURNED,
    "python-raise-first": _RETURNED,
}


def _compile(java: Path, classes: Path, path: str) -> Path:
    """Compile the cluster and the Java program, and return the jar of the program."""
    classes.mkdir()
    sources = sorted(_SOURCES.glob("*.java"))
    subprocess.run([java / "javac", "-nowarn", "-cp", path, "-d", classes, *sources], check=True)
    jar = classes.parent / "program.jar"
    subprocess.run([java / "jar", "cf", jar, "-C", classes, "YarnProgram.class"], check=True)
    return jar


def _settings(folder: Path) -> dict[str, str]:
    """Return settings for small drivers without executors; executors would not affect the outcome."""
    dynamic = "spark.dynamicAllocation"
    return {
        **two_lines(),
        "spark.yarn.jars": f"local:{pyspark_home()}/jars/*",
        "spark.yarn.stagingDir": f"file:{folder}/staging",
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.report.interval": "200ms",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        f"{dynamic}.enabled": "true",
        f"{dynamic}.shuffleTracking.enabled": "true",
        f"{dynamic}.minExecutors": "0",
        "spark.events.python": sys.executable,
        "spark.events.sidecar.start-timeout": "2min",
        "spark.events.shutdown.timeout": "1min",
        "spark.events.reporter.audit.type": "file",
    }


def _packed(folder: Path) -> dict[str, str]:
    """Pack an environment with spark-events, and return the settings of docs/platforms/yarn.md.

    The settings contain no path on this machine: neither of Python nor of the jar.
    """
    venv.create(folder / "environment")
    (site,) = (folder / "environment").glob("lib/python3*/site-packages")
    for package in (spark_events, msgspec, tenacity):
        assert package.__file__ is not None
        shutil.copytree(Path(package.__file__).parent, site / package.__name__)
    archive = folder / "environment.tar.gz"
    command = [sys.executable, "-m", "venv_pack", "-q", "-p", str(folder / "environment"), "-o", str(archive)]
    subprocess.run(command, check=True)
    jar = f"environment/{site.relative_to(folder / 'environment')}/spark_events/jars/spark-events-shim.jar"
    return {
        "spark.yarn.dist.archives": f"{archive}#environment",
        "spark.driver.extraClassPath": jar,
        "spark.pyspark.python": "environment/bin/python",
        "spark.events.python": "",
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "environment/bin/python",
    }


def _own_settings(name: str, folder: Path) -> dict[str, str]:
    if name.endswith("-packed"):
        return _packed(folder)
    return {"spark.yarn.maxAppAttempts": "2"} if name.endswith("-first") else {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the cluster, with one subfolder for each program, named after the program."""
    if not _JARS.is_dir():
        missing("there is no YARN cluster in .tools/yarn; make yarn fetches it")
    return tmp_path_factory.mktemp("yarn")


@pytest.fixture(scope="module")
def states(folder: Path) -> dict[str, str]:
    """Run all programs at the same time, and return the state that YARN reports for each program."""
    java = Path(os.environ["JAVA_HOME"]) / "bin"
    path = os.pathsep.join([str(folder), str(folder / "classes"), f"{_JARS}/*", f"{pyspark_home()}/jars/*"])
    jar = _compile(java, folder / "classes", path)
    conf = folder / "spark.conf"
    conf.write_text("".join(f"{key} {value}\n" for key, value in _settings(folder).items()), encoding="utf-8")
    programs: list[str | Path] = []
    for name in PROGRAMS:
        language, _, how = name.removesuffix("-packed").partition("-")
        settings = "\n".join(f"{key}={value}" for key, value in _own_settings(name, folder).items())
        programs += [name, jar if language == "java" else _SOURCES / "yarn_program.py", how, settings]
    archives = ",".join(f"local:{archive}" for archive in (pyspark_home() / "python" / "lib").glob("*.zip"))
    own = {"HADOOP_CONF_DIR": str(folder), "SPARK_CONF_DIR": str(folder), "PYSPARK_ARCHIVES_PATH": archives}
    with (folder / "stderr").open("wb") as log:
        done = subprocess.run(
            [java / "java", *JVM_OPTIONS.split(), *_OPENED, "-cp", path, "MiniYarn", folder, conf, *programs],
            cwd=folder,
            env=environment(own),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=_DEADLINE_SECONDS,
            check=False,
        )
    assert done.returncode == 0, (folder / "stderr").read_text(encoding="utf-8", errors="replace")[-4_000:]
    found = [line.split() for line in done.stdout.splitlines() if line.startswith("state ")]
    return {name: state for _, name, state in found}


def _of_the_application(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "events.jsonl").read_text(encoding="utf-8").splitlines()
    reported: list[dict[str, Any]] = [json.loads(line) for line in lines]
    summary = "ApplicationSummaryEvent"
    return [event for event in reported if event["class_scope"] == "spark.application" and event["name"] != summary]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_outcome_equals_yarn_s(states: dict[str, str], folder: Path, name: str) -> None:
    """The outcome equals YARN's state, and the events contain the exit code and the exception."""
    expected = PROGRAMS[name]
    assert states[name] == expected.state
    events = _of_the_application(folder / name)
    if name.endswith("-first"):
        events = [event for event in events if event["attributes"]["spark.app.attempt_id"] == "2"]
    started, ended, *failures = [event["attributes"] for event in events]
    assert started["spark.status.new"] == "RUNNING"
    assert (ended["spark.status.new"], ended["spark.app.end_reason"]) == (expected.status, expected.reason), events
    if expected.exit_code is not None:
        assert ended["spark.app.exit_code"] == expected.exit_code
    assert len(failures) == (expected.status == "FAILED")
    if expected.exception is not None:
        assert failures[0]["exception.type"] == expected.exception
        assert failures[0].get("failure.label.type") == expected.label


def test_each_attempt_of_the_application_master_is_reported(states: dict[str, str], folder: Path) -> None:
    """A failed first attempt is reported as FAILED, although YARN reports FINISHED after the second attempt."""
    assert states["python-raise-first"] == "FINISHED"
    attempts = [
        (event["attributes"]["spark.app.attempt_id"], event["attributes"]["spark.status.new"])
        for event in _of_the_application(folder / "python-raise-first")
        if event["name"] == "JobStatusChangeEvent"
    ]
    assert attempts == [("1", "RUNNING"), ("1", "FAILED"), ("2", "RUNNING"), ("2", "FINISHED")]
