"""Compile a Java benchmark against the shim and Spark, and run it in its own JVM without a SparkContext."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from spark_events.jars import jar_path

_SOURCES = Path(__file__).parent / "java"
#: Use the server compiler and the default collector, as in a driver.
_JVM = ["-Xms512m", "-Xmx512m"]


def _spark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def run_java(name: str, arguments: Sequence[str | Path], errors: Path | None = None) -> None:
    """Compile and run a class of ``benchmarks/java``, which prints its own results.

    Args:
        name: class name.
        arguments: command-line arguments of the class.
        errors: file for standard error of the class and its sidecar; default: discarded.
    """
    home = os.environ.get("JAVA_HOME")
    binaries = f"{home}/bin/" if home else ""
    with tempfile.TemporaryDirectory() as classes:
        path = f"{jar_path()}:{_spark_jars()}/*"
        subprocess.run([f"{binaries}javac", "-cp", path, "-d", classes, *sorted(_SOURCES.glob("*.java"))], check=True)
        command = [f"{binaries}java", *_JVM, "-cp", f"{classes}:{path}", f"io.sparkevents.{name}", *arguments]
        with Path(errors or os.devnull).open("wb") as stderr:
            subprocess.run(command, check=True, stderr=stderr)
