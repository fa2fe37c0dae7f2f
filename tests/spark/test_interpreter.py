"""Tests of the selection of the sidecar's Python, and of the location from which this Python imports the package."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import Future
from pathlib import Path

import msgspec
import pytest
from spark.harness import IN_MEMORY, PATIENT, REPORTERS, Lab, Run, two_lines

import spark_events

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

PROBE = {
    **PATIENT,
    "events.dispatcher.type": "async-queued",
    "events.reporter.probe.type": "probes:Interpreter",
    "events.reporter.probe.path": "{folder}/interpreter.json",
}


def make_environment(folder: Path) -> Path:
    """Create a virtual environment with the package and its dependencies, and return its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    shutil.copytree(Path(spark_events.__file__).parent, site / "spark_events")
    # Python searches the paths in a .pth file after the folder itself, and does not read .pth files in these paths.
    (site / "dependencies.pth").write_text(f"{Path(msgspec.__file__).parents[1]}\n", encoding="utf-8")
    return site


@pytest.fixture(scope="module")
def site(lab: Lab) -> Path:
    """Return the site-packages of an environment that is not activated."""
    return make_environment(lab.folder / "elsewhere")


@pytest.fixture(scope="module")
def runs(lab: Lab, site: Path) -> dict[str, Future[Run]]:
    """Run the jobs of this module, two at a time."""
    named = str(site.parents[2] / "bin" / "python")
    path = {"PYTHONPATH": str(REPORTERS)}
    jupyter = lab.folder / "bin" / "jupyter"
    jupyter.parent.mkdir()
    jupyter.write_text(f'#!/bin/sh\necho "$@" >> {lab.folder}/jupyter-calls\nexec {sys.executable} "$@"\n')
    jupyter.chmod(0o755)
    return {
        "named": lab.background(
            lab.run, "ending.py", defaults={**two_lines(), **PROBE, "spark.events.python": named}, env=path
        ),
        "jupyter": lab.background(
            lab.run, "ending.py", defaults={**two_lines(), **PROBE}, env={**path, "PYSPARK_DRIVER_PYTHON": str(jupyter)}
        ),
        "not-activated": lab.background(
            lab.run,
            "",
            "-e",
            "select 1",
            program=["spark-sql"],
            defaults={**two_lines(site / "spark_events" / "jars" / "spark-events-shim.jar"), **PROBE, **IN_MEMORY},
            env={**path, "PYSPARK_PYTHON": None, "VIRTUAL_ENV": None, "PATH": "/usr/bin:/bin"},
        ),
    }


def finished(run: Future[Run]) -> Run:
    done = run.result()
    assert done.process.returncode == 0, done.tail()
    assert done.own_messages == []
    return done


def test_the_configured_python_is_used(runs: dict[str, Future[Run]], site: Path) -> None:
    """The Python in spark.events.python has precedence over PySpark's Python."""
    assert finished(runs["named"]).truth("interpreter")["executable"] == str(site.parents[2] / "bin" / "python")


def test_the_sidecar_does_not_use_jupyter(runs: dict[str, Future[Run]], lab: Lab) -> None:
    """If PYSPARK_DRIVER_PYTHON is jupyter, the sidecar uses PYSPARK_PYTHON."""
    assert finished(runs["jupyter"]).truth("interpreter")["executable"] == sys.executable
    assert "-c" not in (lab.folder / "jupyter-calls").read_text().split()


def test_the_environment_of_the_jar_is_used_without_activation(runs: dict[str, Future[Run]], site: Path) -> None:
    """Without a configured Python, the sidecar uses the environment that contains the jar."""
    found = finished(runs["not-activated"]).truth("interpreter")
    assert Path(found["executable"]).parent == site.parents[2] / "bin"
    assert Path(found["package"]).parent == site / "spark_events"


def test_these_tests_run_in_another_environment(site: Path) -> None:
    """Control: the Python environment of these tests differs from the sidecars' environments."""
    assert Path(sysconfig.get_path("purelib")).resolve() != site.resolve()
