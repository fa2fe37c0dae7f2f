"""Derive ``spark_events/failures/conditions.tsv`` from the jars of the supported Spark versions.

Each Spark jar ``spark-common-utils`` lists the error conditions with their SQLSTATEs. The table keeps only names and
SQLSTATEs. If a version changed the SQLSTATE of a condition, the newest version decides. Run after adding a
Spark version::

    .venv/bin/python tests/spark_conditions.py
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "spark_events" / "failures" / "conditions.tsv"
HEAD = "# Spark's error conditions by SQLSTATE (- means none). Derived by tests/spark_conditions.py; do not edit.\n"


def environments() -> list[Path]:
    """Return the environments with a Spark version each, the newest last."""
    return [path for path in (*sorted((ROOT / ".matrix").glob("*")), ROOT / ".venv") if path.is_dir()]


def conditions(environment: Path) -> dict[str, dict[str, Any]]:
    """Return the conditions that the Spark jars of an environment list."""
    found: dict[str, dict[str, Any]] = {}
    for jar in environment.glob("lib/python3*/site-packages/pyspark/jars/spark-common-utils*.jar"):
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if re.fullmatch(r"error/error-(?:conditions|classes)\.json", name):
                    listed = json.loads(archive.read(name))
                    # A file of the same name lists the classes of SQLSTATEs, as plain strings.
                    found.update({key: value for key, value in listed.items() if isinstance(value, dict)})
    return found


def table() -> str:
    """Return the text of the table."""
    states: dict[str, str] = {}
    for environment in environments():
        for name, facts in conditions(environment).items():
            if not name.startswith("_LEGACY_ERROR_TEMP"):
                states[name] = facts.get("sqlState") or states.get(name) or "-"
    by_state = defaultdict(list)
    for name, state in states.items():
        by_state[state].append(name)
    return HEAD + "".join(f"{state}\t{' '.join(sorted(names))}\n" for state, names in sorted(by_state.items()))


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
    print(f"wrote {TABLE.relative_to(ROOT)}")
