"""Dagster: rerun an op or an asset only if the verdict of its Spark application says that a rerun helps.

Copy this file beside your definitions. No setting of Dagster is needed: the exception that :func:`run_spark` raises
decides. A ``RetryPolicy`` of the op would rerun unknown failures, too.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

from dagster import Failure, RetryRequested


def run_spark(command: Sequence[str], max_retries: int = 3, seconds_to_wait: float = 60) -> dict[str, Any]:
    """Run a command such as ``["spark-submit", "job.py"]``, and return its verdict.

    Args:
        command: the program and its arguments.
        max_retries: the maximum number of reruns.
        seconds_to_wait: pause before a rerun.

    Raises:
        RetryRequested: when a rerun helps.
        Failure: when a rerun does not help, or when that is unknown.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "verdict.json")
        done = subprocess.run(["spark-events", "run", "--verdict", str(path), "--", *command], check=False)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if done.returncode == 0:
        return found
    known = {key: str(found[key]) for key in ("class", "cause", "location", "incident_id") if key in found}
    failure = Failure(found["body"], metadata=known, allow_retries=False)
    if found.get("retry_useful") is True:
        raise RetryRequested(max_retries, seconds_to_wait) from failure
    raise failure
