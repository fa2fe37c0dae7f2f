"""Print precision and coverage of the verdicts on failures of public reports, for each half of the corpus."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from failure_corpus import figures, reports, table

__all__ = ["run"]


def run() -> None:
    """Print both tables; the second one is published in docs/events.md."""
    found = list(reports())
    for is_second, title in ((False, "first half, for which rules are written"), (True, "second half")):
        chosen = [one for one in found if one.is_second == is_second]
        projects = {one.project for one in chosen}
        print(f"{title}: {len(chosen)} failures of {len(projects)} projects\n\n{table(figures(chosen))}\n")
