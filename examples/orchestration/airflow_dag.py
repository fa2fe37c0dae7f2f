"""Airflow: each event of the application contains its DAG, task and run, and only what a rerun helps is rerun.

With the OpenLineage provider, also add ``openlineage.parent.run_id:{{ macros.OpenLineageProviderPlugin.lineage_run_id(
task_instance) }}`` to the variables. OpenLineage's Spark listener receives the same run id as its parent.
"""

from __future__ import annotations

import pendulum
from airflow import DAG
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow_rerun import VERDICT, RerunByVerdict, explain  # type: ignore[import-not-found]

VARIABLES = {
    "airflow.dag.id": "{{ dag.dag_id }}",
    "airflow.task.id": "{{ task.task_id }}",
    "airflow.run.id": "{{ run_id }}",
    "airflow.try.number": "{{ ti.try_number }}",
}

with DAG("orders", schedule="@daily", start_date=pendulum.datetime(2026, 1, 1), catchup=False) as dag:
    SparkSubmitOperator(
        task_id="load_orders",
        application="/opt/jobs/load_orders.py",
        conf={
            "spark.events.reporter.audit.scope.variables.additional": ",".join(
                f"{key}:{value}" for key, value in VARIABLES.items()
            ),
            "spark.events.verdict.path": VERDICT,
        },
        retries=3,
        retry_policy=RerunByVerdict(),
        on_failure_callback=explain,
    )
