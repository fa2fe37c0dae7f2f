"""Airflow: rerun a task only if the verdict of its Spark application says that a rerun helps.

Copy this file into the folder of your DAGs. Let the application write its verdict to ``VERDICT``, and pass to the task:

- Airflow 3.3 or newer: ``retries=3, retry_policy=RerunByVerdict()``
- Airflow 2, and 3.0 to 3.2: ``retries=3``, and an operator ``class Submit(FailsForGood, SparkSubmitOperator): ...``
- all versions: ``on_failure_callback=explain``, which logs the cause of the failure
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
from typing import Any

from airflow.exceptions import AirflowFailException

#: Folder that the driver and the worker of the task share.
FOLDER = os.environ.get("SPARK_VERDICTS", "/tmp/spark-verdicts")
#: Template of the verdict's path. Each try has its own file, so a try never reads the verdict of an earlier one.
VERDICT = FOLDER + "/{{ ti.dag_id }}/{{ ti.run_id }}/{{ ti.task_id }}.{{ ti.map_index }}.{{ ti.try_number }}.json"

log = logging.getLogger("airflow.task")


def verdict_of(context: Any) -> dict[str, Any]:
    """Return the verdict of the task's application; empty if the application wrote none."""
    path = context["ti"].task.render_template(VERDICT, context)
    try:
        found: dict[str, Any] = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def reason_in(verdict: dict[str, Any]) -> str:
    """Return one line for the log: whether a rerun helps, and why the application failed."""
    helps: dict[Any, str] = {True: "a rerun may help", False: "a rerun does not help"}
    said = helps.get(verdict.get("retry_useful"), "unknown whether a rerun helps")
    return f"{said}: {verdict.get('body', 'the application wrote no verdict')}"


def explain(context: Any) -> None:
    """Log why the application failed; for ``on_failure_callback`` and ``on_retry_callback``."""
    verdict = verdict_of(context)
    log.error("Spark: %s\n%s", reason_in(verdict), verdict.get("card", ""))


class FailsForGood:
    """Operator that fails without further tries, unless its verdict says that a rerun helps."""

    def execute(self, context: Any, **others: Any) -> Any:
        try:
            return super().execute(context, **others)  # type: ignore[misc]
        except Exception as error:
            verdict = verdict_of(context)
            if verdict.get("retry_useful") is True:
                raise
            raise AirflowFailException(reason_in(verdict)) from error


try:
    from airflow.sdk import RetryDecision, RetryPolicy
except ImportError:  # Airflow before 3.3
    pass
else:

    class RerunByVerdict(RetryPolicy):  # type: ignore[misc]
        """Retry policy that reruns a task only if its verdict says that a rerun helps."""

        def evaluate(
            self, exception: BaseException, try_number: int, max_tries: int, context: Any = None
        ) -> RetryDecision:
            verdict = verdict_of(context)
            reason = reason_in(verdict)
            if verdict.get("retry_useful") is True:
                return RetryDecision.retry(reason=reason)
            return RetryDecision.fail(reason=reason)
