"""Test of a driver in standalone cluster mode whose worker dies: Spark itself exits such a driver."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from spark.harness import environment, file_reporter, home_in, two_lines, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.faults]

_SOURCE = Path(__file__).parent / "standalone" / "Endless.java"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that the test started; they end with it."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def _jar(folder: Path, home: Path) -> Path:
    java = Path(os.environ["JAVA_HOME"]) / "bin"
    subprocess.run([java / "javac", "-nowarn", "-cp", f"{home}/jars/*", "-d", folder, _SOURCE], check=True)
    jar = folder / "program.jar"
    subprocess.run([java / "jar", "cf", jar, "-C", folder, "Endless.class"], check=True)
    return jar


def test_a_driver_without_its_worker_has_failed(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    """The worker is killed by SIGKILL, so it cannot stop the driver; the driver notices the loss and exits."""
    home = home_in(tmp_path)
    variables = environment({"SPARK_HOME": str(home)})
    port = free_port()

    def daemon(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
        log = (tmp_path / f"{name}.log").open("wb")
        process = subprocess.Popen(command, env=variables, stdout=log, stderr=log, cwd=tmp_path)
        started.append(process)
        return process

    daemon("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    wait_for("the master", lambda: f"port {port}" in (tmp_path / "master.Master.log").read_text(errors="replace"))
    worker = daemon("worker.Worker", "--webui-port", "0", "--cores", "2", f"spark://127.0.0.1:{port}")
    events, ready = tmp_path / "events.jsonl", tmp_path / "ready"
    reporter = {f"spark.{key}": value for key, value in file_reporter(events).items()}
    settings = {**two_lines(), **reporter, "spark.ui.enabled": "false", "spark.driver.memory": "512m"}
    options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    target = ["--master", f"spark://127.0.0.1:{port}", "--deploy-mode", "cluster"]
    submit: list[str | Path] = [home / "bin" / "spark-submit", *target]
    submitted = subprocess.run(
        [*submit, "--class", "Endless", *options, _jar(tmp_path, home), ready],
        env=variables,
        capture_output=True,
        check=False,
        timeout=200,
    )
    assert submitted.returncode == 0, submitted.stderr.decode(errors="replace")[-2_000:]
    wait_for("the driver", ready.exists)
    worker.kill()

    def ended() -> list[dict[str, Any]]:
        lines = events.read_text(encoding="utf-8").splitlines()
        found = [json.loads(line) for line in lines]
        return [
            event
            for event in found
            if event["name"] == "JobStatusChangeEvent" and event["attributes"]["spark.status.new"] != "RUNNING"
        ]

    (end, *_) = wait_for("the end of the application", ended)
    assert end["attributes"]["spark.entity"] == "application"
    assert (end["attributes"]["spark.status.new"], end["attributes"]["spark.app.end_reason"]) == (
        "FAILED",
        "SPARK_EXITED",
    )
