"""Start one context after another with the given settings. A context may fail to start.

Each context has a folder, which receives `counted` after a successful job, or `error` with an exception. A line
`context <name>` precedes each context's part of the driver's log.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from control import FOLDER, count
from pyspark import SparkConf, SparkContext

SparkContext._ensure_initialized()
jvm: Any = SparkContext._jvm


def has_own_threads() -> bool:
    names = (thread.getName() for thread in jvm.java.lang.Thread.getAllStackTraces().keySet())
    return any(name.startswith("spark-events") for name in names)


for name, settings in json.loads(sys.argv[2]).items():
    own = Path(FOLDER, name)
    own.mkdir()
    jvm.System.err.println(f"context {name}")
    try:
        spark = SparkContext(conf=SparkConf().setAppName("configured").setAll(settings.items()))
        assert count(spark) == 3
        (own / "counted").touch()
        spark.stop()
    except Exception as error:
        (own / "error").write_text(str(error), encoding="utf-8")
    while has_own_threads():
        time.sleep(0.02)
