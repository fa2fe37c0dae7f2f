"""Communicate with the test through files in the run's folder, which is the job's first argument."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

FOLDER = sys.argv[1]
if not os.path.basename(sys.argv[0]).startswith("enrich"):
    # Enrichment needs these libraries. In the other jobs, Spark 4 would import them when it first converts an argument,
    # which takes more time than all other work of the job in Python.
    sys.modules.update(dict.fromkeys(("numpy", "pandas", "pyarrow")))  # type: ignore[arg-type]
#: Offset in the driver's log at which each application begins.
_log_parts: dict[str, int] = {}


def begin(application: str) -> str:
    """Begin one of several applications of a job, and return the folder for the application's files."""
    folder = os.path.join(FOLDER, application)
    os.makedirs(folder)
    _log_parts[application] = os.path.getsize(os.path.join(FOLDER, "stderr"))
    write_down(_log_parts, "log_parts")
    return folder


def count(context: Any) -> int:
    """Run a job without SQL and Python workers, because their start takes longer than the job."""
    return int(context._jsc.parallelize(context._jvm.java.util.ArrayList([1, 2, 3])).count())


def announce(word: str) -> None:
    with open(os.path.join(FOLDER, word), "w"):
        pass


def received(word: str) -> bool:
    return os.path.exists(os.path.join(FOLDER, word))


def wait_until_received(word: str, seconds: float = 120) -> None:
    wait_until(f"the test sends {word!r}", lambda: received(word), seconds)


def wait_until(what: str, condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s until {what}")
        time.sleep(0.02)


def write_down(value: Any, name: str = "truth") -> None:
    path = os.path.join(FOLDER, name + ".json")
    with open(path + ".new", "w") as file:
        json.dump(value, file)
    os.replace(path + ".new", path)


def put(folder: str, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a file of JSON lines atomically, as one input file of a file source."""
    os.makedirs(folder, exist_ok=True)
    hidden = os.path.join(folder, f".{number}")
    with open(hidden, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    os.replace(hidden, os.path.join(folder, f"{number:05d}.json"))
