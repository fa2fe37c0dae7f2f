"""Run a benchmark's job under spark-submit, with the sidecar and a file reporter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["submit"]


def submit(
    folder: Path, program: str, jar: Path, arguments: list[str], settings: Mapping[str, str] | None = None
) -> None:
    """Run a job on ``local[2]`` and wait for its completion.

    Args:
        folder: where the job and its events are written.
        program: source code of the job.
        jar: the shim's jar on the driver's class path.
        arguments: command-line arguments of the job.
        settings: further Spark settings.

    Raises:
        subprocess.CalledProcessError: the job failed.
    """
    job = folder / "job.py"
    job.write_text(program, encoding="utf-8")
    all_settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.extraClassPath": str(jar),
        "spark.events.required": "true",
        "spark.events.dispatcher.type": "async-queued",
        "spark.events.reporter.audit.type": "file",
        "spark.events.reporter.audit.path": str(folder / "events.jsonl"),
        **(settings or {}),
    }
    options = [word for key, value in all_settings.items() for word in ("--conf", f"{key}={value}")]
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    command = [str(home / "bin" / "spark-submit"), *options, str(job), *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=environment)
