"""Tests of the published files: ``make release`` in a copy of the repository, validated with the registries' tools."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

import spark_events
from release import maven

pytestmark = pytest.mark.no_cover
VERSION = spark_events.__version__


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of published files.

    If a second build, from the sdist, differs, ``make release`` fails.
    """
    folder = tmp_path_factory.mktemp("release") / "dist"
    done = subprocess.run(
        [sys.executable, "-m", "release", str(folder)],
        cwd=maven.ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2, "twine checks the wheel and the sdist"
    return folder


def test_checksums_name_every_file(release: Path) -> None:
    """SHA256SUMS names every published file, in the format of sha256sum."""
    done = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=release, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    stem = f"maven/io/sparkevents/spark-events/{VERSION}/spark-events-{VERSION}"
    parts = [f"{stem}{part}" for part in (".jar", ".pom", "-sources.jar", "-javadoc.jar")]
    listed = {line.split()[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert listed == {
        f"spark_events-{VERSION}.tar.gz",
        f"spark_events-{VERSION}-py3-none-any.whl",
        f"spark-events-{VERSION}.cdx.json",
        *(f"{part}{suffix}" for part in parts for suffix in ("", ".md5", ".sha1")),
    }


def test_maven_artifacts(release: Path) -> None:
    """The published jar equals the wheel's jar, and its pom contains Spark's versions.

    The jars of sources and javadoc contain the public classes.
    """
    (folder,) = (release / "maven/io/sparkevents/spark-events").iterdir()
    stem = f"spark-events-{VERSION}"
    (wheel,) = release.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("spark_events/jars/spark-events-shim.jar") == (folder / f"{stem}.jar").read_bytes()
    with zipfile.ZipFile(folder / f"{stem}-sources.jar") as archive:
        assert "io/sparkevents/EventsListener.java" in archive.namelist()
    with zipfile.ZipFile(folder / f"{stem}-javadoc.jar") as archive:
        assert "io/sparkevents/EventsListener.html" in archive.namelist()
    pom = ElementTree.parse(folder / f"{stem}.pom").getroot()
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    texts = [pom.findtext(f"m:{name}", "", space) for name in ("groupId", "artifactId", "version")]
    assert texts == ["io.sparkevents", "spark-events", VERSION]
    assert pom.findtext("m:properties/m:spark.versions", "", space) == "3.5, 4.x"
    assert pom.findtext("m:properties/m:scala.versions", "", space) == "2.12, 2.13"
    assert pom.find("m:dependencies", space) is None
    sha1 = (folder / f"{stem}.pom.sha1").read_text()
    assert sha1 == hashlib.sha1((folder / f"{stem}.pom").read_bytes(), usedforsecurity=False).hexdigest()


def test_bill_of_materials_is_valid(release: Path) -> None:
    """The SBOM is valid CycloneDX, and contains each required or optional dependency once."""
    text = (release / f"spark-events-{VERSION}.cdx.json").read_text()
    # These imports take two seconds, which every process would need for the collection.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    scopes = {component["name"]: component["scope"] for component in json.loads(text)["components"]}
    assert (scopes["msgspec"], scopes["tenacity"], scopes["httpx"]) == ("required", "required", "optional")
