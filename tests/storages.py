"""Real servers of storages: moto's S3 server, in its own process."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import eventually
from missing import need
from ports import free_port

__all__ = ["Bucket", "s3_server"]

#: Credentials that the server accepts, and that no message may contain.
ACCESS_KEY, SECRET_KEY = "AKIDFORTESTS", "s3cr3t-of-the-tests"


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
    with (folder / "s3.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            with pytest.MonkeyPatch.context() as environment:
                environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
                environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
                environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
                environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
                environment.delenv("AWS_PROFILE", raising=False)
                filesystem = s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)

                def answers() -> bool:
                    with contextlib.suppress(OSError):
                        filesystem.ls("")
                        return True
                    return False

                eventually(answers)
                yield filesystem
        finally:
            process.terminate()
