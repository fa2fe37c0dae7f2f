"""Test of reading event logs from a real HDFS: Hadoop's mini cluster, in its own process, over WebHDFS."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import ROOT
from missing import missing, need
from spark.harness import environment, pyspark_home

from spark_events.cli import main

pytestmark = [pytest.mark.spark, pytest.mark.any_spark, pytest.mark.timeout(900)]

_JARS = ROOT / ".tools" / "yarn" / "jars"
_PROGRAM = Path(__file__).parent / "yarn" / "MiniDfs.java"
FIXTURES = ROOT / "tests" / "unit" / "records" / "fixtures"
#: More logs than two pages of the cluster, which has pages of 20 entries.
LOGS = 50


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of the name node."""
    if not _JARS.is_dir():
        missing("there is no Hadoop cluster in .tools/yarn; make yarn fetches it")
    need("fsspec", "requests")
    folder = tmp_path_factory.mktemp("hdfs")
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    path = f"{_JARS}/*{os.pathsep}{pyspark_home()}/jars/*"
    with (
        (folder / "stderr").open("wb") as log,
        subprocess.Popen(
            [java, "-cp", path, _PROGRAM, folder / "blocks"],
            cwd=folder,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url.startswith("webhdfs://"), (folder / "stderr").read_text(errors="replace")[-4_000:]
            yield url
        finally:
            process.stdin.close()


@pytest.fixture(scope="module")
def filled(hdfs: str) -> str:
    """Return the URL of a folder with logs of all codecs, and with more logs than one page of the listing."""
    from fsspec.core import url_to_fs

    filesystem, _ = url_to_fs(hdfs, user=_user())
    for file in FIXTURES.iterdir():
        if file.suffix != ".py" and file.is_file():
            filesystem.pipe_file(f"/logs/all/{file.name}", file.read_bytes())
    lines = (FIXTURES / "batch_udf-4.3.jsonl").read_bytes().splitlines(keepends=True)[:6]
    for number in range(LOGS):
        filesystem.pipe_file(f"/logs/many/local-{number}", b"".join(lines))
    return f"{hdfs}/logs"


def _user() -> str:
    import getpass

    return getpass.getuser()


def replay(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[list[dict[str, Any]], str]:
    code = main(["replay", *map(str, arguments)])
    output, errors = capsys.readouterr()
    assert code == 0, errors
    return sorted(map(json.loads, output.splitlines()), key=lambda event: str(event["event_id"])), errors


def test_hdfs_yields_the_events_of_the_same_local_folder(capsys: pytest.CaptureFixture[str], filled: str) -> None:
    here, there = replay(capsys, FIXTURES), replay(capsys, f"{filled}/all")
    assert there[0] == here[0]
    assert there[0]


def test_all_pages_of_a_folder_are_listed(capsys: pytest.CaptureFixture[str], filled: str) -> None:
    _, errors = replay(capsys, f"{filled}/many")
    assert f"{LOGS} logs, " in errors


def test_since_reads_nothing_older(capsys: pytest.CaptureFixture[str], filled: str) -> None:
    events, errors = replay(capsys, f"{filled}/many", "--since", "2999-01-01T00:00")
    assert events == []
    assert f"{LOGS} logs older than --since not read" in errors


def test_a_missing_folder_is_one_error(capsys: pytest.CaptureFixture[str], hdfs: str) -> None:
    assert main(["replay", f"{hdfs}/gone/logs"]) == 1
    assert "/…/logs: no such file or folder" in capsys.readouterr().err
