"""Test that classes stay small: a class with many attributes or methods is usually two classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import spark_events

pytestmark = pytest.mark.no_cover

PACKAGE = Path(spark_events.__file__).parent
#: Maximum number of attributes, and of public and private methods together.
ATTRIBUTES, METHODS = 15, 20
#: The words with which a docstring gives the reason for the size of its class.
REASON = re.compile(r"\b(Large|It has many (fields|attributes|methods)), because\b")


def attributes_of(class_: ast.ClassDef) -> set[str]:
    """Return the names of the fields of a class, and of the attributes that its methods assign."""
    fields = {
        node.target.id for node in class_.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assigned = {
        node.attr
        for node in ast.walk(class_)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    return fields | assigned


def methods_of(class_: ast.ClassDef) -> list[str]:
    """Return the names of the methods and properties; an overloaded method counts once."""
    functions = [node for node in class_.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [one.name for one in functions if not any("overload" in ast.dump(mark) for mark in one.decorator_list)]


def too_large(source: str) -> Iterator[str]:
    """Yield the classes that exceed a limit and whose docstring gives no reason for that."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.ClassDef) or REASON.search(ast.get_docstring(node) or ""):
            continue
        if len(attributes_of(node)) > ATTRIBUTES or len(methods_of(node)) > METHODS:
            yield node.name


@pytest.mark.parametrize("module", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_classes_are_small(module: Path) -> None:
    """A class has at most 15 attributes and 20 methods, unless its docstring says why."""
    assert not set(too_large(module.read_text(encoding="utf-8")))


def lines(indent: str, statement: str, count: int) -> str:
    return "".join(f"{indent}{statement.format(number)}\n" for number in range(count))


@pytest.mark.parametrize(
    ("source", "is_large"),
    [
        (lines("    ", "x{}: int", ATTRIBUTES), False),
        (lines("    ", "x{}: int", ATTRIBUTES + 1), True),
        ("    def f(self):\n" + lines("        ", "self.x{} = 1", ATTRIBUTES + 1), True),
        (lines("    ", "def f{}(self): ...", METHODS), False),
        (lines("    ", "def f{}(self): ...", METHODS + 1), True),
        ('    """Large, because it has one field for each column."""\n' + lines("    ", "x{}: int", 99), False),
        ('    """Retry, because calls fail."""\n' + lines("    ", "x{}: int", 99), True),
    ],
)
def test_the_check_counts_attributes_and_methods(source: str, is_large: bool) -> None:
    """Control: the check counts fields, assigned attributes and methods, and accepts a reason."""
    assert list(too_large(f"class Some:\n{source}")) == (["Some"] if is_large else [])
