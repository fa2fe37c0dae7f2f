"""Location of the shim's jar."""

from __future__ import annotations

import contextlib
import zipfile
from pathlib import Path

from spark_events.errors import SparkEventsError

JAR_NAME = "spark-events-shim.jar"


def jar_path() -> Path:
    """Return the path of the jar for ``spark.driver.extraClassPath``.

    Raises:
        SparkEventsError: when the jar is missing, as in a source checkout that was not built.
    """
    jar = Path(__file__).resolve().parent / JAR_NAME
    if not jar.is_file():
        raise SparkEventsError(f"the jar is not built: {jar} is missing; in a source checkout, run `make jar`")
    return jar


def version_of(jar: Path) -> str | None:
    """Return the version that the build wrote into a jar; None if the jar has no version or cannot be read."""
    with contextlib.suppress(OSError, KeyError, zipfile.BadZipFile), zipfile.ZipFile(jar) as archive:
        return archive.read("io/sparkevents/version").decode().strip()
    return None
