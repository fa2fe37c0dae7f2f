"""What a function's code reads of its module, and which modules it imports; nothing is run or imported for it."""

from __future__ import annotations

import dis
import importlib.util
import types
from collections.abc import Iterator
from typing import Any, TypeAlias

__all__ = ["Chain", "chains", "imports"]

#: A variable of the module and the attributes that are read from it at once: ``pkg.util.ask`` as its three names.
Chain: TypeAlias = tuple[str, ...]

_VARIABLE = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
#: They stand between others and say nothing.
_FILLING = frozenset({"EXTENDED_ARG", "NOP", "CACHE", "NOT_TAKEN"})
_IMPORT = dis.opmap["IMPORT_NAME"]


def chains(code: types.CodeType) -> Iterator[Chain]:
    """What a function reads, with what the functions in it read."""
    for one in _all(code):
        chain: list[str] = []
        for step in dis.get_instructions(one):
            if step.opname in _ATTRIBUTE and chain:
                chain.append(step.argval)
            elif step.opname not in _FILLING:
                if chain:
                    yield tuple(chain)
                chain = [step.argval] if step.opname in _VARIABLE else []


def imports(code: types.CodeType, package: str) -> Iterator[str]:
    """The modules that it imports, with what it imports of them, which may be modules too or not.

    Args:
        code: of a function, or of a whole module.
        package: where it is, for imports that start with a dot.
    """
    for one in _all(code):
        if _IMPORT not in one.co_code[::2]:
            continue  # most functions import nothing, and to take their code apart takes a while
        before: list[Any] = [0, None]
        for step in dis.get_instructions(one):
            if step.opname == "IMPORT_NAME":
                level, wanted = before[-2:]
                yield from _imported(step.argval, package, level or 0, wanted or ())
            if step.opname not in _FILLING:
                before = [before[-1], step.argval]


def _imported(name: str, package: str, level: int, wanted: tuple[str, ...]) -> Iterator[str]:
    if level:
        try:
            name = importlib.util.resolve_name("." * level + name, package)
        except ImportError:
            return  # it would fail where it is called as well
    yield name
    yield from (f"{name}.{part}" for part in wanted if part != "*")


def _all(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all(constant)
