"""Tests of the commands of CI."""

from __future__ import annotations

import re

from fakes import ROOT


def test_ci_makes_every_peer_that_a_test_misses() -> None:
    """On CI, no test is skipped because its peer was not made."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    named = {target for text in sources for target in re.findall(r"\bmissing\(f?\"[^\"]*\bmake ([a-z-]+)", text)}
    made = re.search(r"^step make -j3 .*$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.M)
    assert {"broker", "table-formats", "yarn"} < named
    assert made is not None
    assert named - set(made[0].split()) == set()
