"""Test that what a machine lacks is an error on CI: no test skips itself without ``tests/missing.py``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import ROOT

pytestmark = pytest.mark.no_cover

#: Files with ``pytest.skip`` or ``importorskip``, with the reason. A ``skipif`` is only for a version of Spark, of
#: Python or of the kernel, which CI does not choose for each test.
MAY_SKIP = {
    "missing.py": "the one place",
    "unit/test_operators.py": "a file on another project's server, which does not have to be up for our CI",
    "unit/enrichment/api/test_closures.py": "Spark's version",
    "spark/test_python_endings.py": "the kernel's version",
}
VERSIONS = {"spark_version", "version_info", "__version__", "IS_3_5", "TELLS_QUERY", "EXIT_STATUS_IS_READABLE"}


def skips(source: str) -> Iterator[str]:
    """Yield the calls that skip, except ``skipif`` with a condition about a version."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            named = {x.attr if isinstance(x, ast.Attribute) else getattr(x, "id", "") for x in ast.walk(node)}
            skips_now = node.func.attr in {"skip", "importorskip"} and "pytest" in ast.unparse(node.func)
            if skips_now or (node.func.attr == "skipif" and not named & VERSIONS):
                yield ast.unparse(node)


@pytest.mark.parametrize("file", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.stem)
def test_only_one_place_skips(file: Path) -> None:
    name = file.relative_to(ROOT / "tests").as_posix()
    assert name in MAY_SKIP or list(skips(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('pytest.skip("no server")', True),
        ('pytest.importorskip("kafka")', True),
        ('pytest.mark.skipif(not server(), reason="no server")', True),
        ('pytest.mark.skipif(spark_version() < (4,), reason="since 4")', False),
        ('missing("no server")', False),
    ],
)
def test_the_check_finds_skips(source: str, found: bool) -> None:
    assert bool(list(skips(source))) == found
