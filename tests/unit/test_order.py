"""Tests of the order of the test files."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import order
import pytest

TESTS = Path(order.__file__).parent


def item(name: str, *marks: str) -> Any:
    return SimpleNamespace(
        path=TESTS / name, nodeid=f"tests/{name}::test", get_closest_marker=lambda mark: mark if mark in marks else None
    )


@pytest.mark.parametrize("name", order.LONG_FILES)
def test_long_files_exist(name: str) -> None:
    assert (TESTS / name).is_file()


def test_long_files_start_first() -> None:
    first, second = order.LONG_FILES[-2:]
    items = [item(name) for name in ("unit/test_b.py", second, "unit/test_a.py", first)]
    order.arrange(items)
    assert [one.path for one in items] == [TESTS / x for x in (first, second, "unit/test_b.py", "unit/test_a.py")]


@pytest.mark.parametrize("folder", order.SPARK_FOLDERS)
def test_make_collects_the_folders_with_spark(folder: str) -> None:
    (folders,) = re.findall(r"^SPARK_TESTS = (.*)$", (TESTS.parent / "Makefile").read_text(encoding="utf-8"), re.M)
    assert f"tests/{folder}" in folders.split()
    order.arrange([item(f"{folder}/test_a.py", "spark")])


def test_a_test_with_spark_in_another_folder_is_rejected() -> None:
    with pytest.raises(pytest.UsageError, match=r"tests/unit/test_a\.py::test: .* move it to tests/spark"):
        order.arrange([item("unit/test_a.py", "spark")])
