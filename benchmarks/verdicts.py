"""Print precision and coverage of the verdicts on failures of public reports, for each half of the corpus."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from failure_corpus import figures, first_verdicts, reports, table, verdicts

__all__ = ["run"]


def run() -> None:
    """Print both tables; the first one is published in docs/events/verdicts.md."""
    found = list(reports())
    blind = [one for one in found if one.is_blind]
    development = [one for one in found if not one.is_blind]
    _print("blind half: at first, and now", len(blind), len({one.project for one in blind}))
    print(table(first=figures(blind, first_verdicts()), now=figures(blind, verdicts(blind))))
    _print("development half", len(development), len({one.project for one in development}))
    print(table(now=figures(development, verdicts(development))))


def _print(title: str, failures: int, projects: int) -> None:
    print(f"\n{title}: {failures} failures of {projects} projects\n")
