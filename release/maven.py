"""Maven repository in a folder, with pom, jar, sources and javadoc of ``io.sparkevents:spark-events``."""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
GROUP, ARTIFACT = "io.sparkevents", "spark-events"
HOME = "https://github.com/spark-events/spark-events"

# Import by path, because jvm-shim is not a package.
_spec = importlib.util.spec_from_file_location("spark_events_shim_build", ROOT / "jvm-shim" / "build.py")
assert _spec is not None
assert _spec.loader is not None
shim = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(shim)

_POM = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
    xsi:schemaLocation="http://maven.apache.org/POM/4.0.0 http://maven.apache.org/xsd/maven-4.0.0.xsd">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>jar</packaging>
  <name>spark-events</name>
  <description>{description}</description>
  <url>{home}</url>
  <licenses>
    <license>
      <name>Apache-2.0</name>
      <url>https://www.apache.org/licenses/LICENSE-2.0.txt</url>
    </license>
  </licenses>
  <developers>
    <developer>
      <name>The spark-events developers</name>
      <url>{home}</url>
    </developer>
  </developers>
  <scm>
    <connection>scm:git:{home}.git</connection>
    <url>{home}</url>
  </scm>
  <properties>
    <!-- One jar of Java 8 bytecode for all of these; it calls no method whose signature names a Scala collection. -->
    <spark.versions>3.5, 4.x</spark.versions>
    <scala.versions>2.12, 2.13</scala.versions>
  </properties>
  <!-- No dependencies: Spark provides its own classes. The Python package of the same version is needed as well. -->
</project>
"""
_DESCRIPTION = (
    "Events for Apache Spark: the listener for the driver. For Spark 3.5 (Scala 2.12 and 2.13) and Spark 4.x"
    " (Scala 2.13); needs the Python package spark-events of the same version on the driver's machine."
)


def pom(version: str) -> str:
    """Return the content of the pom file."""
    return _POM.format(group=GROUP, artifact=ARTIFACT, version=version, home=HOME, description=escape(_DESCRIPTION))


def write_repository(folder: Path, *, documented: bool = True) -> Path:
    """Write a Maven repository with this version, and return the folder of the version's files.

    Args:
        folder: the repository's root, which ``spark-submit --repositories file://…`` accepts.
        documented: also write the sources and javadoc, which Maven Central requires.
    """
    version: str = shim.version()
    target = folder / GROUP.replace(".", "/") / ARTIFACT / version
    target.mkdir(parents=True, exist_ok=True)
    stem = f"{ARTIFACT}-{version}"
    shim.ensure()
    (target / f"{stem}.jar").write_bytes(shim.JAR.read_bytes())
    (target / f"{stem}.pom").write_text(pom(version), encoding="utf-8")
    if documented:
        shim.write_jar(target / f"{stem}-sources.jar", _entries(shim.SOURCES))
        with tempfile.TemporaryDirectory() as scratch:
            _javadoc(Path(scratch))
            shim.write_jar(target / f"{stem}-javadoc.jar", _entries(Path(scratch)))
    for path in list(target.iterdir()):
        for name in ("md5", "sha1"):  # Maven clients read these two checksums.
            digest = hashlib.new(name, path.read_bytes(), usedforsecurity=False).hexdigest()
            path.with_name(f"{path.name}.{name}").write_text(digest, encoding="ascii")
    return target


def _entries(folder: Path) -> dict[str, bytes]:
    entries = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n", "META-INF/LICENSE": _license()}
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {**entries, **{path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}}


def _license() -> bytes:
    return (ROOT / "LICENSE").read_bytes()


def _javadoc(target: Path) -> None:
    """Write the javadoc of the public classes; subpackages of ``io.sparkevents`` are internal."""
    command = [
        *(str(shim.find_jdk() / "bin" / "javadoc"), "-quiet", "-notimestamp", "-encoding", "UTF-8"),
        *("-docencoding", "UTF-8", "-charset", "UTF-8", "-Xdoclint:none", "-locale", "en_US"),
        *("-cp", f"{shim.find_spark_jars()}/*", "-sourcepath", str(shim.SOURCES), "-d", str(target), GROUP),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise shim.BuildError(f"javadoc failed:\n{done.stderr.rstrip()}")
