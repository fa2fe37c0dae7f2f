"""Tests of the packages: a wheel contains a jar of the same sources and version, or the wheel's build fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import spark_events

ROOT = Path(__file__).resolve().parents[2]
JAR = Path("spark_events/jars/spark-events-shim.jar")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a copy of the repository with the uncommitted changes and without the ignored jar, like a user's clone."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    target = tmp_path / "a clone"  # The folder's name contains a space, because some users have such paths.
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():  # Skip files that have been deleted since the last commit.
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    assert not (target / JAR).exists()
    return target


@pytest.fixture
def no_jdk(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty"), "JAVA_HOME": str(tmp_path / "gone")}


@pytest.fixture
def no_spark(tmp_path: Path) -> dict[str, str]:
    """Hide the installed PySpark behind a package without jars, like pyspark-client."""
    (tmp_path / "hiding" / "pyspark").mkdir(parents=True)
    (tmp_path / "hiding" / "pyspark" / "__init__.py").touch()
    return {"PYTHONPATH": str(tmp_path / "hiding"), "SPARK_HOME": ""}


def run(clone: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    # The tests compare outputs, so child Python processes run without warnings.
    env = {**os.environ, "PYTHONWARNINGS": "ignore", **env}
    return subprocess.run([sys.executable, *command], cwd=clone, env=env, capture_output=True, text=True, check=False)


def build_wheel(clone: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run(clone, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", **env)


def manifest_of(jar: Path) -> str:
    with zipfile.ZipFile(jar) as archive:
        return archive.read("META-INF/MANIFEST.MF").decode()


def test_python_and_jar_have_the_same_version() -> None:
    """The version in the jar's manifest is the package's version."""
    assert f"\r\nImplementation-Version: {spark_events.__version__}\r\n" in manifest_of(ROOT / JAR)


def test_clean_clone_builds_a_wheel_with_its_jar(clone: Path) -> None:
    """A clean clone builds a pure Python wheel with the compiled shim, and the build is reproducible."""
    done = build_wheel(clone)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = (clone / "dist").glob("*.whl")
    assert wheel.name == f"spark_events-{spark_events.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert JAR.as_posix() in names
        assert "spark_events/_version.py" in names
        assert not [name for name in names if name.startswith(("tests/", "jvm-shim/"))]
        packed = archive.read(JAR.as_posix())
    assert packed == (clone / JAR).read_bytes() == (ROOT / JAR).read_bytes()


def test_up_to_date_jar_is_not_rebuilt(clone: Path, no_jdk: dict[str, str], no_spark: dict[str, str]) -> None:
    """If the jar is up to date, a build needs neither a JDK nor Spark."""
    (clone / JAR).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / JAR, clone / JAR)
    done = build_wheel(clone, **no_jdk, **no_spark)
    assert done.returncode == 0, done.stdout + done.stderr


def test_build_without_a_jdk_fails(clone: Path, no_jdk: dict[str, str]) -> None:
    """Without the jar and javac, the build fails with a message that contains the command to run."""
    done = build_wheel(clone, **no_jdk)
    assert done.returncode != 0
    output = done.stdout + done.stderr
    assert "spark-events cannot build its jar: no javac of JDK 17 or newer" in output
    assert "sudo apt-get install default-jdk-headless" in output
    assert not list(clone.glob("dist/*.whl"))


def test_build_without_spark_fails(clone: Path, no_spark: dict[str, str]) -> None:
    """Without the jar and Spark's jars, the build fails with a message that contains the command to run."""
    done = build_wheel(clone, **no_spark)
    assert done.returncode != 0
    assert "no jars of Spark 4 or newer in PySpark or $SPARK_HOME; run: pip install" in done.stdout + done.stderr
    assert not list(clone.glob("dist/*.whl"))


def test_changed_source_makes_the_jar_outdated(clone: Path) -> None:
    """A changed source makes the jar outdated: the check compares contents, not times."""
    (clone / JAR).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / JAR, clone / JAR)
    assert run(clone, "jvm-shim/build.py", "--check").returncode == 0
    source = next((clone / "jvm-shim").rglob("*.java"))
    source.write_text(source.read_text() + "// changed\n")
    assert run(clone, "jvm-shim/build.py", "--check").returncode == 1


def test_sdist_has_java_sources_and_build_script(clone: Path) -> None:
    done = run(clone, "-m", "hatchling", "build", "-t", "sdist")
    assert done.returncode == 0, done.stdout + done.stderr
    [sdist] = (clone / "dist").glob("*.tar.gz")
    # Ignore the output, because Python versions differ in their warnings about tar extraction.
    assert run(clone, "-m", "tarfile", "-e", str(sdist), "unpacked").returncode == 0
    [top] = (clone / "unpacked").iterdir()
    assert (top / "jvm-shim" / "build.py").exists()
    assert list((top / "jvm-shim").rglob("*.java"))
    assert not (top / JAR).exists()
    assert (top / "conf").exists() == (clone / "conf").exists()
