"""Tests of the jar: from a Maven repository, at a stable path, of another version, or missing."""

from __future__ import annotations

import zipfile
from concurrent.futures import Future
from pathlib import Path

import pytest
from spark.harness import PATIENT, Lab, Run, file_reporter, two_lines

import spark_events
from release import maven
from spark_events.cli.conf import install

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(900)]

LISTENER = {"spark.extraListeners": "io.sparkevents.EventsListener"}
SETTINGS = {**PATIENT, **file_reporter(Path("{folder}/events.jsonl"), "async-queued")}


def another_version(folder: Path) -> Path:
    """Write a copy of the jar with another version number."""
    target = folder / "other.jar"
    with zipfile.ZipFile(spark_events.jar_path()) as jar, zipfile.ZipFile(target, "w") as copy:
        for name in jar.namelist():
            copy.writestr(name, b"0.0.9" if name == "io/sparkevents/version" else jar.read(name))
    return target


@pytest.fixture(scope="module")
def runs(lab: Lab) -> dict[str, Future[Run]]:
    """Run the jobs of this module, two at a time."""
    maven.write_repository(lab.folder / "repository", documented=False)
    package = f"{maven.GROUP}:{maven.ARTIFACT}:{spark_events.__version__}"
    stable = install(lab.folder / "stable")
    # This Python lacks the package, as after `pip uninstall`.
    alone = {**two_lines(stable), "spark.events.python": "/usr/bin/env"}
    settings = {
        "packages": {
            **LISTENER,
            "spark.jars.packages": package,
            "spark.jars.repositories": f"file://{lab.folder}/repository",
            "spark.jars.ivy": "{folder}/ivy",
        },
        "uninstalled": alone,
        "version": two_lines(another_version(lab.folder)),
        "no-jar": two_lines(lab.folder / "gone" / "spark-events-shim.jar"),
    }
    return {
        name: lab.background(lab.run, "ending.py", defaults={**lines, **SETTINGS}) for name, lines in settings.items()
    }


def test_the_jar_comes_from_a_maven_repository(runs: dict[str, Future[Run]]) -> None:
    """With --packages and the Python package, the jar needs no configured path."""
    run = runs["packages"].result()
    assert run.process.returncode == 0, run.tail()
    assert run.own_messages == []
    *_, end = run.named("JobStatusChangeEvent", spark_entity="application")
    assert end["attributes"]["spark.status.new"] == "FINISHED"
    assert "io.sparkevents#spark-events" in run.log + run.output


def test_an_installed_jar_works_without_the_package(runs: dict[str, Future[Run]]) -> None:
    """If only the copy of the jar remains, the job runs, and one message explains why events are missing."""
    run = runs["uninstalled"].result()
    assert run.process.returncode == 0, run.tail()
    (message,) = run.own_messages
    assert "No Python interpreter could run the sidecar" in message


def test_another_version_is_rejected(runs: dict[str, Future[Run]]) -> None:
    """With a jar of another version, the job runs without events, and one message contains both versions."""
    run = runs["version"].result()
    assert run.process.returncode == 0, run.tail()
    (message,) = run.own_messages
    expected = f"is spark-events 0.0.9, the Python package is {spark_events.__version__}; no event is reported"
    assert expected in message
    assert run.events() == []


def test_spark_does_not_start_without_the_listener_s_class(runs: dict[str, Future[Run]]) -> None:
    """If spark.extraListeners contains the listener but its class is missing, Spark does not start, as documented."""
    run = runs["no-jar"].result()
    assert run.process.returncode == 1
    assert "ClassNotFoundException: io.sparkevents.EventsListener" in run.log
