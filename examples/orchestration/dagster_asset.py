"""Dagster: each event of the application contains its job, asset and run."""

import subprocess

from dagster import AssetExecutionContext, Definitions, asset


def scope_variables(context: AssetExecutionContext) -> str:
    """Return the value of ``spark.events.reporter.<name>.scope.variables.additional``."""
    variables = {
        "dagster.job.name": context.run.job_name,
        "dagster.asset.key": context.asset_key.to_user_string(),
        "dagster.run.id": context.run.run_id,
    }
    return ",".join(f"{key}:{value}" for key, value in variables.items())


@asset
def orders(context: AssetExecutionContext) -> None:
    """Run a Spark job. If the job fails, the asset fails."""
    setting = f"spark.events.reporter.audit.scope.variables.additional={scope_variables(context)}"
    subprocess.run(["spark-submit", "--conf", setting, "/opt/jobs/load_orders.py"], check=True)


defs = Definitions(assets=[orders])
