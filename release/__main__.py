"""Build all published files twice and compare them: ``python -m release [--once] [DIR]``.

The second build runs in another folder, from the sdist of the first build. Equal checksums prove that the build is
reproducible and that the sdist is complete.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from release import maven, sbom

_SUMS = "SHA256SUMS"


def build(folder: Path, epoch: int) -> None:
    """Build the files of this checkout into an empty folder."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PYTHONWARNINGS": "ignore"}
    tool = [sys.executable, "-m", "hatchling", "build", "-d", str(folder), "-t", "sdist", "-t", "wheel"]
    done = subprocess.run(tool, cwd=maven.ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise maven.shim.BuildError(f"hatchling failed:\n{done.stderr.rstrip()}")
    maven.write_repository(folder / "maven")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        requirements = email.message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    version = maven.shim.version()
    published = [*_files(folder, "*.tar.gz"), wheel, *_files(folder, "*.jar"), *_files(folder, "*.pom")]
    bill = sbom.bill_of_materials(version, published, requirements, epoch)
    (folder / f"spark-events-{version}.cdx.json").write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    (folder / _SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in checksums(folder).items()))


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in the folder, by the relative path of the file."""
    files = [path for path in _files(folder, "*") if path.is_file() and path.name not in (_SUMS, ".gitignore")]
    return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def differences(folder: Path, epoch: int) -> list[str]:
    """Build again from the sdist in ``folder``, and return the paths of files that differ."""
    (sdist,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as archive:
            # Python 3.11.2, the version in Debian 12, does not support extraction filters.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(scratch)
        (source,) = Path(scratch).iterdir()
        again = Path(scratch, "again")
        command = [sys.executable, "-m", "release", "--once", str(again)]
        subprocess.run(command, cwd=source, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}, check=True)
        first, second = checksums(folder), checksums(again)
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description="Build everything that is published.")
    parser.add_argument("folder", type=Path, nargs="?", default=maven.ROOT / "dist", metavar="DIR")
    parser.add_argument("--once", action="store_true", help="do not compare with a second build")
    chosen = parser.parse_args()
    try:
        return _release(chosen.folder.absolute(), once=chosen.once)
    except (maven.shim.BuildError, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1


def _release(folder: Path, *, once: bool) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _commit_time())
    build(folder, epoch)
    if once:
        return 0
    twine: list[str | Path] = [
        sys.executable,
        "-m",
        "twine",
        "check",
        "--strict",
        *_files(folder, "*.whl"),
        *_files(folder, "*.tar.gz"),
    ]
    subprocess.run(twine, check=True)
    if different := differences(folder, epoch):
        print(f"release: a second build gave other files: {', '.join(different)}", file=sys.stderr)
        return 1
    print(
        f"release: built in {folder}; a second build, from the sdist, is equal:\n{(folder / _SUMS).read_text()}", end=""
    )
    return 0


def _commit_time() -> str:
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=maven.ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.rglob(pattern))


if __name__ == "__main__":
    sys.exit(main())
