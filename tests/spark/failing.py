"""Program that fails in three ways, for the tests of orchestrators."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from fakes import ROOT
from spark.harness import SMALL_SPARK, environment, two_lines

__all__ = ["JOB", "KINDS", "code_of", "settings_of", "variables_of"]

KINDS = ("transient", "permanent", "unknown")
#: `transient` fails once; the exit code of `unknown` does not say whether a rerun helps.
JOB = """
import pathlib, sys
from pyspark.sql import SparkSession

kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])
with open(folder / kind, "a") as tries:
    tries.write("x")
spark = SparkSession.builder.appName(kind).getOrCreate()
spark.range(3).count()
if kind == "transient" and (folder / kind).read_text() == "x":
    raise ConnectionRefusedError(111, "Connection refused")
if kind == "permanent":
    spark.table("no_such_table")
if kind == "unknown":
    sys.exit(3)
"""


def settings_of(folder: Path) -> Path:
    """Create a folder with the spark-defaults.conf of a user, and return it."""
    conf = folder / "spark-conf"
    conf.mkdir()
    settings = {**SMALL_SPARK, **two_lines(), "spark.events.python": sys.executable}
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    return conf


def variables_of(conf: Path, **others: str) -> dict[str, str]:
    """Return the environment of a process that finds this interpreter's spark-submit and spark-events."""
    variables = environment({"SPARK_CONF_DIR": str(conf), **others})
    return {**variables, "PATH": f"{Path(sys.executable).parent}:{variables['PATH']}"}


def code_of(part: str) -> str:
    """Return the Python code of a part of the guide."""
    page = (ROOT / "docs/guides/rerun.md").read_text(encoding="utf-8")
    return str(re.findall(rf"## {part}\n.*?```python\n(.*?)```", page, re.DOTALL)[0])
