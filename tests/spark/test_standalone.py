"""Tests of how applications end on a real standalone cluster: in both deploy modes, and if the worker is killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark.clusters import Cluster
from spark.harness import PATIENT, SMALL_SPARK, Lab, file_reporter, two_lines, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.faults]

_SOURCE = Path(__file__).parent / "standalone" / "StandaloneProgram.java"


class ProgramCluster(Cluster):
    """Standalone cluster whose workers run programs in cluster deploy mode."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.jar = self._jar()

    def submit(self, folder: Path, how: str) -> None:
        """Submit the program in cluster mode. The program writes ``ready`` and ``events.jsonl`` into the folder."""
        reporter = {f"spark.{key}": value for key, value in file_reporter(folder / "events.jsonl").items()}
        patient = {f"spark.{key}": value for key, value in PATIENT.items()}
        settings = {**two_lines(), **reporter, **patient, "spark.ui.enabled": "false", "spark.driver.memory": "512m"}
        options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        target = ["--master", self.master, "--deploy-mode", "cluster", *options]
        command: list[str | Path] = [self.home / "bin" / "spark-submit", *target]
        submitted = subprocess.run(
            [*command, "--class", "StandaloneProgram", self.jar, folder / "ready", how],
            env=self.variables,
            capture_output=True,
            check=False,
            timeout=200,
        )
        assert submitted.returncode == 0, submitted.stderr.decode(errors="replace")[-2_000:]

    def _jar(self) -> Path:
        java = Path(os.environ["JAVA_HOME"]) / "bin"
        classes = self.folder / "classes"
        subprocess.run([java / "javac", "-nowarn", "-cp", f"{self.home}/jars/*", "-d", classes, _SOURCE], check=True)
        jar = self.folder / "program.jar"
        subprocess.run([java / "jar", "cf", jar, "-C", classes, "."], check=True)
        return jar


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramCluster]:
    """Yield a standalone cluster without workers."""
    started = ProgramCluster(tmp_path_factory.mktemp("standalone"))
    yield started
    started.close()


@pytest.fixture
def worker(cluster: ProgramCluster) -> subprocess.Popen[bytes]:
    """Return the only worker of the cluster, which several tests use."""
    return cluster.worker()


def _end(folder: Path) -> dict[str, Any]:
    """Wait for the application's end event, and return the event's attributes."""
    wait_for("the driver", (folder / "ready").exists)
    path = folder / "events.jsonl"

    def ended() -> list[dict[str, Any]]:
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        found = [json.loads(line) for line in lines]
        return [
            event["attributes"]
            for event in found
            if event["class_scope"] == "spark.application"
            and event["name"] == "JobStatusChangeEvent"
            and event["attributes"]["spark.status.new"] != "RUNNING"
        ]

    (end, *_) = wait_for("the end of the application", ended)
    return end


@pytest.mark.parametrize(("how", "status"), [("stop", "FINISHED"), ("throw", "FAILED")])
def test_the_end_in_cluster_mode(
    cluster: ProgramCluster, worker: subprocess.Popen[bytes], tmp_path: Path, how: str, status: str
) -> None:
    """In cluster mode, where the worker starts the driver, the sidecar reports the application's end."""
    cluster.submit(tmp_path, how)
    assert _end(tmp_path)["spark.status.new"] == status
    assert worker.poll() is None


def test_the_end_in_client_mode(cluster: ProgramCluster, worker: subprocess.Popen[bytes], lab: Lab) -> None:
    """In client mode, the end of a Python program with executors on the worker is reported."""
    small = {**SMALL_SPARK, "spark.master": cluster.master}
    lines = {**two_lines(), **PATIENT, **file_reporter(Path("{folder}/events.jsonl"))}
    run = lab.run("ending.py", small=small, defaults=lines)
    assert (run.process.returncode, run.own_messages, worker.poll()) == (0, [], None), run.tail()
    *_, end = run.named("JobStatusChangeEvent", spark_entity="application")
    assert end["attributes"]["spark.status.new"] == "FINISHED"
    assert end["attributes"]["spark.app.id"].startswith("app-"), "the application ran on the cluster"


def test_a_driver_without_its_worker_has_failed(
    cluster: ProgramCluster, worker: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """A driver that exits because its worker was killed is FAILED.

    Only a driver that detects the worker's death exits; a killed worker cannot stop its driver.
    """
    cluster.submit(tmp_path, "wait")
    wait_for("the driver", (tmp_path / "ready").exists)
    worker.kill()
    worker.wait()
    end = _end(tmp_path)
    assert end["spark.entity"] == "application"
    assert (end["spark.status.new"], end["spark.app.end_reason"]) == ("FAILED", "SPARK_EXITED")
