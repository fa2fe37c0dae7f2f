"""Test of examples/orchestration with a real Dagster."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from fakes import ROOT
from missing import missing
from spark.failing import JOB, KINDS, code_of, settings_of, variables_of

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(1800)]

PYTHON = ROOT / ".tools/dagster/bin/python"
#: Materializes three assets of the guide's code, and writes which steps succeeded, failed and were rerun.
RUN = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
folder = sys.argv[2]
import dagster
assets = []
for kind, code in json.loads(sys.argv[3]).items():
    found = {}
    exec(code, found)
    assets.append(found[kind])
with dagster.DagsterInstance.ephemeral() as instance:
    done = dagster.materialize(assets, instance=instance, raise_on_error=False)
kinds = {"STEP_SUCCESS": "success", "STEP_FAILURE": "failed", "STEP_UP_FOR_RETRY": "rerun"}
steps, said = {}, {}
for event in done.all_events:
    if event.event_type_value in kinds:
        steps.setdefault(event.step_key, []).append(kinds[event.event_type_value])
    if event.event_type_value == "STEP_FAILURE":
        why = event.step_failure_data.user_failure_data
        said[event.step_key] = [why.description, sorted(why.metadata)]
pathlib.Path(folder, "found.json").write_text(json.dumps([steps, said]))
"""


def asset_of(kind: str, folder: Path) -> str:
    """Return the guide's asset for a job that fails in one of the ways."""
    code = code_of("Dagster")
    program = '"/opt/jobs/load_orders.py"'
    assert program in code
    code = code.replace(program, f'"{folder}/job.py", "{kind}", "{folder}"').replace("def orders", f"def {kind}")
    return code.replace("seconds_to_wait=60", "seconds_to_wait=0")


def test_only_the_transient_failure_is_rerun(tmp_path: Path) -> None:
    """A permanent and an unknown failure end their steps, and Dagster shows why."""
    if not PYTHON.with_name("dagster").exists():
        missing("no Dagster: run `make dagster`")
    (tmp_path / "job.py").write_text(JOB)
    codes = json.dumps({kind: asset_of(kind, tmp_path) for kind in KINDS})
    done = subprocess.run(
        [PYTHON, "-c", RUN, str(ROOT / "examples/orchestration"), str(tmp_path), codes],
        env=variables_of(settings_of(tmp_path)), capture_output=True, text=True, check=False, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    found, said = json.loads((tmp_path / "found.json").read_text())
    assert found == {"transient": ["rerun", "success"], "permanent": ["failed"], "unknown": ["failed"]}
    assert {kind: (tmp_path / kind).read_text() for kind in found} == {
        "transient": "xx", "permanent": "x", "unknown": "x",
    }  # fmt: skip
    assert "no_such_table" in said["permanent"][0]
    assert said["permanent"][1] == ["cause", "class", "incident_id", "location"]
    assert "exit code 3" in said["unknown"][0]
