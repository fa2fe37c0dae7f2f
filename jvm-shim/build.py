#!/usr/bin/env python3
"""Compile the Java shim into spark_events/jars/spark-events-shim.jar, with the standard library only.

One jar serves Spark 3.5 (Scala 2.12) and 4.x (Scala 2.13): it contains Java 8 bytecode, compiled against Spark 4's
jars. The jar is rebuilt only if the hash of the current sources differs from the hash in the jar's manifest.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "jvm-shim" / "src" / "main" / "java"
JAR = ROOT / "spark_events" / "jars" / "spark-events-shim.jar"

MIN_JDK = 17  # Spark 4's classes are Java 17 bytecode; an older javac cannot read them
MIN_SPARK = 4
# Do not use `all`: a newer JDK would add warnings, and -Werror would turn them into build failures.
LINTS = (
    "cast,dep-ann,deprecation,divzero,empty,fallthrough,finally,overrides,rawtypes,removal,static,try,unchecked,varargs"
)
JAVAC_FLAGS = [
    "-J-XX:TieredStopAtLevel=1",  # the C1 compiler alone halves the time of this small build
    "--release", "8",
    "-encoding", "UTF-8",
    "-g",
    "-proc:none",  # log4j's annotation processor is on Spark's class path
    f"-Xlint:{LINTS},-options",
    "-Werror",
]  # fmt: skip

HASH_KEY = "Spark-Events-Source-Sha256"


class BuildError(Exception):
    """The jar cannot be built; the message contains a remedy."""


def version() -> str:
    text = (ROOT / "spark_events" / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__\s*=\s*"([^"]+)"', text, re.MULTILINE)
    if not found:
        raise BuildError('spark_events/_version.py must have a line like __version__ = "1.2.3"')
    return found.group(1)


def sources() -> list[Path]:
    found = sorted(SOURCES.rglob("*.java"), key=lambda path: path.relative_to(SOURCES).as_posix())
    if not found:
        raise BuildError(f"no Java sources in {SOURCES}")
    return found


def source_hash() -> str:
    """Return the hash of the inputs that determine the jar: file names, sources, flags, version."""
    digest = hashlib.sha256(f"{version()}\0{JAVAC_FLAGS}\0".encode())
    for path in sources():
        content = path.read_bytes()
        digest.update(f"{path.relative_to(SOURCES).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def read_manifest(jar: Path) -> dict[str, str]:
    """Return the manifest's main attributes; empty when the file is not a readable jar."""
    try:
        with zipfile.ZipFile(jar) as archive:
            text = archive.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return {}
    unfolded = text.replace("\r\n ", "")
    return dict(line.split(": ", 1) for line in unfolded.splitlines() if ": " in line)


def is_fresh() -> bool:
    return read_manifest(JAR).get(HASH_KEY) == source_hash()


def find_spark_jars(explicit: str | None = None) -> Path:
    """Return a folder with the jars of Spark 4 or newer: the argument, else installed PySpark, else SPARK_HOME.

    Raises:
        BuildError: when no folder has Spark 4 or newer.
    """
    if explicit:
        candidates = [Path(explicit)]
    else:
        # Do not import PySpark, because the import takes a second and may fail.
        spec = importlib.util.find_spec("pyspark")
        candidates = [Path(place) / "jars" for place in (spec and spec.submodule_search_locations) or ()]
        if os.environ.get("SPARK_HOME"):
            candidates.append(Path(os.environ["SPARK_HOME"]) / "jars")
    old = ""
    for place in candidates:
        for core in place.glob("spark-core_*.jar"):
            found = re.search(r"-(\d+)\.", core.name)
            if found and int(found.group(1)) >= MIN_SPARK:
                return place
            old = f"; {core} is too old"
    where = explicit or "PySpark or $SPARK_HOME"
    remedy = f"run: pip install 'pyspark>={MIN_SPARK}', or use --spark-jars DIR"
    raise BuildError(f"no jars of Spark {MIN_SPARK} or newer in {where}{old}; {remedy}")


def find_jdk() -> Path:
    """Return the home of the first JDK that is new enough; try JAVA_HOME, then PATH.

    Raises:
        BuildError: when neither has a JDK that is new enough.
    """
    candidates = [shutil.which("javac")]
    if os.environ.get("JAVA_HOME"):
        candidates.insert(0, str(Path(os.environ["JAVA_HOME"]) / "bin" / "javac"))
    seen = ""
    for javac in filter(None, candidates):
        try:
            # Ask javac for its home, because the path may lead to a wrapper or a link outside the JDK.
            command = [javac, "-J-XshowSettings:properties", "-version"]
            text = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        except OSError:
            continue
        home = re.search(r"java\.home = (.+)", text)
        release = re.search(r"java\.specification\.version = (\d+)", text)
        if home and release and int(release.group(1)) >= MIN_JDK:
            return Path(home.group(1).strip())
        seen = f" ({javac} is older)"
    remedy = "run: sudo apt-get install default-jdk-headless"
    raise BuildError(f"no javac of JDK {MIN_JDK} or newer in JAVA_HOME or PATH{seen}; {remedy}")


def compile_sources(jdk: Path, spark_jars: Path, classes: Path) -> None:
    command = [str(jdk / "bin" / "javac"), *JAVAC_FLAGS, "-cp", str(spark_jars / "*"), "-d", str(classes)]
    done = subprocess.run(
        [*command, *map(str, sources())],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"javac failed:\n{done.stdout.rstrip()}")


def manifest(digest: str) -> str:
    attributes = {
        "Manifest-Version": "1.0",
        "Implementation-Title": "spark-events-shim",
        "Implementation-Version": version(),
        HASH_KEY: digest,
    }
    # A line of a manifest has at most 72 bytes. Continue a longer value on a line that begins with a space.
    folded = (re.sub(r"(?<!^)(.{70})(?=.)", "\\1\r\n ", f"{key}: {value}") for key, value in attributes.items())
    return "".join(f"{line}\r\n" for line in folded) + "\r\n"


def entries_of(classes: Path, digest: str) -> dict[str, bytes]:
    """Return the contents of the jar: manifest, a version that the sidecar compares with its own, and classes."""
    entries = {"META-INF/MANIFEST.MF": manifest(digest).encode(), "io/sparkevents/version": version().encode()}
    for path in sorted(classes.rglob("*.class")):
        entries[path.relative_to(classes).as_posix()] = path.read_bytes()
    return entries


def write_jar(target: Path, entries: dict[str, bytes]) -> None:
    """Write a reproducible jar: fixed times, fixed order, and no compression.

    Compressed data would depend on the version of zlib.
    """
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, content)


def ensure(spark_jars: str | None = None) -> bool:
    """Build the jar unless it is up to date; return whether it was built."""
    if is_fresh():
        return False
    digest = source_hash()  # hash first: if a source changes during the build, the jar counts as outdated
    jdk, jars = find_jdk(), find_spark_jars(spark_jars)
    JAR.parent.mkdir(parents=True, exist_ok=True)
    # Use the target's folder, so that the rename is atomic and the jar is complete even after concurrent builds.
    with tempfile.TemporaryDirectory(prefix=".building-", dir=JAR.parent) as scratch:
        classes = Path(scratch, "classes")
        classes.mkdir()
        compile_sources(jdk, jars, classes)
        write_jar(Path(scratch, JAR.name), entries_of(classes, digest))
        os.replace(Path(scratch, JAR.name), JAR)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the jar of the Java shim unless it is up to date.")
    parser.add_argument("--spark-jars", metavar="DIR", help="Spark's jars (default: the installed PySpark's)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--check", action="store_true", help="only report whether the jar is up to date (exit code 1: no)"
    )
    only.add_argument("--java-home", action="store_true", help="only print the home of the JDK that would be used")
    arguments = parser.parse_args()
    try:
        if arguments.java_home:
            print(find_jdk())
        elif arguments.check:
            fresh = is_fresh()
            print(f"{JAR}: {'up to date' if fresh else 'not up to date'}")
            return 0 if fresh else 1
        elif ensure(arguments.spark_jars):
            print(f"built {JAR}")
    except BuildError as error:
        print(f"spark-events: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
