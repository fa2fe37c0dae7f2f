"""Tests of the guide and of examples/orchestration with a real Airflow, whose own code asks the retry policy."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fakes import ROOT
from missing import missing
from spark.failing import JOB, KINDS, code_of, settings_of, variables_of

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

EXAMPLES = ROOT / "examples/orchestration"
#: Runs the DAG, and writes the state of each task and the number of its tries.
RUN = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from rerun import dag
run = dag.test()
found = {one.task_id: [str(one.state), one.try_number] for one in run.get_task_instances()}
pathlib.Path(sys.argv[2]).write_text(json.dumps(found))
"""
#: Loads the example with SparkSubmitOperator, and writes its rendered path of the verdict.
LOAD = """
import pathlib, sys
from types import SimpleNamespace
sys.path.insert(0, sys.argv[1])
from airflow_dag import dag
[task] = dag.tasks
assert type(task.retry_policy).__name__ == "RerunByVerdict"
ti = SimpleNamespace(dag_id="orders", run_id="r", task_id="load_orders", map_index=-1, try_number=2)
path = task.render_template(task.conf["spark.events.verdict.path"], {"ti": ti})
pathlib.Path(sys.argv[2]).write_text(path)
"""


def dag_of(version: str, folder: Path) -> str:
    """Return a DAG with three failing tasks: the guide's code, as written for this version of Airflow."""
    code = code_of("Airflow")
    if version == "airflow-2":
        code = code.replace("airflow.providers.standard.operators.bash", "airflow.operators.bash")
        code = code.replace("RerunByVerdict, explain", "FailsForGood, explain")
        code = code.replace("    retry_policy=RerunByVerdict(),\n", "")
        code = code.replace("\nBashOperator(", "\nclass Spark(FailsForGood, BashOperator): ...\nSpark(")
    program = "spark-submit /opt/jobs/load_orders.py"
    assert program in code
    tasks = ""
    for kind in KINDS:
        task = code.replace("load_orders", kind, 1)
        task = task.replace(program, f"spark-submit {folder}/job.py {kind} {folder}")
        tasks += task.replace("retries=3,", "retries=2, retry_delay=datetime.timedelta(0),")
    indented = "".join(f"    {line}\n" for line in tasks.splitlines())
    start = "datetime.datetime(2026, 1, 1)"
    return (
        "import datetime\nfrom airflow import DAG\n\n"
        f"with DAG('rerun', schedule=None, start_date={start}, catchup=False) as dag:\n{indented}"
    )


class Airflow:
    """Airflow in its own environment, with its database in a folder."""

    def __init__(self, version: str, folder: Path) -> None:
        self.python = ROOT / ".tools" / version / "bin" / "python"
        if not self.python.with_name("airflow").exists():
            missing(f"no {version}: run `make airflow`")
        self.dags = folder / "dags"
        self.dags.mkdir()
        (self.dags / "airflow_rerun.py").write_text((EXAMPLES / "airflow_rerun.py").read_text())
        self._folder = folder
        self._variables = variables_of(
            settings_of(folder),
            AIRFLOW_HOME=str(folder / "airflow"),
            AIRFLOW__CORE__DAGS_FOLDER=str(self.dags),
            AIRFLOW__CORE__LOAD_EXAMPLES="false",
            SPARK_VERDICTS=str(folder / "verdicts"),
        )

    def run(self, *arguments: str | Path) -> str:
        """Run Airflow's Python; return its output."""
        done = subprocess.run(
            [self.python, *arguments],
            env=self._variables, cwd=self._folder, capture_output=True, text=True, check=False, timeout=1200,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
        return done.stdout + done.stderr


@pytest.mark.parametrize("version", ["airflow", "airflow-2"])
def test_only_the_transient_failure_is_rerun(version: str, tmp_path: Path) -> None:
    """A permanent and an unknown failure end their tasks, although they have tries left."""
    airflow = Airflow(version, tmp_path)
    (airflow.dags / "rerun.py").write_text(dag_of(version, tmp_path))
    (tmp_path / "job.py").write_text(JOB)
    airflow.run("-m", "airflow", "db", "migrate")
    log = airflow.run("-c", RUN, airflow.dags, tmp_path / "found.json")
    states: dict[str, Any] = json.loads((tmp_path / "found.json").read_text())
    tries = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name in KINDS}
    assert tries == {"transient": "xx", "permanent": "x", "unknown": "x"}, log[-5000:]
    assert {kind: state for kind, (state, _) in states.items()} == {
        "transient": "success", "permanent": "failed", "unknown": "failed",
    }  # fmt: skip
    # The callback is called for the two tasks that failed for good.
    assert "Spark: a rerun does not help: permanent: " in log
    assert "Spark: unknown whether a rerun helps: unknown: " in log
    assert "Spark: a rerun may help" not in log


def test_the_example_with_spark_submit_loads(tmp_path: Path) -> None:
    airflow = Airflow("airflow", tmp_path)
    (airflow.dags / "airflow_dag.py").write_text((EXAMPLES / "airflow_dag.py").read_text())
    airflow.run("-c", LOAD, airflow.dags, tmp_path / "path")
    assert (tmp_path / "path").read_text() == f"{tmp_path}/verdicts/orders/r/load_orders.-1.2.json"
