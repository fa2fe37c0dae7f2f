"""Servers of storages, each in its own process: moto's S3 server, and those that `make storages` installs."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import ROOT, eventually
from missing import missing, need
from ports import free_port

__all__ = ["Bucket", "azure_server", "gcs_server", "s3_server"]

#: Credentials that the server accepts, and that no message may contain.
ACCESS_KEY, SECRET_KEY = "AKIDFORTESTS", "s3cr3t-of-the-tests"
#: Key of Azurite's only account, which Azurite documents.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_TOOLS = ROOT / ".tools" / "storages"


class Bucket:
    """One bucket of a server.

    Args:
        filesystem: the server's file system.
        name: name of the bucket.
    """

    def __init__(self, filesystem: Any, name: str) -> None:
        self._filesystem = filesystem
        self.name = name
        filesystem.mkdir(name)

    @property
    def url(self) -> str:
        return f"s3://{self.name}"

    def put(self, key: str, content: bytes) -> None:
        self._filesystem.pipe_file(f"{self.name}/{key}", content)

    def upload(self, folder: Path, key: str) -> None:
        """Upload the files of a folder, without its subfolders."""
        for file in folder.iterdir():
            if file.is_file():
                self.put(f"{key}/{file.name}", file.read_bytes())

    def delete(self, key: str) -> None:
        self._filesystem.rm_file(f"{self.name}/{key}")


@contextlib.contextmanager
def s3_server(folder: Path) -> Iterator[Any]:
    """Run the server; set the environment of the AWS libraries, and yield a file system that writes to the server."""
    need("s3fs", "moto.server")
    import s3fs

    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, folder / "s3.log", port), pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        environment.delenv("AWS_PROFILE", raising=False)
        # A file system that an earlier test opened has the address of another server.
        s3fs.S3FileSystem.clear_instance_cache()
        yield s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)


@contextlib.contextmanager
def gcs_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server like Google's; yield the variables with which its client finds it."""
    port = free_port()
    command = [str(_server("fake-gcs-server")), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    with _running([*command, "-backend", "memory"], folder / "gcs.log", port):
        # The server does not know the request for the kind of a bucket, after which the client would warn.
        variables = {"STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
        yield {**variables, "PYTHONPATH": str(_TOOLS / "python")}


@contextlib.contextmanager
def azure_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server like Azure's; yield the variables with which its client finds it."""
    port = free_port()
    script = _server("node_modules/azurite/dist/src/blob/main.js")
    command = [str(_node()), str(script), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    options = ("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry")
    with _running([*command, *options], folder / "azure.log", port):
        connection = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": "devstoreaccount1",
            "AccountKey": AZURE_KEY,
            "BlobEndpoint": f"http://127.0.0.1:{port}/devstoreaccount1",
        }
        text = ";".join(f"{key}={value}" for key, value in connection.items())
        yield {"AZURE_STORAGE_CONNECTION_STRING": text, "PYTHONPATH": str(_TOOLS / "python")}


def _server(name: str) -> Path:
    path = _TOOLS / name
    if not (_TOOLS / "stamp").exists() or not path.exists():
        missing(f"{path} not found: run `make storages`")
    return path


def _node() -> Path:
    """Return the Node that Playwright includes."""
    need("playwright")
    import playwright

    return Path(playwright.__file__).parent / "driver" / "node"


@contextlib.contextmanager
def _running(command: list[str], log: Path, port: int) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:

            def answers() -> bool:
                assert process.poll() is None, log.read_text()
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    return True
                return False

            eventually(answers)
            yield
        finally:
            process.terminate()
