"""Tests of reading event logs from servers like those of Google Cloud Storage and of Azure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from storages import AZURE_KEY, azure_server, gcs_server

FIXTURES = Path(__file__).parent / "fixtures"
STREAM = FIXTURES / "foreachbatch-4.3.jsonl"
#: Uploads a folder with the storage's own client.
UPLOAD = """
import sys, fsspec
filesystem = fsspec.filesystem(sys.argv[1])
if not filesystem.exists(sys.argv[3].split("/")[0]):
    filesystem.mkdir(sys.argv[3].split("/")[0])
filesystem.put(sys.argv[2], sys.argv[3], recursive=True)
"""
COMMAND = "import sys; from spark_events.cli import main; sys.exit(main())"

Server = Callable[[Path], AbstractContextManager[dict[str, str]]]


class Cloud:
    """A storage of one scheme, used by processes of their own, as its clients are in a folder of their own."""

    def __init__(self, scheme: str, variables: dict[str, str]) -> None:
        self.scheme = scheme
        self._environment = {**os.environ, **variables}

    def upload(self, folder: Path, place: str) -> None:
        """Upload a folder, whose files are then in the place."""
        self._run(UPLOAD, self.scheme, f"{folder}/", place)

    def run(self, *arguments: object) -> tuple[list[Any], str]:
        """Run a command of spark-events; return the events that it prints, and its messages."""
        done = self._run(COMMAND, *map(str, arguments))
        return sorted(map(json.loads, done.stdout.splitlines()), key=lambda event: str(event["event_id"])), done.stderr

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=self._environment)


@pytest.fixture(scope="module", params=[("gs", gcs_server), ("abfs", azure_server)], ids=["gs", "abfs"])
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    scheme, server = request.param
    with server(tmp_path_factory.mktemp(scheme)) as variables:
        yield Cloud(scheme, variables)


def test_a_storage_yields_the_events_of_the_same_local_folder(cloud: Cloud) -> None:
    cloud.upload(FIXTURES, "logs/deep/spark-logs")
    here, there = cloud.run("replay", FIXTURES), cloud.run("replay", f"{cloud.scheme}://logs/deep")
    assert here[0] == there[0]
    assert len(here[0]) > 0
    assert here[1].splitlines()[-1] == there[1].splitlines()[-1]


def test_since_reads_no_older_log(cloud: Cloud) -> None:
    cloud.upload(FIXTURES, "dated/logs")
    place = f"{cloud.scheme}://dated/logs"
    number = sum(file.is_file() for file in FIXTURES.iterdir())
    events, messages = cloud.run("replay", place, "--since", "2999-01-01T00:00")
    assert events == []
    assert f"; {number} logs older than --since not read" in messages
    assert cloud.run("replay", place, "--since", "1d")[0] == cloud.run("replay", place)[0]


def test_a_rolling_log_that_grows_is_followed(cloud: Cloud, tmp_path: Path) -> None:
    """Each look delivers the events of the new part, and together they are the events of the whole log."""
    lines = STREAM.read_bytes().splitlines(keepends=True)
    name, found = "eventlog_v2_local-1", []
    for number, part in enumerate((lines[:25], lines[25:]), start=1):
        folder = tmp_path / str(number) / name
        folder.mkdir(parents=True)
        (folder / "appstatus_local-1.inprogress").write_bytes(b"")
        (folder / f"events_{number}_local-1").write_bytes(b"".join(part))
        cloud.upload(folder.parent, "rolling/logs")
        place = f"{cloud.scheme}://rolling/logs"
        events, messages = cloud.run("follow", place, "--once", "--state", tmp_path / "state")
        assert events, messages
        found += events
    assert sorted(found, key=lambda event: str(event["event_id"])) == cloud.run("replay", STREAM)[0]


def test_a_missing_folder_is_an_error_without_a_secret(cloud: Cloud) -> None:
    events, messages = cloud.run("replay", f"{cloud.scheme}://nothing/here")
    assert events == []
    assert f"cannot read {cloud.scheme}://nothing/here: no such file or folder" in messages
    assert AZURE_KEY not in messages
