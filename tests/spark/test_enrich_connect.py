"""Tests of enrichment over Spark Connect, and of ``examples/enrichment.py``. Each test runs a separate program."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from enrich_service import EnrichService, rule
from fakes import ROOT
from spark.connect import connect_server
from spark.harness import JOBS, Lab, committed, environment, spark_version
from spark.test_enrich_cluster import minimal_python as minimal_python  # noqa: PLC0414

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

#: Spark 3.5 stores a settled batch differently, so the test always runs with this version.
ALWAYS_ON_3_5 = () if spark_version() < (4,) else (pytest.mark.long,)


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("everything", marks=ALWAYS_ON_3_5),
        pytest.param("batches-on-a-minimal-python", marks=pytest.mark.long),
    ],
)
def test_batches_and_streams_are_enriched_over_connect(
    lab: Lab, tmp_path: Path, request: pytest.FixtureRequest, what: str
) -> None:
    """Batches and streams over Connect make one call per row, as in classic Spark.

    Workers without the package receive the package from the client. A missing query or batch id raises an error.
    """
    # The server runs foreachBatch in this Python environment, which therefore needs the packages of Connect.
    env = {} if what == "everything" else {"PYSPARK_PYTHON": str(request.getfixturevalue("minimal_python"))}
    server, port = connect_server(lab, env=env)
    with EnrichService(tmp_path / "calls.jsonl") as service:
        service.script(rules=[rule("66[67]", forever={"status": 500})])
        command = [sys.executable, str(JOBS / "enrich_connect.py"), str(tmp_path), str(service.port), what]
        variables = environment({"CONNECT_URL": f"sc://127.0.0.1:{port}"})
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-4000:]
        calls = Counter(call.key for call in service.calls())
        keys = {call.key: call.idempotency_key for call in service.calls()}
    server.end()
    truth = json.loads((tmp_path / "truth.json").read_text(encoding="utf-8"))
    assert truth["type"] == "pyspark.sql.connect.session"
    assert truth["names"] == [f"n{row}" for row in range(40)]
    assert (truth["count"], truth["joined"]) == (40, 40)
    assert truth["random"]
    assert truth["lazy"] == ["n100", "n101", "n102"]
    assert truth["error"] == [2, 4]
    columns = ["a.b", "c`d"]
    assert truth["awkward"] == [[*columns, "new.x"], [[0, 0, 0], [1, -1, 2]], [*columns, "why.not"], -2]
    assert truth["awkward lazy"] == [[0, 0, 0], [1, -1, 2], [2, -2, None]]
    assert truth["there"] == (what == "everything")
    rows = [*range(40), *range(100, 103), *range(200, 210), *range(666, 670)]
    if what == "everything":
        rows += range(1000, 1020)
        assert committed(tmp_path / "checkpoint") == [0, 1]
        refused = (tmp_path / "refused").read_text(encoding="utf-8").splitlines()
        assert ["pass replay=Replay(query=" in error for error in refused] == [True] * 3 * 2
    assert calls == Counter({str(row): 1 for row in rows})
    assert len(set(keys.values())) == len(rows)


@pytest.mark.long
def test_the_example_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "enrichment.py"), "--dir", str(tmp_path / "example")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert len([line for line in done.stdout.splitlines() if line.startswith("batch ")]) == 2
    assert committed(tmp_path / "example" / "checkpoint") == [0, 1]
    files = (tmp_path / "example" / "enriched").rglob("*.json")
    rows = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert sorted(row["order_id"] for row in rows) == list(range(400))
    assert all(row["country"] == ("DE", "FR", "IT")[row["user_id"] % 3] for row in rows)
