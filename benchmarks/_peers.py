"""Listeners from Spark and from other projects, for comparison with spark-events.

`make peers` downloads the jars.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_events.jars import jar_path

__all__ = ["FOLDER", "SPARK_HOME", "TOOLS", "Tool", "environment", "spark_version", "write"]

_ROOT = Path(__file__).resolve().parents[1]
#: Folder of the results.
FOLDER = _ROOT / "build" / "bench"
_JARS = _ROOT / ".tools" / "peers" / "jars"
_spec = importlib.util.find_spec("pyspark")
assert _spec is not None
assert _spec.origin is not None
SPARK_HOME = Path(_spec.origin).parent


def _core() -> tuple[str, str]:
    """Return the versions of Scala and Spark from the name of Spark's core jar."""
    name = next((SPARK_HOME / "jars").glob("spark-core_*.jar")).stem
    scala, spark = name.removeprefix("spark-core_").split("-", 1)
    return scala, spark


def spark_version() -> str:
    """Return the version of Spark in this environment."""
    return _core()[1]


def _jar_of(artifact: str) -> Path | None:
    """Return a tool's jar for the Scala version of this Spark, or None."""
    return max(_JARS.glob(f"{artifact}_{_core()[0]}-*.jar"), default=None)


@dataclass(frozen=True)
class Tool:
    """Listener from a tool, or Spark without a listener.

    Attributes:
        name: name in tables, without the version.
        artifact: name of the jar without Scala's version; None: the tool is part of Spark or of this project.
        settings: Spark settings for a folder that the tool may write to.
    """

    name: str
    artifact: str | None
    settings: Callable[[Path], Mapping[str, str]]

    def jar(self) -> Path | None:
        """Return the jar of another project if the jar was downloaded."""
        return None if self.artifact is None else _jar_of(self.artifact)

    @property
    def is_available(self) -> bool:
        """Return whether the tool can run."""
        return self.artifact is None or self.jar() is not None

    @property
    def title(self) -> str:
        """Return the tool's name with its version."""
        jar = self.jar()
        return self.name if jar is None else f"{self.name} {re.split(r'_[0-9.]+-', jar.stem)[-1]}"

    def conf(self, folder: Path) -> dict[str, str]:
        """Return all settings, including the jar."""
        jar = self.jar()
        return {**({} if jar is None else {"spark.driver.extraClassPath": str(jar)}), **self.settings(folder)}


def _event_log(folder: Path) -> dict[str, str]:
    (folder / "log").mkdir(exist_ok=True)
    return {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(folder / "log")}


def _open_lineage(folder: Path) -> dict[str, str]:
    return {
        "spark.extraListeners": "io.openlineage.spark.agent.OpenLineageSparkListener",
        "spark.openlineage.transport.type": "file",
        "spark.openlineage.transport.location": str(folder / "lineage.jsonl"),
        "spark.openlineage.namespace": "benchmarks",
    }


def _spark_measure(folder: Path) -> dict[str, str]:
    return {
        "spark.extraListeners": "ch.cern.sparkmeasure.FlightRecorderStageMetrics",
        "spark.sparkmeasure.outputFormat": "json",
        "spark.sparkmeasure.outputFilename": str(folder / "stages.json"),
    }


def _data_flint(folder: Path) -> dict[str, str]:
    return {"spark.plugins": "io.dataflint.spark.SparkDataflintPlugin", "spark.ui.enabled": "true"}


def _spark_events(folder: Path) -> dict[str, str]:
    return {
        "spark.extraListeners": "io.sparkevents.EventsListener",
        "spark.driver.extraClassPath": str(jar_path()),
        "spark.events.reporter.audit.type": "file",
        "spark.events.reporter.audit.path": str(folder / "events.jsonl"),
    }


TOOLS = (
    Tool("no listener", None, lambda folder: {}),
    Tool("event log", None, _event_log),
    Tool("OpenLineage", "openlineage-spark", _open_lineage),
    Tool("sparkMeasure", "spark-measure", _spark_measure),
    Tool("DataFlint", "dataflint-spark4", _data_flint),
    Tool("spark-events", None, _spark_events),
)


def environment() -> dict[str, str]:
    """Return the environment variables of a run: this Spark and this Python, without the caller's Spark settings."""
    kept = {key: value for key, value in os.environ.items() if not re.match(r"SPARK_|PYSPARK_|PYTHON|HADOOP_", key)}
    return {**kept, "SPARK_HOME": str(SPARK_HOME), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def machine() -> str:
    """Return the machine and the versions for the header of a table."""
    java = Path(os.environ.get("JAVA_HOME", "/usr"), "bin", "java")
    output = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=False).stderr
    version = next(iter(re.findall(r'version "([^"]+)"', output)), "unknown")
    cpu = next(iter(re.findall(r"^model name\s*: (.*)$", _read("/proc/cpuinfo"), re.MULTILINE)), platform.machine())
    memory = int(next(iter(re.findall(r"^MemTotal: +(\d+)", _read("/proc/meminfo"))), "0")) / 2**20
    return (
        f"{os.cpu_count()} × {cpu}, {memory:.0f} GiB, Linux {platform.release().split('-')[0]},"
        f" Spark {spark_version()}, Java {version}, Python {platform.python_version()}"
    )


def write(name: str, lines: Sequence[str], data: object, *, show: bool = True) -> None:
    """Write a result to build/bench as Markdown and JSON, with the machine's name, and print the Markdown."""
    text = "\n".join([machine(), "", *lines])
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    found = json.dumps({"machine": machine(), "results": data}, ensure_ascii=False, indent=1)
    (FOLDER / f"{name}.json").write_text(found, encoding="utf-8")
    if show:
        print(text)


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
