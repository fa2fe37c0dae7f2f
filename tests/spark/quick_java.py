"""Java wrapper that halves Spark's startup time.

The tests start Spark about a hundred times. A class data archive (JEP 350), created once per Spark version, contains
the classes that Spark's JVM loads on startup. A JVM uses an archive only if its class path starts with the class path
of the JVM that created the archive. Spark puts the configuration folder and the user's jars first. These entries differ
between tests, so the script ``java`` moves them to the end of the class path. In a SPARK_HOME that consists of links,
the script also replaces the paths of the jars with the original paths. The launcher, which only prints the command of
Spark's JVM, needs only its own jar.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

from inherited import INHERITED

__all__ = ["JVM_OPTIONS", "quick_java_home"]

#: JVM options for tests. Small jobs are faster with the C1 compiler alone and a simple garbage collector.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"

_ROOT = Path(__file__).resolve().parents[2]
_WARM_UP = Path(__file__).parent / "jobs" / "warm_up.py"
_DEADLINE_SECONDS = 900
_MAKING = "SPARK_EVENTS_TEST_ARCHIVE"
_JAVA = """#!/bin/bash
arguments=()
own=$jars
if [[ $SPARK_HOME/jars -ef $jars ]]; then
    own=$SPARK_HOME/jars
fi
# YARN passes the class path of a container in this variable.
if [[ :${CLASSPATH:-}: == *":$own/*:"* ]]; then
    set -- -cp "$CLASSPATH" "$@"
fi
while (($#)); do
    if [[ $1 == -cp && :$2: == *":$own/*:"* ]]; then
        others=:$2:
        others=${others/":$own/*:"/:}
        others=${others#:}
        if [[ " $* " == *" org.apache.spark.launcher.Main "* ]]; then
            arguments+=(-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$(echo "$jars"/spark-launcher_*.jar)")
        else
            arguments+=(-cp "$jars/*${others:+:${others%:}}")
        fi
        shift
    else
        arguments+=("$1")
    fi
    shift
done
if [[ -n ${SPARK_EVENTS_TEST_ARCHIVE:-} && " ${arguments[*]} " == *" org.apache.spark.deploy.SparkSubmit "* ]]; then
    archive=(-XX:ArchiveClassesAtExit="$SPARK_EVENTS_TEST_ARCHIVE")
elif [[ -z ${SPARK_EVENTS_TEST_ARCHIVE:-} && " ${arguments[*]} " == *" -cp $jars/*"* ]]; then
    archive=(-XX:SharedArchiveFile="$classes")
fi
exec "$java" "${archive[@]}" "${arguments[@]}"
"""


@functools.cache
def quick_java_home(spark_home: Path) -> Path | None:
    """Return a JAVA_HOME with the archive, or None if JAVA_HOME or the archive is missing.

    Args:
        spark_home: Spark for which the archive is created.
    """
    java = Path(INHERITED.get("JAVA_HOME", ""), "bin/java")
    if not INHERITED.get("JAVA_HOME") or not java.exists():
        return None
    release = java.resolve().parents[1] / "release"
    facts = (
        spark_home,
        java,
        release.read_text(encoding="utf-8") if release.exists() else "",
        _WARM_UP.read_text(),
        _JAVA,
        JVM_OPTIONS,
    )
    home = _ROOT / ".tools" / "java" / hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        # Another test process may concurrently create the archive.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "made").exists():
            _make(home, spark_home, java)
            (home / "made").touch()
    return home if (home / "classes.jsa").exists() else None


def _make(home: Path, spark_home: Path, java: Path) -> None:
    script = home / "bin" / "java"
    script.parent.mkdir(exist_ok=True)
    names = f"jars={spark_home / 'jars'}\njava={java}\nclasses={home / 'classes.jsa'}\n"
    script.write_text(_JAVA.replace("\n", f"\n{names}", 1), encoding="utf-8")
    script.chmod(0o755)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "classes.jsa")
        conf = Path(folder, "conf")
        conf.mkdir()
        variables: Mapping[str, str] = {
            **INHERITED,
            "JAVA_HOME": str(home),
            "SPARK_HOME": str(spark_home),
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            _MAKING: str(made),
        }
        options = ["--driver-java-options", JVM_OPTIONS, "--conf", "spark.ui.enabled=false"]
        command = [str(spark_home / "bin/spark-submit"), *options, str(_WARM_UP), folder]
        done = subprocess.run(
            command, env=variables, cwd=folder, capture_output=True, text=True, check=False, timeout=_DEADLINE_SECONDS
        )
        if done.returncode or not made.exists():
            why = done.stderr[-2000:]
            warnings.warn(f"Spark starts slowly: no archive of its classes could be made: {why}", stacklevel=2)
            return
        # Build on the same file system, then rename the folder, so that other processes never see an incomplete folder.
        target = home / "classes.new"
        target.write_bytes(made.read_bytes())
        target.replace(home / "classes.jsa")
